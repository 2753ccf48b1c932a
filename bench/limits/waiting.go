package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/forge-scheduler/forge/bench/internal/rig"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

const (
	// usualShare is the share of the usual rate that counts as usual, in each usualWindow.
	usualShare  = 0.9
	usualWindow = 500 * time.Millisecond
	// takeoverTimeout bounds the wait for the usual rate after the leader's end.
	takeoverTimeout = time.Minute
	mebibyte        = 1 << 20
)

const (
	// fillSQL makes $1 jobs that take $3 ms, in the order of $2 keys.
	fillSQL = `
INSERT INTO river_job (kind, queue, args, max_attempts, metadata)
SELECT 'job', 'waiting', jsonb_build_object('k', 'w' || n * $2::bigint / $1::bigint, 'ms', $3::int), 25, '{}'
FROM generate_series(0, $1::int - 1) AS n`
	leaderSQL  = `SELECT l.node_id, n.api_url, l.term FROM forge_leaders AS l JOIN forge_nodes AS n USING (node_id) WHERE l.role = 'scheduler' AND l.lease_until > clock_timestamp()`
	startedSQL = `SELECT count(*) FROM river_job WHERE queue = 'waiting' AND attempted_at BETWEEN $1 AND $2`
	nowSQL     = `SELECT clock_timestamp()`
	workedSQL  = `SELECT EXISTS (SELECT FROM river_job WHERE queue = 'waiting' AND attempted_at IS NOT NULL)`
	runningSQL = `SELECT EXISTS (SELECT FROM river_job WHERE queue = 'waiting' AND state = 'running')`
	// notifyFromSQL is sent in the transaction that inserts the backlog.
	notifyFromSQL = `SELECT pg_notify(current_schema() || '.river_insert', json_build_object('queue', 'waiting', 'from', now())::text)`
	// startsSQL returns the starts after a time, in order.
	startsSQL   = `SELECT attempted_at FROM river_job WHERE queue = 'waiting' AND attempted_at > $1 ORDER BY attempted_at`
	acquiredSQL = `SELECT acquired_at FROM forge_leaders WHERE role = 'scheduler' AND term > $1 AND node_id IS NOT NULL`
)

// leader is the node that leads the scheduler.
type leader struct {
	node, api string
	term      int64
}

func leaderOf(ctx context.Context, pool *pgxpool.Pool) (l leader, err error) {
	if err = pool.QueryRow(ctx, leaderSQL).Scan(&l.node, &l.api, &l.term); err != nil {
		err = fmt.Errorf("read the leader: %w", err)
	}
	return l, err
}

// wait measures a backlog with many keys.
func (b *bench) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, partTimeout)
	defer cancel()
	defer b.rig.KillAll()
	pool, err := b.start(ctx, b.slots+b.waitingWorkers, fmt.Sprintf("[queues.waiting]\nmax_workers = %d\nlimit_per_key = { key = \"args.k\", limit = 1 }\n", b.waitingWorkers))
	if err != nil {
		return err
	}
	alone, err := b.unlimited(ctx, pool)
	if err != nil {
		return err
	}
	b.say("waiting: %d jobs of %d keys", b.waiting, b.waitingKeys)
	for _, sql := range []string{"TRUNCATE river_job", "VACUUM ANALYZE river_job"} {
		if _, err := pool.Exec(ctx, sql); err != nil {
			return fmt.Errorf("prepare the table: %w", err)
		}
	}
	if err := b.fill(ctx, pool); err != nil {
		return err
	}
	usual, err := b.watched(ctx, pool)
	if err != nil {
		return err
	}
	beside, err := b.unlimited(ctx, pool)
	if err != nil {
		return err
	}
	paused, err := b.besidePaused(ctx, pool)
	if err != nil {
		return err
	}
	v := b.result.Values
	v["alone_per_s"], v["beside_per_s"], v["beside_paused_per_s"] = rig.Round(alone), rig.Round(beside), rig.Round(paused)
	b.result.Ratios["beside"], b.result.Ratios["beside_over_paused"] = rig.Round(beside/alone), rig.Round(beside/paused)
	return b.takeover(ctx, pool, usual)
}

// fill inserts the backlog, and waits until it is worked. The notification says from when it is
// due, as that of forge_enqueue: the transaction takes long.
func (b *bench) fill(ctx context.Context, pool *pgxpool.Pool) error {
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, fillSQL, b.waiting, b.waitingKeys, b.waitingService.Milliseconds()); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "ANALYZE river_job"); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, notifyFromSQL)
		return err
	})
	if err != nil {
		return fmt.Errorf("fill the queue: %w", err)
	}
	return rig.Await(ctx, "the first job of the backlog", func(ctx context.Context) (worked bool, err error) {
		err = pool.QueryRow(ctx, workedSQL).Scan(&worked)
		return worked, err
	})
}

// unlimited returns the rate of the jobs of a queue without limits: the median of the trials,
// after one to warm up.
func (b *bench) unlimited(ctx context.Context, pool *pgxpool.Pool) (perSecond float64, err error) {
	var rates []float64
	for trial := range b.trials + 1 {
		if err := b.rig.Checkpoint(ctx); err != nil {
			return 0, err
		}
		began, err := insert(ctx, pool, b.jobs, "plain", b.keys, "k", 0)
		if err != nil {
			return 0, err
		}
		if err := b.drained(ctx, pool, "plain"); err != nil {
			return 0, err
		}
		if trial > 0 {
			rates = append(rates, float64(b.jobs)/time.Since(began).Seconds())
		}
	}
	return median(rates), nil
}

// besidePaused is unlimited while nothing is read of the backlog: what its rows alone cost.
func (b *bench) besidePaused(ctx context.Context, pool *pgxpool.Pool) (perSecond float64, err error) {
	store := jobstore.New(pool)
	if _, _, err := store.PauseQueue(ctx, "waiting", jobstore.QueuePauseOrder{}); err != nil {
		return 0, err
	}
	if err := b.awaitBacklog(ctx, pool, false); err != nil {
		return 0, err
	}
	if perSecond, err = b.unlimited(ctx, pool); err != nil {
		return 0, err
	}
	if _, _, err := store.ResumeQueue(ctx, "waiting", jobstore.QueuePauseOrder{}); err != nil {
		return 0, err
	}
	return perSecond, b.awaitBacklog(ctx, pool, true)
}

// awaitBacklog waits until jobs of the backlog run, or none do.
func (b *bench) awaitBacklog(ctx context.Context, pool *pgxpool.Pool, runs bool) error {
	return rig.Await(ctx, fmt.Sprintf("running jobs of the backlog: %t", runs), func(ctx context.Context) (bool, error) {
		var running bool
		err := pool.QueryRow(ctx, runningSQL).Scan(&running)
		return running == runs, err
	})
}

// watched measures the leader while the backlog is worked and nothing else, and returns how many
// of its jobs start in a second.
func (b *bench) watched(ctx context.Context, pool *pgxpool.Pool) (perSecond float64, err error) {
	if err := rig.SleepUntil(ctx, time.Now().Add(b.watch/4)); err != nil { // it reads all of the backlog once
		return 0, err
	}
	l, err := leaderOf(ctx, pool)
	if err != nil {
		return 0, err
	}
	before, err := scrape(ctx, l)
	if err != nil {
		return 0, err
	}
	var from, until time.Time
	if err := pool.QueryRow(ctx, nowSQL).Scan(&from); err != nil {
		return 0, fmt.Errorf("read the time: %w", err)
	}
	if err := rig.SleepUntil(ctx, time.Now().Add(b.watch)); err != nil {
		return 0, err
	}
	if err := pool.QueryRow(ctx, nowSQL).Scan(&until); err != nil {
		return 0, fmt.Errorf("read the time: %w", err)
	}
	after, err := scrape(ctx, l)
	if err != nil {
		return 0, err
	}
	var started float64
	if err := pool.QueryRow(ctx, startedSQL, from, until).Scan(&started); err != nil {
		return 0, fmt.Errorf("count the starts: %w", err)
	}
	if started == 0 {
		return 0, errors.New("no job of the backlog has started while it was watched")
	}
	perSecond = started / until.Sub(from).Seconds()
	v := b.result.Values
	v["waiting_per_s"], v["step_p99_ms"] = rig.Round(perSecond), rig.Round(1000*after.quantile(before, 0.99))
	v["heap_mb"], v["rss_mb"] = rig.Round(after.heap/mebibyte), rig.Round(after.rss/mebibyte)
	return perSecond, nil
}

// takeover kills the leader and measures the next one.
func (b *bench) takeover(ctx context.Context, pool *pgxpool.Pool, usual float64) error {
	l, err := leaderOf(ctx, pool)
	if err != nil {
		return err
	}
	var killed, acquired time.Time
	if err := pool.QueryRow(ctx, nowSQL).Scan(&killed); err != nil {
		return fmt.Errorf("read the time: %w", err)
	}
	b.say("waiting: %s is killed", l.node)
	for _, p := range b.rig.Processes() {
		if p.ID == l.node {
			p.Kill()
		}
	}
	err = rig.Await(ctx, "the next leader", func(ctx context.Context) (bool, error) {
		return true, pool.QueryRow(ctx, acquiredSQL, l.term).Scan(&acquired)
	})
	if err != nil {
		return err
	}
	first, usualAt, err := usualAgain(ctx, pool, acquired, usual*(nodes-1)/nodes)
	if err != nil {
		return err
	}
	b.result.Values["takeover_first_ms"] = rig.Round(rig.Milliseconds(first.Sub(killed)))
	b.result.Values["takeover_usual_ms"] = rig.Round(rig.Milliseconds(usualAt.Sub(killed)))
	return nil
}

// usualAgain waits until jobs of the backlog start at a rate again, and returns the first start
// since acquired and the first at that rate.
func usualAgain(ctx context.Context, pool *pgxpool.Pool, acquired time.Time, perSecond float64) (first, usual time.Time, err error) {
	deadline := time.Now().Add(takeoverTimeout)
	for {
		if err := rig.SleepUntil(ctx, time.Now().Add(usualWindow)); err != nil {
			return first, usual, err
		}
		starts, err := startsAfter(ctx, pool, acquired)
		if err != nil {
			return first, usual, err
		}
		if usual = usualFrom(starts, perSecond); !usual.IsZero() {
			return starts[0], usual, nil
		}
		if time.Now().After(deadline) {
			return first, usual, fmt.Errorf("%d jobs of the backlog started after the leader's end, within %v never at the usual rate of %.0f/s", len(starts), takeoverTimeout, perSecond)
		}
	}
}

func startsAfter(ctx context.Context, pool *pgxpool.Pool, at time.Time) ([]time.Time, error) {
	rows, err := pool.Query(ctx, startsSQL, at)
	if err != nil {
		return nil, fmt.Errorf("read the starts: %w", err)
	}
	starts, err := pgx.CollectRows(rows, pgx.RowTo[time.Time])
	if err != nil {
		return nil, fmt.Errorf("read the starts: %w", err)
	}
	return starts, nil
}

// usualFrom returns the first of the starts from which there are as many in the next usualWindow
// as at the rate; zero if there is none.
func usualFrom(starts []time.Time, perSecond float64) time.Time {
	want := int(usualShare * perSecond * usualWindow.Seconds())
	for i, at := range starts {
		if n, _ := slices.BinarySearchFunc(starts[i:], at.Add(usualWindow), time.Time.Compare); n >= max(want, 1) {
			return at
		}
	}
	return time.Time{}
}

// sample is what a node's metrics say of its process and of the leader's steps.
type sample struct {
	heap, rss float64 // bytes
	steps     *dto.Histogram
}

// scrape reads the metrics of a leader.
func scrape(ctx context.Context, l leader) (s sample, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, l.api+"/metrics", nil)
	if err != nil {
		return s, fmt.Errorf("read the metrics of %s: %w", l.node, err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return s, fmt.Errorf("read the metrics of %s: %w", l.node, err)
	}
	defer func() { _ = answer.Body.Close() }()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(answer.Body)
	if err != nil {
		return s, fmt.Errorf("read the metrics of %s: %w", l.node, err)
	}
	first := func(name string) *dto.Metric {
		if family := families[name]; family != nil && len(family.GetMetric()) > 0 {
			return family.GetMetric()[0]
		}
		return &dto.Metric{}
	}
	s.heap = first("go_memstats_heap_inuse_bytes").GetGauge().GetValue()
	s.rss = first("process_resident_memory_bytes").GetGauge().GetValue()
	s.steps = first("forge_assignment_step_duration_seconds").GetHistogram()
	return s, nil
}

// quantile returns the duration in seconds that a share of the steps since before did not exceed,
// interpolated within a bucket.
func (s sample) quantile(before sample, share float64) float64 {
	since := func(i int) float64 {
		count := float64(s.steps.GetBucket()[i].GetCumulativeCount())
		if buckets := before.steps.GetBucket(); i < len(buckets) {
			count -= float64(buckets[i].GetCumulativeCount())
		}
		return count
	}
	buckets := s.steps.GetBucket()
	rank := share * float64(s.steps.GetSampleCount()-before.steps.GetSampleCount())
	lower, below := 0.0, 0.0
	for i, bucket := range buckets {
		if n := since(i); n >= rank && n > below {
			return lower + (bucket.GetUpperBound()-lower)*(rank-below)/(n-below)
		}
		lower, below = bucket.GetUpperBound(), since(i)
	}
	return lower
}

// loadAverage is the machine's load when the run begins; empty where it is not known.
func loadAverage() string {
	body, _ := os.ReadFile("/proc/loadavg") // not everywhere
	return strings.Join(strings.Fields(string(body))[:min(3, len(strings.Fields(string(body))))], " ")
}

// printWaiting writes the lines of the part waiting.
func (b *bench) printWaiting(table io.Writer) {
	v := b.result.Values
	fmt.Fprintf(table, "backlog of many keys, jobs/s\t%.0f\t\n", v["waiting_per_s"])
	fmt.Fprintf(table, "step of its leader, p99 ms\t%.0f\t\n", v["step_p99_ms"])
	fmt.Fprintf(table, "heap of its leader, MiB\t%.0f\t\n", v["heap_mb"])
	fmt.Fprintf(table, "resident memory of its leader, MiB\t%.0f\t\n", v["rss_mb"])
	fmt.Fprintf(table, "without limits, no backlog, jobs/s\t%.0f\t\n", v["alone_per_s"])
	fmt.Fprintf(table, "without limits, beside the backlog, jobs/s\t%.0f\t\n", v["beside_per_s"])
	fmt.Fprintf(table, "without limits, beside the paused backlog, jobs/s\t%.0f\t\n", v["beside_paused_per_s"])
	fmt.Fprintf(table, "beside over without the backlog\t%.2f\t\n", b.result.Ratios["beside"])
	fmt.Fprintf(table, "beside over beside the paused backlog\t%.2f\t\n", b.result.Ratios["beside_over_paused"])
	fmt.Fprintf(table, "leader killed, first start after ms\t%.0f\t\n", v["takeover_first_ms"])
	fmt.Fprintf(table, "leader killed, usual rate after ms\t%.0f\t\n", v["takeover_usual_ms"])
}
