package forge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/internal/wire"
	"github.com/forge-scheduler/forge/jobs"
	"github.com/forge-scheduler/forge/test/nodes"
)

const meteredNode = `
[database]
url = %q
[http]
listen = %q
[node]
id = "a"
slots = 100
[metrics]
scrape_interval = "1s"
[jobs.print]
kind = "shell"
command = ["seq", "1000"]
output = { capture = 100 }
[jobs.nap]
kind = "shell"
command = ["sleep", "600"]
global_limit = 1
[jobs.quick]
kind = "shell"
command = ["true"]
[jobs.fail]
kind = "sql"
statement = "SELECT 1 / 0"
retry = { max_attempts = 1, second_round = "1s" }
[jobs.select]
kind = "sql"
statement = "SELECT 1"
[jobs.refused]
kind = "sql"
statement = "SELECT 1"
[[crons]]
name = "each_second"
schedule = "@every 1s"
job = "select"
overlap = "allow"
[[crons]]
name = "refused"
schedule = "@every 1s"
job = "refused"
[[crons]]
name = "hourly"
schedule = "0 * * * *"
job = "select"
catch_up = "none"
`

// beforeMeteredSQL prepares the database: a leader and a job of a process that has ended,
// old rows, output to merge, and a table that rejects jobs of one kind.
const beforeMeteredSQL = `
INSERT INTO forge_leaders (role, node_id, incarnation, term, acquired_at, renewed_at, lease_until)
VALUES ('log_compactor', 'gone', '00000000000000aa', 1, now() - interval '1 hour', now() - interval '1 minute', now() - interval '1 minute');
INSERT INTO forge_leader_history (role, term, node_id, incarnation, acquired_at)
VALUES ('log_compactor', 1, 'gone', '00000000000000aa', now() - interval '1 hour');
INSERT INTO river_job (kind, args, state, attempt, max_attempts, attempted_at, attempted_by)
VALUES ('select', '{}', 'running', 1, 3, now(), '{gone-00000000000000aa}');
INSERT INTO forge_events (type, at) VALUES ('old', now() - interval '3 years');
INSERT INTO river_job (id, kind, args, max_attempts, attempt, state, attempted_at, finalized_at)
VALUES (1000000, 'print', '{}', 1, 1, 'completed', now() - interval '1 hour', now() - interval '1 hour');
INSERT INTO forge_job_logs (job_id, attempt, seq, stream, chunk, at)
SELECT 1000000, 1, n, 'stdout', repeat('line ' || n, 100), now() - interval '1 hour' FROM generate_series(1, 20) n;
INSERT INTO forge_nodes (node_id, incarnation, state) VALUES ('gone', '00000000000000aa', 'left');
ALTER TABLE river_job ADD CONSTRAINT none_refused CHECK (kind <> 'refused')`

// metricsTest is a node whose metrics are checked.
type metricsTest struct {
	t      *testing.T
	pool   *pgxpool.Pool
	node   *Node
	broken atomic.Bool // its file cannot be read
	heldTx pgx.Tx
	depose chan struct{} // makes the custom role write after its term
}

// metricChange is an event and the metrics that it changes, as selectors.
type metricChange struct {
	event        string
	do           func(m *metricsTest)
	rises, falls []string
}

var metricChanges = []metricChange{
	{"the node is made", (*metricsTest).make, []string{`forge_build_info`, `forge_config_reload_success`}, nil},
	{"the node runs", (*metricsTest).run, []string{
		`forge_node_slots`, `forge_node_ready`, `forge_config_last_reload_success_timestamp_seconds`, `forge_table_bytes`,
		`forge_leader_is_leader{role="scheduler"}`, `forge_leader_elections_total{result="won"}`, `forge_leader_renewals_total{result="renewed"}`, `forge_node_heartbeats_total{result="success"}`, `forge_leader_lease_remaining_seconds`,
		`forge_leader_failovers_total{role="log_compactor"}`, `forge_leader_gap_seconds{role="log_compactor"}`,
		`forge_job_orphaned_total`, `forge_job_rescued_total`, `forge_job_finished_total{outcome="lost"}`,
		`forge_nodes{state="active"}`, `forge_node_reporting{node_id="a"}`,
		`forge_cron_runs_total`, `forge_cron_ticks_total{verdict="fired"}`, `forge_cron_delay_seconds`, `forge_cron_failures_total{cron="refused"}`,
		`forge_cron_job_finished_total{outcome="completed"}`, `forge_cron_job_duration_seconds`, `forge_cron_job_wait_seconds`,
		`forge_compactor_passes_total`, `forge_compactor_removed_rows_total{of="events"}`, `forge_compactor_merged_chunks_total`,
		`forge_compactor_merged_bytes_total`, `forge_compactor_packed_bytes_total`, `forge_compactor_pass_duration_seconds`,
		`forge_compactor_last_pass_timestamp_seconds`,
	}, nil},
	{"time passes", func(*metricsTest) {}, []string{`forge_leader_tenure_seconds`, `forge_leader_renewals_total`, `forge_node_heartbeats_total`}, []string{`forge_leader_lease_remaining_seconds{role="own"}`}},
	{"a job prints", func(m *metricsTest) { m.enqueue("print", 1) }, []string{
		`forge_job_enqueued_total{kind="print"}`, `forge_job_started_total{kind="print"}`, `forge_job_finished_total{kind="print",outcome="completed"}`,
		`forge_job_duration_seconds{kind="print"}`, `forge_job_wait_seconds{kind="print"}`,
		`forge_queue_job_finished_total{queue="default"}`, `forge_queue_job_duration_seconds{queue="default"}`, `forge_queue_job_wait_seconds{queue="default"}`,
		`forge_node_job_finished_total{outcome="completed"}`, `forge_node_job_duration_seconds`, `forge_node_job_wait_seconds`, `forge_assignment_offers_total`, `forge_assignment_claims_total`, `forge_assignment_step_duration_seconds`,
		`forge_job_output_lines_total{kind="print"}`, `forge_job_output_dropped_lines_total{kind="print"}`, `forge_command_start_seconds`,
	}, nil},
	{"a command enqueues", func(m *metricsTest) { m.enqueueByCommand("print") }, []string{`forge_job_enqueued_total{kind="print"}`}, nil},
	{"no job runs", (*metricsTest).awaitIdle, nil, nil},
	{"a job naps", func(m *metricsTest) { m.enqueue("nap", 1) }, []string{`forge_job_running{kind="nap"}`, `forge_queue_depth{state="running"}`, `forge_node_slots_used`}, nil},
	{"another waits for its limit", func(m *metricsTest) { m.enqueue("nap", 1) }, []string{`forge_limit_wait_seconds{scope="job",name="nap",limit="all",key=""}`}, nil},
	{"the waiting job is deleted", func(m *metricsTest) { m.exec(`DELETE FROM river_job WHERE kind = 'nap' AND state = 'available'`) }, nil, []string{`forge_limit_wait_seconds`}},
	{"the job is cancelled", (*metricsTest).cancelNap, []string{`forge_job_finished_total{kind="nap",outcome="cancelled"}`}, []string{`forge_job_running{kind="nap"}`, `forge_queue_depth{state="running"}`}},
	{"many commands start", func(m *metricsTest) { m.enqueue("quick", 100) }, []string{`forge_command_starts_waiting`}, nil},
	{"they have started", func(*metricsTest) {}, nil, []string{`forge_command_starts_waiting`}},
	{"a job fails for good", func(m *metricsTest) { m.enqueue("fail", 1) }, []string{
		`forge_job_finished_total{kind="fail",outcome="failed"}`, `forge_job_dead_letters_total{kind="fail"}`, `forge_job_second_rounds_total{kind="fail"}`,
	}, nil},
	{"a job of an unknown kind is inserted", func(m *metricsTest) { m.enqueue("unknown", 1) }, []string{
		`forge_assignment_waiting`, `forge_assignment_unworked{kind="unknown"}`,
	}, nil},
	{"the job is deleted", func(m *metricsTest) { m.exec(`DELETE FROM river_job WHERE kind = 'unknown'`) }, nil, []string{
		`forge_assignment_waiting`, `forge_assignment_unworked{kind="unknown"}`,
	}},
	{"a missing job is offered", (*metricsTest).offerNothing, []string{`forge_assignment_refused_total`}, nil},
	{"a queue is paused, and a transaction stays open", (*metricsTest).pauseQueueAndHoldTransaction, []string{
		`forge_queue_paused_seconds{queue="default"}`, `forge_queue_oldest_waiting_seconds{queue="default"}`,
		`forge_database_oldest_transaction_seconds{holder="session"}`, `forge_database_oldest_snapshot_transactions{holder="session"}`,
	}, nil},
	{"the queue is resumed and the transaction ends", (*metricsTest).resumeQueueAndEndTransaction, nil, []string{
		`forge_queue_paused_seconds{queue="default"}`, `forge_queue_oldest_waiting_seconds{queue="default"}`,
		`forge_database_oldest_transaction_seconds{holder="session"}`, `forge_database_oldest_snapshot_transactions{holder="session"}`,
	}},
	{"a node with another file and a fast clock joins", (*metricsTest).drift, []string{
		`forge_config_drifting_nodes`, `forge_node_clock_offset_seconds{node_id="b"}`,
	}, nil},
	{"the node leaves", func(m *metricsTest) { m.exec(`UPDATE forge_nodes SET state = 'left' WHERE node_id = 'b'`) }, nil, []string{`forge_config_drifting_nodes`}},
	{"the file becomes invalid", func(m *metricsTest) { m.reload(true) }, []string{`forge_config_reloads_total{result="failure"}`}, []string{`forge_config_reload_success`}},
	{"the file is fixed", func(m *metricsTest) { m.reload(false) }, []string{
		`forge_config_reloads_total{result="success"}`, `forge_config_reload_success`, `forge_config_last_reload_success_timestamp_seconds`,
	}, nil},
	{"a term is over", func(m *metricsTest) { close(m.depose) }, []string{`forge_leader_fenced_writes_total{role="own"}`}, nil},
	{"ticks are due without a leader", (*metricsTest).missTicks, []string{`forge_cron_missed_total{cron="hourly"}`}, nil},
	{"a replication slot lags", (*metricsTest).lagSlot, []string{`forge_database_replication_slot_bytes`}, nil},
	{"the clock is set back", func(m *metricsTest) {
		m.exec(`INSERT INTO forge_events (type, at) VALUES ('later', now() + interval '1 hour')`)
	}, []string{`forge_database_clock_set_back_seconds`}, nil},
	{"the process is paused", (*metricsTest).freeze, []string{`forge_node_starved_seconds_total`}, nil},
}

// movedElsewhere contains the metrics that a test of another package changes.
var movedElsewhere = map[string]string{"forge_leader_lease_errors_total": "TestFailedRequestsAreCounted in kubernetes"}

// Every metric changes with its event. The test fails for a metric without an event.
func TestEveryMetricMoves(t *testing.T) {
	t.Parallel()
	m := &metricsTest{t: t, depose: make(chan struct{})}
	moved := map[string]bool{}
	for _, move := range metricChanges {
		before := m.read()
		move.do(m)
		for _, selector := range move.rises {
			moved[nameIn(selector)] = true
			eventually(t, move.event+": "+selector+" rises", func() bool { return m.read().sum(t, selector) > before.sum(t, selector) })
		}
		for _, selector := range move.falls {
			moved[nameIn(selector)] = true
			eventually(t, move.event+": "+selector+" falls", func() bool { return m.read().sum(t, selector) < before.sum(t, selector) })
		}
	}
	for _, series := range m.node.metrics.Series() {
		if !moved[series.Name] && movedElsewhere[series.Name] == "" {
			t.Errorf("no move makes %s rise or fall", series.Name)
		}
	}
	m.promtool("/metrics")
	m.promtool("/metrics/cluster")
}

func nameIn(selector string) string {
	name, _, _ := strings.Cut(selector, "{")
	return name
}

// readings are the samples of a scrape.
type readings []metrics.Sample

func (m *metricsTest) read() readings {
	if m.node == nil {
		return nil
	}
	samples, err := m.node.metrics.Snapshot()
	if err != nil {
		m.t.Fatal(err)
	}
	return samples
}

// sum adds the series that match a selector; for a histogram, it adds the counts.
func (r readings) sum(t *testing.T, selector string) (sum float64) {
	t.Helper()
	matchers, err := parser.ParseMetricSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	for _, sample := range r {
		if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(labelOf(sample, m.Name)) }) {
			sum += sample.Value
		}
	}
	return sum
}

func labelOf(sample metrics.Sample, name string) string {
	if name == model.MetricNameLabel {
		return sample.Name
	}
	return sample.Labels[name]
}

func (m *metricsTest) exec(sql string) {
	m.t.Helper()
	if _, err := m.pool.Exec(m.t.Context(), sql); err != nil {
		m.t.Fatal(err)
	}
}

func (m *metricsTest) make() {
	url := pgtest.URL(m.t)
	m.pool = pgtest.Connect(m.t, url)
	m.exec(beforeMeteredSQL)
	load := func() (*Config, error) {
		if m.broken.Load() {
			return nil, errors.New("broken")
		}
		return ParseConfig("test", fmt.Sprintf(meteredNode, url, nodes.AnyPort))
	}
	cfg, err := load()
	if err != nil {
		m.t.Fatal(err)
	}
	m.node, err = New(cfg, WithLogger(slog.New(slog.DiscardHandler)), WithFile("none.toml", load), WithRole("own", m.lead))
	if err != nil {
		m.t.Fatal(err)
	}
}

// lead is the work of the custom role. It writes once its term is over.
func (m *metricsTest) lead(ctx context.Context, term Term) error {
	select {
	case <-ctx.Done():
		return nil
	case <-m.depose:
	}
	return pgx.BeginFunc(ctx, m.pool, func(tx pgx.Tx) error {
		if _, err := m.pool.Exec(ctx, `UPDATE forge_leaders SET term = term + 1 WHERE role = 'own'`); err != nil {
			return err
		}
		return term.Check(ctx, tx)
	})
}

func (m *metricsTest) run() {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.node.Run(ctx) }()
	m.t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			m.t.Error(err)
		}
	})
}

func (m *metricsTest) enqueue(kind string, count int) {
	m.t.Helper()
	err := pgx.BeginFunc(m.t.Context(), m.pool, func(tx pgx.Tx) error {
		_, err := m.node.runner.InsertMany(m.t.Context(), tx, slices.Repeat([]jobstore.NewJob{{Kind: kind}}, count))
		return err
	})
	if err != nil {
		m.t.Fatal(err)
	}
}

// enqueueByCommand enqueues a job as forge job enqueue does.
func (m *metricsTest) enqueueByCommand(kind string) {
	m.t.Helper()
	inserter, err := jobs.NewInserter(m.pool, "public")
	if err != nil {
		m.t.Fatal(err)
	}
	if _, err := jobs.NewEnqueuer(m.pool, inserter).Enqueue(m.t.Context(), jobstore.NewJob{Kind: kind}, false, ""); err != nil {
		m.t.Fatal(err)
	}
}

// awaitIdle waits until the gauge shows no running jobs.
func (m *metricsTest) awaitIdle() {
	m.t.Helper()
	eventually(m.t, "no job runs", func() bool { return m.read().sum(m.t, `forge_queue_depth{state="running"}`) == 0 })
}

func (m *metricsTest) cancelNap() {
	m.t.Helper()
	var id int64
	err := m.pool.QueryRow(m.t.Context(), `SELECT id FROM river_job WHERE kind = 'nap'`).Scan(&id)
	if _, failed := m.node.Client().JobCancel(m.t.Context(), id); err != nil || failed != nil {
		m.t.Fatal(err, failed)
	}
}

func (m *metricsTest) offerNothing() {
	m.t.Helper()
	fence, _ := m.node.elections.Leads("scheduler")
	offer := wire.Offer{Term: fence.Term, Seq: 1 << 40, Jobs: map[string][]int64{"default": {1 << 40}}}
	_, err := m.pool.Exec(m.t.Context(), `SELECT pg_notify($1, $2)`, wire.OfferChannel("public", m.node.incarnation), wire.Marshal(offer))
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *metricsTest) drift() {
	m.exec(`INSERT INTO forge_nodes (node_id, incarnation, config_hash) VALUES ('b', '00000000000000bb', 'another');
		INSERT INTO forge_metrics_nodes (node_id, incarnation, samples)
		VALUES ('b', '00000000000000bb', jsonb_build_object('clock', now() + interval '1 minute'))`)
}

func (m *metricsTest) pauseQueueAndHoldTransaction() {
	m.t.Helper()
	m.exec(`UPDATE river_queue SET paused_at = now() - interval '1 minute'`)
	var err error
	if m.heldTx, err = m.pool.BeginTx(m.t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead}); err != nil {
		m.t.Fatal(err)
	}
	if _, err := m.heldTx.Exec(m.t.Context(), `SELECT count(*) FROM river_job`); err != nil {
		m.t.Fatal(err)
	}
}

func (m *metricsTest) resumeQueueAndEndTransaction() {
	m.t.Helper()
	if err := m.heldTx.Rollback(m.t.Context()); err != nil {
		m.t.Fatal(err)
	}
	m.exec(`UPDATE river_queue SET paused_at = NULL`)
}

func (m *metricsTest) reload(broken bool) {
	m.broken.Store(broken)
	m.node.Reload()
}

// missTicks creates hours of missed ticks for the next leader.
func (m *metricsTest) missTicks() {
	m.exec(`UPDATE forge_crons SET watermark = date_trunc('hour', now()) - interval '3 hours', next_tick = date_trunc('hour', now()) - interval '2 hours'
		WHERE name = 'hourly';
		UPDATE forge_leaders SET term = term + 1 WHERE role = 'scheduler'`)
}

// freeze pauses this process for less than a lease.
func (m *metricsTest) freeze() {
	m.t.Helper()
	if err := exec.CommandContext(m.t.Context(), "sh", "-c", "kill -STOP $PPID; sleep 0.8; kill -CONT $PPID").Run(); err != nil {
		m.t.Fatal(err)
	}
}

// promtool checks the metrics at a path of the node.
func (m *metricsTest) promtool(path string) {
	m.t.Helper()
	_, body, _ := nodes.Get(strings.TrimPrefix(m.node.self.APIURL, "http://"), path)
	cmd := exec.CommandContext(m.t.Context(), pgtest.Program(m.t, "promtool", "apt-get install prometheus"), "check", "metrics")
	cmd.Stdin = strings.NewReader(string(body))
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(body), "forge_nodes") {
		m.t.Errorf("promtool check metrics of %s: %v\n%s", path, err, out)
	}
}

// lagSlot creates a slot without a consumer, and writes.
func (m *metricsTest) lagSlot() {
	slot := fmt.Sprintf("moves_%d", time.Now().UnixNano())
	m.exec(`SELECT pg_create_physical_replication_slot('` + slot + `', true)`)
	m.t.Cleanup(func() {
		ctx := context.WithoutCancel(m.t.Context()) // it has ended
		if _, err := m.pool.Exec(ctx, `SELECT pg_drop_replication_slot('`+slot+`')`); err != nil {
			m.t.Error(err)
		}
	})
	m.exec(`SELECT pg_logical_emit_message(false, 'forge', repeat('x', 100000))`)
}
