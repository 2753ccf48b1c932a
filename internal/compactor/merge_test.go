package compactor_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/forge-scheduler/forge/internal/compactor"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/leaderstore"
)

const (
	// linesSQL adds 40 finished jobs, each with an attempt of 30 chunks.
	linesSQL = `
WITH jobs AS (
    INSERT INTO river_job (id, kind, args, max_attempts, attempt, state, finalized_at)
    SELECT i, 'k', '{}', 1, 1, 'completed', now() FROM generate_series(1, 40) i)
INSERT INTO forge_job_logs (job_id, attempt, seq, stream, chunk, at)
SELECT i, 1, seq, 'stdout', 'line ' || seq || ' of job ' || i || E'\n', now() - interval '10 minutes'
FROM generate_series(1, 40) i, generate_series(1, 30) seq`

	// deposeSQL ends term 1 in the transaction that adds packs first.
	deposeSQL = `
CREATE FUNCTION depose() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE forge_leaders SET term = 2 WHERE role = 'log_compactor';
    RETURN NULL;
END $$;
CREATE TRIGGER depose AFTER INSERT ON forge_job_log_packs FOR EACH STATEMENT EXECUTE FUNCTION depose()`

	looseNumberSQL = `SELECT count(*) FROM forge_job_logs`
	looseSQL       = `SELECT count(*)::text FROM forge_job_logs`
)

// output returns the output of all attempts as readers see it, one text per job.
func (c *cluster) output() (jobs []string) {
	c.t.Helper()
	for id := int64(1); id <= 40; id++ {
		chunks, err := jobstore.New(c.pool).Logs(c.t.Context(), id, 1, 0)
		if err != nil {
			c.t.Fatal(err)
		}
		text := ""
		for _, chunk := range chunks {
			text += chunk.Chunk
		}
		jobs = append(jobs, text)
	}
	return jobs
}

func TestMergesEndedAttempts(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.quiet = time.Minute
	c.exec(linesSQL)
	c.exec(`UPDATE river_job SET state = 'running', finalized_at = NULL WHERE id = 7`)
	before := c.output()
	defer c.lead(allOfAnHour, 1)()
	c.await(looseSQL, []string{"30"})
	if diff := cmp.Diff(before, c.output()); diff != "" {
		t.Errorf("output (-before +after):\n%s", diff)
	}
	c.exec(`UPDATE river_job SET state = 'completed', finalized_at = now() WHERE id = 7`)
	c.await(looseSQL, []string{"0"})
	if diff := cmp.Diff(before, c.output()); diff != "" {
		t.Errorf("output (-before +after):\n%s", diff)
	}
}

// A merge that ends after any batch loses and duplicates nothing; the next leader
// continues it.
func TestInterruptedMergeLosesNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.quiet, c.pause = time.Minute, time.Hour // after the first batch
	c.exec(linesSQL)
	before := c.output()
	stop := c.lead(allOfAnHour, 1)
	c.await(`SELECT 'begun' FROM forge_job_logs HAVING count(*) < 40 * 30`, []string{"begun"})
	stop()
	if got := c.count(`SELECT count(*) FROM forge_job_logs`); got != (40-batch)*30 {
		t.Errorf("%d chunks are left, want all but those of %d attempts", got, batch)
	}
	if diff := cmp.Diff(before, c.output()); diff != "" {
		t.Errorf("output in the midst (-before +after):\n%s", diff)
	}
	c.pause = time.Millisecond
	defer c.lead(allOfAnHour, 2)()
	c.await(looseSQL, []string{"0"})
	if diff := cmp.Diff(before, c.output()); diff != "" {
		t.Errorf("output at the end (-before +after):\n%s", diff)
	}
}

// A session that runs a statement counts as working. A session that waits for a
// lock, as deputies do, does not.
func TestOthersAtWork(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	others := func() bool {
		t.Helper()
		var others bool
		if err := c.pool.QueryRow(t.Context(), compactor.OthersSQL).Scan(&others); err != nil {
			t.Fatal(err)
		}
		return others
	}
	if others() {
		t.Error("others work in an empty database")
	}
	holder := c.session()
	if _, err := holder.Exec(t.Context(), `SELECT pg_advisory_lock(7)`); err != nil {
		t.Fatal(err)
	}
	c.statement(`SELECT pg_advisory_lock(7)`)
	c.await(`SELECT count(*)::text FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`, []string{"1"})
	if others() {
		t.Error("who waits for a lock is taken for one at work")
	}
	c.statement(`SELECT pg_sleep(600)`)
	c.await(`SELECT count(*)::text FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'`, []string{"1"})
	if !others() {
		t.Error("a statement that runs is not seen")
	}
}

// session opens a separate connection.
func (c *cluster) session() *pgx.Conn {
	c.t.Helper()
	conn, err := pgx.ConnectConfig(c.t.Context(), c.pool.Config().ConnConfig)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// statement runs a statement until the end of the test.
func (c *cluster) statement(sql string) {
	c.t.Helper()
	conn := c.session()
	ctx, stop := context.WithCancel(c.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = conn.Exec(ctx, sql) // ends with ctx
	}()
	c.t.Cleanup(func() { stop(); <-done })
}

// The first batch deposes its leader when it commits, after the sweeps that would
// have detected it.
func TestDeposedMergesNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.quiet = time.Minute
	c.exec(linesSQL)
	c.acquire(1)
	c.exec(deposeSQL)
	if err := c.compactor(allOfAnHour).Lead(t.Context(), fence(1)); !errors.Is(err, leaderstore.ErrDeposed) {
		t.Errorf("Lead of an old term = %v, want ErrDeposed", err)
	}
	if got := c.count(`SELECT count(*) FROM forge_job_logs`); got != (40-batch)*30 {
		t.Errorf("%d chunks are left, want all but those of %d attempts: a deposed leader merged", got, batch)
	}
}

// A pass reports the output that it cannot merge, and merges the rest.
func TestDamagedPacksAreReported(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.quiet = time.Minute
	c.exec(linesSQL)
	c.exec(`INSERT INTO forge_job_log_packs (job_id, attempt, first_seq, last_seq, chunks, text_bytes, at, pack)
		SELECT i, 1, 1, 1, 1, 1, now(), 'damaged' FROM generate_series(1, 7) i`)
	stop := c.lead(allOfAnHour, 1)
	c.await(`SELECT least(count(*), 1)::text FROM forge_compactions`, []string{"1"})
	stop()
	status, err := compactor.NewStore(c.pool).Status(t.Context(), 1_000_000)
	if err != nil {
		t.Fatal(err)
	}
	first := status.Passes[len(status.Passes)-1]
	if said := first.Failed["merge"]; first.Chunks != 33*30 || !strings.Contains(said, "a pack of attempt 1 of job 5 cannot be read") || !strings.Contains(said, "and 2 more") {
		t.Errorf("merged %d chunks, failed: %v", first.Chunks, first.Failed)
	}
	if got := c.count(looseNumberSQL); got != 7*30 {
		t.Errorf("%d chunks are left, want those beside the damaged packs", got)
	}
}

func TestPassesAreRecorded(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.quiet = time.Minute
	c.exec(linesSQL)
	c.exec(`INSERT INTO forge_events (type, at) VALUES ('old', now() - interval '2 hours'), ('older', now() - interval '3 hours')`)
	c.exec(`ALTER TABLE river_queue RENAME TO away`)
	stop := c.lead(allOfAnHour, 1)
	c.await(`SELECT least(count(*), 2)::text FROM forge_compactions`, []string{"2"}) // only the first found something
	if size := testutil.ToFloat64(c.metrics.TableBytes.WithLabelValues("forge_job_log_packs")); size <= 0 {
		t.Errorf("forge_table_bytes says %v", size)
	}
	stop()
	status, err := compactor.NewStore(c.pool).Status(t.Context(), 1_000_000)
	if err != nil {
		t.Fatal(err)
	}
	first, second := status.Passes[len(status.Passes)-1], status.Passes[len(status.Passes)-2]
	c.demandCounted(len(status.Passes))
	if diff := cmp.Diff(map[string]int64{"events": 2}, first.Removed); diff != "" {
		t.Errorf("removed (-want +got):\n%s", diff)
	}
	if len(first.Failed) != 1 || first.Failed["queues"] == "" {
		t.Errorf("failed: %v, want queues", first.Failed)
	}
	if first.Chunks != 40*30 || first.Packs != 40 || first.TextBytes == 0 || first.PackBytes == 0 || second.Chunks != 0 || len(second.Removed) != 0 {
		t.Errorf("merged %+v, then %+v", first, second)
	}
	if first.NodeID != "leader" || first.Term != 1 || first.EndedAt.Before(first.StartedAt) || !first.NextAt.Equal(first.StartedAt.Add(10*time.Millisecond)) {
		t.Errorf("pass of %s in term %d from %v to %v, next at %v", first.NodeID, first.Term, first.StartedAt, first.EndedAt, first.NextAt)
	}
	if !slices.ContainsFunc(status.Tables, func(t compactor.Table) bool {
		return t.Name == "forge_job_log_packs" && t.Bytes > t.IndexBytes && t.IndexBytes > 0
	}) {
		t.Errorf("sizes: %+v", status.Tables)
	}
}

// demandCounted compares the metrics with the results of TestPassesAreRecorded
// after a number of passes; the last pass may not be counted yet.
func (c *cluster) demandCounted(passes int) {
	c.t.Helper()
	m := c.metrics
	counted := testutil.ToFloat64(m.CompactorPasses.WithLabelValues("incomplete"))
	if removed := testutil.ToFloat64(m.CompactorRemoved.WithLabelValues("events")); removed != 2 || counted < float64(passes-1) {
		c.t.Errorf("counted %v rows of events and %v of %d passes", removed, counted, passes)
	}
	chunks, text, packed := testutil.ToFloat64(m.CompactorChunks), testutil.ToFloat64(m.CompactorTextBytes), testutil.ToFloat64(m.CompactorPackBytes)
	if chunks != 40*30 || text <= packed || packed <= 0 {
		c.t.Errorf("counted %v chunks, %v bytes that became %v", chunks, text, packed)
	}
	if n := testutil.CollectAndCount(m.TableBytes) + testutil.CollectAndCount(m.CompactorPassedAt); n != 0 {
		c.t.Errorf("%d measures are left after the lead", n)
	}
	if n := testutil.CollectAndCount(m.CompactorRemoved); n < 15 {
		c.t.Errorf("%d kinds of rows are counted from 0 on", n)
	}
}
