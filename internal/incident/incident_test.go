package incident_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/incident"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const (
	incA = "00000000000000aa"
	incB = "00000000000000bb"
	day  = 24 * time.Hour
)

// cluster is a database in which the scheduler's term 1 (node a) ended at ended, and term 2
// (node b) began two seconds later.
type cluster struct {
	t     *testing.T
	pool  *pgxpool.Pool
	ended time.Time
}

func newCluster(t *testing.T, reason string) *cluster {
	t.Helper()
	c := &cluster{t, pgtest.Pool(t), time.Now().UTC().Truncate(time.Minute).Add(-10*time.Minute + 500*time.Millisecond)}
	c.exec(`INSERT INTO forge_leaders (role, node_id, incarnation, term, acquired_at, renewed_at, lease_until)
		VALUES ('scheduler', 'b', $1, 2, $2, clock_timestamp(), clock_timestamp() + interval '1 h')`, incB, c.at(2*time.Second))
	c.exec(`INSERT INTO forge_leader_history (role, term, node_id, incarnation, acquired_at, ended_at, end_reason, gap) VALUES
		('scheduler', 1, 'a', $1, $3, $4, $5, NULL), ('scheduler', 2, 'b', $2, $6, NULL, NULL, interval '2 s')`,
		incA, incB, c.at(-time.Hour), c.ended, reason, c.at(2*time.Second))
	c.event(0, "leader_lost", "a", "scheduler", 1, map[string]any{"reason": reason})
	c.event(1990*time.Millisecond, "election_started", "b", "scheduler", 2, nil)
	c.event(2*time.Second, "leader_elected", "b", "scheduler", 2, map[string]any{"gap_ms": 2000})
	return c
}

func (c *cluster) at(after time.Duration) time.Time { return c.ended.Add(after) }

func (c *cluster) exec(sql string, args ...any) {
	c.t.Helper()
	if _, err := c.pool.Exec(c.t.Context(), sql, args...); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) event(after time.Duration, kind, node, role string, term int64, data map[string]any) {
	c.t.Helper()
	body, err := json.Marshal(data)
	if err != nil {
		c.t.Fatal(err)
	}
	c.exec(`INSERT INTO forge_events (at, type, node_id, role, term, data) VALUES ($1, $2, $3, nullif($4, ''), nullif($5::bigint, 0), $6)`,
		c.at(after), kind, node, role, term, body)
}

// cron adds a cron whose ticks up to a time after the end are recorded.
func (c *cluster) cron(name, schedule string, watermark time.Duration) {
	c.t.Helper()
	c.exec(`INSERT INTO forge_crons (name, spec, spec_hash, created_at, updated_at, watermark)
		VALUES ($1, $2, '', $3, $3, $4)`, name, cronstore.Spec{Schedule: schedule, Timezone: "UTC", Job: "tidy"}, c.at(-2*time.Hour), c.at(watermark))
}

// tick records a tick of a term.
func (c *cluster) tick(cron string, after, late time.Duration, term int64, verdict, reason string) {
	c.t.Helper()
	c.exec(`INSERT INTO forge_cron_ticks (cron, tick, verdict, reason, term, node_id, recorded_at, lateness_ms) VALUES ($1, $2, $3, $4, $5, 'b', $6, $7)`,
		cron, c.at(after), verdict, reason, term, c.at(after+late), float64(late.Microseconds())/1000)
}

func (c *cluster) read(term int64) incident.Incident {
	c.t.Helper()
	i, err := incident.New(c.pool, 30*day).Read(c.t.Context(), "scheduler", term)
	if err != nil {
		c.t.Fatal(err)
	}
	return i
}

func names(ticks []cronstore.Tick) (all []string) {
	for _, tick := range ticks {
		all = append(all, tick.Cron)
	}
	return all
}

func TestCrash(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "crashed")
	c.exec(`INSERT INTO forge_nodes (node_id, incarnation, state, fenced_at) VALUES ('a', $1, 'dead', now())`, incA)
	c.event(3*time.Second, "node_dead", "a", "", 0, map[string]any{"incarnation": incA})
	c.event(4*time.Second, "jobs_rescued", "a", "scheduler", 2, map[string]any{"incarnation": incA, "jobs": 2, "available": 1, "discarded": 1, "ids": []int64{7, 9}})
	c.event(4*time.Second, "jobs_rescued", "a", "scheduler", 2, map[string]any{"incarnation": "another", "jobs": 5, "ids": []int64{1}})
	c.tick("before", -500*time.Millisecond, 5*time.Millisecond, 1, "fired", "")
	c.tick("gap", 500*time.Millisecond, 1600*time.Millisecond, 2, "fired", "")
	c.tick("skipped", 1500*time.Millisecond, 700*time.Millisecond, 2, "skipped_window", "")
	c.tick("starting", 2020*time.Millisecond, 130*time.Millisecond, 2, "fired", "")
	c.tick("start", 2050*time.Millisecond, 30*time.Millisecond, 2, "fired", "")
	c.tick("backlog", 3500*time.Millisecond, 1200*time.Millisecond, 2, "caught_up", "")
	c.tick("waited", 600*time.Millisecond, 9*time.Second, 2, "fired", cronstore.WaitedReason(9*time.Second))
	c.tick("by hand", 700*time.Millisecond, 9*time.Second, 2, "triggered", "")

	i := c.read(2)
	if i.Kind != incident.Failover || i.Old.NodeID != "a" || i.Old.EndReason != "crashed" || i.NodeID != "b" || i.Gap() != 2*time.Second {
		t.Errorf("who and why: %+v, old %+v", i, *i.Old)
	}
	if !i.DetectedAt.Equal(c.ended) || !i.ElectionAt.Equal(c.at(1990*time.Millisecond)) || !i.ElectedAt.Equal(c.at(2*time.Second)) {
		t.Errorf("noticed %v, election %v, elected %v", i.DetectedAt, i.ElectionAt, i.ElectedAt)
	}
	if i.Old.Process != "dead" || !i.Old.GoneAt.Equal(c.at(3*time.Second)) {
		t.Errorf("old process: %s at %v", i.Old.Process, i.Old.GoneAt)
	}
	if i.FirstTick == nil || i.FirstTick.Cron != "start" {
		t.Errorf("first tick %+v", i.FirstTick)
	}
	if diff := cmp.Diff([]string{"gap", "backlog", "skipped", "starting"}, names(i.Ticks.Items)); diff != "" || i.Ticks.Count != 4 || i.Ticks.WorstMS != 1600 || i.Ticks.More {
		t.Errorf("delayed ticks %+v\n%s", i.Ticks, diff)
	}
	if diff := cmp.Diff(incident.Jobs{Rescued: 2, Available: 1, Discarded: 1, IDs: []int64{7, 9}, RescuedAt: i.Jobs.RescuedAt}, i.Jobs); diff != "" {
		t.Errorf("jobs (-want +got):\n%s", diff)
	}
	if !i.Lost.Nothing || len(i.Events) != 6 || !i.EventsKept {
		t.Errorf("lost %+v, %d events, kept %v", i.Lost, len(i.Events), i.EventsKept)
	}
	const want = "a crashed. b became the leader 2s later. 4 ticks were delayed, the worst by 1.6s. 2 running jobs of a were rescued. Nothing was lost."
	if i.Summary != want {
		t.Errorf("summary %q", i.Summary)
	}
}

// Events of many other nodes do not hide those of the term.
func TestManyNodesAreLost(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "database_lost")
	c.exec(`INSERT INTO forge_events (at, type, node_id, data)
		SELECT $1::timestamptz - n * interval '0.1 s', 'node_dead', 'node-' || n, jsonb_build_object('incarnation', n::text) FROM generate_series(1, 1000) AS n`, c.ended)
	if i := c.read(2); !i.EventsKept || !i.DetectedAt.Equal(c.ended) || !i.Lost.Nothing {
		t.Errorf("events kept %v, noticed %v, lost %+v", i.EventsKept, i.DetectedAt, i.Lost)
	}
}

// The ledger lacks a tick that its cron was due at, and a job still runs in the name of the
// dead process.
func TestLossIsComputed(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "crashed")
	c.exec(`INSERT INTO forge_nodes (node_id, incarnation, state, fenced_at) VALUES ('a', $1, 'dead', now())`, incA)
	c.cron("full", "@every 1s", time.Hour)
	for after := -29500 * time.Millisecond; after <= 2*time.Second; after += time.Second {
		c.tick("full", after, 0, 2, "fired", "")
	}
	c.cron("range", "* * * * * *", time.Hour)
	c.exec(`INSERT INTO forge_cron_ticks (cron, tick, last_tick, tick_count, verdict, term, node_id) VALUES ('range', $1, $2, 99, 'skipped_window', 2, 'b')`,
		c.at(-time.Minute), c.at(time.Minute))
	if i := c.read(2); !i.Lost.Nothing || i.Lost.Ticks.Crons != 2 || i.Lost.Ticks.Ticks < 60 {
		t.Fatalf("lost %+v, %+v", i.Lost, i.Lost.Ticks)
	}

	c.exec(`DELETE FROM forge_cron_ticks WHERE cron = 'full' AND tick = $1`, c.at(500*time.Millisecond))
	c.cron("late", "@every 1m", -2*time.Minute)
	c.exec(`INSERT INTO river_job (id, kind, state, attempted_by, attempted_at, max_attempts, args) VALUES (5, 'tidy', 'running', $1, now(), 3, '{}')`, []string{"a-" + incA})
	c.exec(`INSERT INTO forge_claims (client_id, ids) VALUES ($1, '{5}')`, "a-"+incA)
	i := c.read(2)
	if i.Lost.Nothing || len(i.Lost.Ticks.Lost) != 1 || i.Lost.Ticks.Lost[0].Cron != "full" || !i.Lost.Ticks.Lost[0].Tick.Equal(c.at(500*time.Millisecond)) {
		t.Errorf("lost %+v", i.Lost.Ticks)
	}
	if len(i.Lost.Ticks.Waiting) == 0 || i.Lost.Ticks.Waiting[0].Cron != "late" || i.Jobs.Orphaned != 1 {
		t.Errorf("waiting %+v, orphaned %d", i.Lost.Ticks.Waiting, i.Jobs.Orphaned)
	}
	if !strings.HasSuffix(i.Summary, "1 due tick is not in the ledger. 1 due tick is not recorded yet. 1 job is still orphaned.") {
		t.Errorf("summary %q", i.Summary)
	}
}

func TestHandOver(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "stepped_down")
	c.exec(`INSERT INTO forge_nodes (node_id, incarnation) VALUES ('a', $1)`, incA)
	c.event(-80*time.Millisecond, "hand_over_asked", "a", "scheduler", 1, map[string]any{"by": "ann"})
	i := c.read(2)
	if i.Kind != incident.HandOver || i.Old.AskedBy != "ann" || i.Old.Process != "active" || !i.Lost.Nothing {
		t.Errorf("%+v, old %+v", i, *i.Old)
	}
	if want := "a stepped down, as ann requested. b became the leader 2s later. No tick was delayed. Nothing was lost."; i.Summary != want {
		t.Errorf("summary %q", i.Summary)
	}
}

func TestTerms(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "lease_expired")
	if i := c.read(0); i.Term != 2 {
		t.Errorf("the newest term is %d", i.Term)
	}
	if i := c.read(1); i.Kind != incident.FirstTerm || i.NextTerm != 2 || i.Old != nil {
		t.Errorf("the first term: %+v", i)
	}
	for _, missing := range []int64{3, 99} {
		if _, err := incident.New(c.pool, day).Read(t.Context(), "scheduler", missing); !errors.Is(err, incident.ErrNotFound) {
			t.Errorf("term %d: %v", missing, err)
		}
	}
	if _, err := incident.New(c.pool, day).Read(t.Context(), "nobody", 0); !errors.Is(err, incident.ErrNotFound) {
		t.Errorf("a role that nobody has led: %v", err)
	}
	c.cron("due", "@every 1m", -time.Minute)
	c.exec(`UPDATE forge_leaders SET node_id = NULL, incarnation = NULL, renewed_at = $1, lease_until = $1`, c.at(5*time.Second))
	for _, term := range []int64{0, 3} {
		if i := c.read(term); i.Kind != incident.NoLeader || i.Term != 3 || i.Old.Term != 2 || i.Gap() < time.Minute || i.Ticks != nil {
			t.Errorf("without a leader: %+v", i)
		} else if lost := i.Lost; lost.Nothing || lost.Ticks.WaitingCount < 9 || lost.Ticks.LostCount != 0 || !strings.HasSuffix(i.Summary, "due ticks are not recorded yet.") {
			t.Errorf("without a leader, of the ticks: %+v, %q", lost.Ticks, i.Summary)
		}
	}
}

func TestWhatRetentionRemoved(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "crashed")
	i, err := incident.New(c.pool, time.Minute).Read(t.Context(), "scheduler", 2)
	if err != nil || i.Lost.Nothing || i.Ticks != nil || !strings.Contains(i.Summary, "retention.cron_ticks") {
		t.Errorf("without the ledger: %v, %q", err, i.Summary)
	}
	c.exec(`DELETE FROM forge_events`)
	if i := c.read(2); i.EventsKept || i.Lost.Nothing || !strings.Contains(i.Summary, "retention.events") {
		t.Errorf("without the events: %q", i.Summary)
	}
}
