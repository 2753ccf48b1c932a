package main

import (
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/bench/internal/rig"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/test/nodes"
)

// The bench starts this program again as its burners.
func TestMain(m *testing.M) {
	if os.Getenv(partEnv) != "" {
		rig.Main("overload", run)
	}
	os.Exit(m.Run())
}

// Two of the scenarios on a small scale. What they promise they promise here, too; how
// late ticks are says nothing.
func TestOverloadInShort(t *testing.T) {
	t.Parallel()
	binary, err := nodes.Build(t.TempDir(), "cmd/forge")
	if err != nil {
		t.Fatal(err)
	}
	var out, errs strings.Builder
	args := []string{
		"-forge", binary, "-only", "snapshot,backlog", "-for", "8s", "-calm", "1s", "-window", "8s", "-recovery", "60s",
		"-crons", "10", "-inserts", "5", "-burners", "8", "-completed", "5000", "-backlog", "20000", "-share", "0.5",
	}
	if err := run(t.Context(), args, &out, &errs); err != nil {
		t.Fatalf("%v\n%s%s", err, out.String(), errs.String())
	}
	t.Log(out.String())
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	var last rig.Result
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"lost", "terms", "recover_s", "recorded_share_snapshot", "recorded_share_backlog"} {
		if _, ok := last.Values[key]; !ok || last.Bench != "overload" {
			t.Errorf("no %s in %+v", key, last)
		}
	}
}

// Each statement is held up, by itself, and what the server says of its own accord is
// not.
func TestSlowWayHoldsUpEachStatement(t *testing.T) {
	t.Parallel()
	way, err := newSlowWay(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(way.close)
	conn, err := pgx.Connect(t.Context(), way.url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	const delay = 100 * time.Millisecond
	way.set(delay)
	began := time.Now()
	var n int
	if err := conn.QueryRow(t.Context(), "SELECT 1", pgx.QueryExecModeSimpleProtocol).Scan(&n); err != nil || time.Since(began) < delay {
		t.Errorf("a simple query took %v: %v", time.Since(began), err)
	}
	batch := &pgx.Batch{}
	for range 3 {
		batch.Queue("SELECT $1::int", 1)
	}
	began = time.Now()
	if err := conn.SendBatch(t.Context(), batch).Close(); err != nil || time.Since(began) < 3*delay {
		t.Errorf("three statements took %v: %v", time.Since(began), err)
	}
}

// A run is read only when the jobs of all ticks that it is judged by have ended, even
// of a late tick whose job was created after the moment up to which the run counts.
func TestSettleWaitsForJobsOfLateTicks(t *testing.T) {
	t.Parallel()
	c := &cluster{pool: pgtest.Pool(t)}
	until, err := c.clock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	insert := func(tick time.Time) {
		t.Helper()
		if err := c.exec(t.Context(), `
INSERT INTO river_job (kind, args, state, attempt, attempted_at, max_attempts, tags, metadata, created_at)
VALUES ('cron', '{}', 'running', 1, now(), 25, '{}', jsonb_build_object('forge:tick', $1::timestamptz), $2)`,
			tick, until.Add(time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	insert(until)
	if !c.says(t.Context(), closedSQL, until, waitingKind) {
		t.Error("a job of a tick that the run is not judged by holds up its end")
	}
	insert(until.Add(-time.Millisecond))
	if c.says(t.Context(), closedSQL, until, waitingKind) {
		t.Error("the run is read while a job that it is judged by still runs")
	}
	if err := c.exec(t.Context(), `UPDATE river_job SET state = 'completed', finalized_at = now()`); err != nil {
		t.Fatal(err)
	}
	if !c.says(t.Context(), closedSQL, until, waitingKind) {
		t.Error("the run is not read although all its jobs have ended")
	}
}

func TestUnknownOptionsAreRefused(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-only", "nothing"}, {"-for", "1ms"}, {"-crons", "0"}, {"-share", "2"}} {
		if _, err := parse(args, io.Discard); err == nil {
			t.Errorf("%v was accepted", args)
		}
	}
}
