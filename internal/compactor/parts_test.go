package compactor_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/compactor"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

// ticks lists the ledger by cron and age in hours, as TestExpiredPartitionsAreDropped inserts
// it.
const ticks = `SELECT cron || ' ' || round(extract(epoch FROM now() - tick) / 3600) FROM forge_cron_ticks ORDER BY cron, tick DESC`

// oldTicks have exceeded a retention of an hour, except the last hours of busy.
const oldTicks = `
INSERT INTO forge_cron_ticks (cron, tick, verdict, term, node_id, recorded_at, last_tick)
SELECT 'busy', now() - h * interval '1 hour', 'fired', 1, 'a', now() - h * interval '1 hour', NULL::timestamptz FROM generate_series(0, 30) h
UNION ALL SELECT 'rare', now() - h * interval '1 hour', 'failed', 1, 'a', now() - h * interval '1 hour', NULL FROM unnest('{12,18}'::int[]) h
UNION ALL SELECT 'queued', now() - interval '15 hours', 'queued', 1, 'a', now() - interval '15 hours', NULL
UNION ALL SELECT 'queued', now(), 'fired', 1, 'a', now(), NULL
UNION ALL SELECT 'outage', now() - interval '14 hours', 'skipped_window', 1, 'a', now() - interval '13 hours', now() - interval '30 minutes'
UNION ALL SELECT 'outage', now(), 'fired', 1, 'a', now(), NULL
UNION ALL SELECT 'backfill', now() - interval '16 hours', 'backfilled', 0, '', now() - interval '10 minutes', NULL
UNION ALL SELECT 'backfill', now(), 'fired', 1, 'a', now(), NULL`

// stay are the rows of oldTicks that have to be kept, however the others are
// deleted.
var stay = []string{"backfill 0", "backfill 16", "outage 0", "outage 14", "queued 0", "queued 15", "rare 12"}

// The bounds of partitions are read correctly in a session that shows times in local style.
func TestBoundsInLocalStyle(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	stop := c.lead(allOfAnHour, 1)
	c.awaitPass()
	stop()
	want := c.layout("forge_cron_ticks")
	for _, style := range []string{"SQL, DMY", "Postgres, MDY", "German"} {
		err := pgx.BeginFunc(t.Context(), c.pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), `SELECT set_config('datestyle', $1, true), set_config('timezone', 'Asia/Shanghai', true)`, style); err != nil {
				return err
			}
			got, err := compactor.NewStore(tx).Layout(t.Context(), "forge_cron_ticks")
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", style, diff)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// While the synchronous replica is away, new partitions block neither readers nor writers.
func TestPartitionsDoNotWaitForTheReplica(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t)
	pool := pgtest.Connect(t, server.URL())
	layout, err := compactor.NewStore(pool).Layout(t.Context(), "forge_cron_ticks")
	if err != nil {
		t.Fatal(err)
	}
	last, end := layout[len(layout)-1], time.Now().Add(hour).Truncate(hour)
	server.MissReplica()
	defer server.RestoreReplica()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		return compactor.NewStore(tx).Cut(ctx, "forge_cron_ticks", last, []time.Time{end}, time.Second)
	})
	if err != nil {
		t.Errorf("new partitions: %v", err)
	}
	if err := pool.QueryRow(ctx, `SELECT count(*) FROM forge_cron_ticks`).Scan(new(int)); err != nil {
		t.Errorf("read the ledger: %v", err)
	}
}

func TestPartitionsAreCreatedInAdvance(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.exec(oldTicks) // existing rows do not move
	keep := allOfAnHour
	keep.CronTicks = 30 * 24 * hour
	stop := c.lead(keep, 1)
	c.awaitPass()
	stop()
	for table, width := range map[string]time.Duration{"forge_cron_ticks": 7 * 24 * hour, "forge_metrics_cluster": hour} {
		layout := c.layout(table)
		last := layout[len(layout)-1]
		if ahead := time.Until(last.From); ahead < 2*width || ahead > 4*width {
			t.Errorf("%s has partitions for the next %s, want two to four of %s", table, ahead, width)
		}
		for i, p := range layout[1 : len(layout)-1] {
			if !p.From.Equal(layout[i].To) || p.To.Sub(p.From) != width || !p.From.Equal(p.From.Truncate(width)) {
				t.Errorf("%s: %s is from %s to %s, after one that ends at %s", table, p.Name, p.From, p.To, layout[i].To)
			}
		}
	}
	c.exec(`INSERT INTO forge_cron_ticks (cron, tick, verdict, term, node_id)
		SELECT 'far', now() + w * interval '1 week', 'fired', 1, 'a' FROM unnest('{-500,1,2,500}'::int[]) w`)
	layout := c.layout("forge_cron_ticks")
	want := []string{layout[0].Name, layout[1].Name, layout[2].Name, layout[len(layout)-1].Name}
	if diff := cmp.Diff(want, c.rows(`SELECT tableoid::regclass::text FROM forge_cron_ticks WHERE cron = 'far' ORDER BY tick`)); diff != "" {
		t.Errorf("ticks are in (-want +got):\n%s", diff)
	}
	stop = c.lead(keep, 2)
	c.awaitPass()
	stop()
	if diff := cmp.Diff(bounds(layout), bounds(c.layout("forge_cron_ticks"))); diff != "" {
		t.Errorf("a later pass changed the partitions:\n%s", diff)
	}
}

// bounds returns the bounds that do not depend on the rows in the partitions.
func bounds(layout compactor.Layout) []string {
	var all []string
	for _, p := range layout {
		all = append(all, fmt.Sprint(p.Name, " from ", p.From.UTC(), " to ", p.To.UTC()))
	}
	return all
}

// Large partitions are dropped as a whole, and rows that have to be kept are kept.
// Unexpired rows do not change, and triggers do not treat moved rows as new.
func TestExpiredPartitionsAreDropped(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.largePartition = 1
	c.cutHours("forge_cron_ticks")
	c.cutHours("forge_metrics_cluster")
	c.exec(oldTicks)
	c.exec(`CREATE TABLE told (cron text)`)
	c.exec(`CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO told VALUES (NEW.cron); RETURN NULL; END $$`)
	c.exec(`CREATE TRIGGER tell AFTER INSERT ON forge_cron_ticks FOR EACH ROW EXECUTE FUNCTION tell()`)
	c.exec(`INSERT INTO forge_metrics_cluster (metric, at, value, term)
		SELECT 'm', now() - h * interval '1 hour', 1, 1 FROM generate_series(0, 30) h`)
	cut := time.Now().Truncate(hour).Add(-hour) // no later row is in an expired partition
	stop := c.lead(allOfAnHour, 1)
	c.awaitPass()
	stop()
	layout := c.layout("forge_cron_ticks")
	if first := layout[0]; first.To.Before(cut.Add(-2*hour)) || first.To.After(cut.Add(hour)) || !strings.Contains(first.Name, "_until_") {
		t.Errorf("the first partition is %+v, want one that ends an hour before %s or so", first, cut)
	}
	left := c.rows(`SELECT cron || ' ' || round(extract(epoch FROM now() - tick) / 3600) FROM forge_cron_ticks WHERE cron <> 'busy' ORDER BY cron, tick DESC`)
	if diff := cmp.Diff(stay, left); diff != "" {
		t.Errorf("ticks (-want +got):\n%s", diff)
	}
	for _, table := range []string{"forge_cron_ticks WHERE cron = 'busy' AND tick", "forge_metrics_cluster WHERE at"} {
		if n := c.count(`SELECT count(*) FROM ` + table + ` > now() - interval '61 minutes'`); n != 2 {
			t.Errorf("%d rows of the last hour are left in %s, want 2", n, table)
		}
		if n := c.count(`SELECT count(*) FROM ` + table + ` < now() - interval '4 hours'`); n != 0 {
			t.Errorf("%d old rows are left in %s", n, table)
		}
	}
	if n := c.count(`SELECT count(*) FROM told`); n != 0 {
		t.Errorf("%d rows that were moved counted as new", n)
	}
	c.exec(`INSERT INTO forge_cron_ticks (cron, tick, verdict, term, node_id) VALUES ('old', now() - interval '9 hours', 'triggered', 0, '')`)
	if n := c.count(`SELECT count(*) FROM told`); n != 1 {
		t.Errorf("a trigger fired %d times on what replaced the partitions, want once", n)
	}
}

// A change of partitions is one transaction: an interrupted one leaves nothing, and
// the next leader repeats it.
func TestInterruptedPartitionChangeLeavesNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.largePartition = 1
	c.cutHours("forge_cron_ticks")
	c.exec(oldTicks)
	before, layout := c.rows(ticks), c.layout("forge_cron_ticks")
	tx, err := c.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	nothing := func(context.Context, string, string) (int64, error) { return 0, nil }
	if _, err := compactor.NewStore(tx).Retire(t.Context(), "forge_cron_ticks", layout[:9], time.Minute, nothing); err != nil {
		t.Fatal(err)
	}
	c.exec(`SELECT pg_terminate_backend($1)`, tx.Conn().PgConn().PID())
	_ = tx.Rollback(context.Background())
	c.await(ticks, before)
	// The process may also die between proving and cutting.
	last := layout[len(layout)-1]
	c.exec(`ALTER TABLE ` + last.Name + ` ADD CONSTRAINT forge_ends CHECK (tick < now() + interval '1 minute') NOT VALID`)
	stop := c.lead(allOfAnHour, 1)
	c.awaitPass()
	stop()
	c.exec(`INSERT INTO forge_cron_ticks (cron, tick, verdict, term, node_id)
		SELECT 'later', now() + h * interval '1 hour', 'fired', 1, 'a' FROM generate_series(1, 400, 3) h`)
	if diff := cmp.Diff(stay, c.rows(`SELECT cron || ' ' || round(extract(epoch FROM now() - tick) / 3600)
		FROM forge_cron_ticks WHERE cron NOT IN ('busy', 'later') ORDER BY cron, tick DESC`)); diff != "" {
		t.Errorf("ticks (-want +got):\n%s", diff)
	}
}

// A long time without compactors leaves many rows in the last partition.
func TestLargeLastPartitionIsCut(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.largePartition = 1
	c.exec(oldTicks)
	c.exec(`INSERT INTO forge_cron_ticks (cron, tick, verdict, term, node_id) VALUES ('early', now() + interval '9 hours', 'fired', 1, 'a')`)
	keep := allOfAnHour
	keep.CronTicks = 40 * hour
	before := c.rows(ticks)
	stop := c.lead(keep, 1)
	c.awaitPass()
	stop()
	if diff := cmp.Diff(before, c.rows(ticks)); diff != "" {
		t.Errorf("ticks (-before +after):\n%s", diff)
	}
	if layout := c.layout("forge_cron_ticks"); len(layout) < 2 || time.Until(layout[0].To) < 9*hour {
		t.Errorf("partitions: %+v", layout)
	}
	if n := c.count(`SELECT count(*) FROM pg_constraint WHERE conname = 'forge_ends'`); n != 0 {
		t.Error("what proved where the partition ends is left")
	}
}

// If too many rows have to be kept to move them while others wait, the other rows
// are deleted individually.
func TestCrowdedPartition(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.largePartition = 1
	c.cutHours("forge_cron_ticks")
	c.exec(oldTicks)
	c.exec(`INSERT INTO forge_cron_ticks (cron, tick, verdict, term, node_id)
		SELECT 'filled', now() - interval '15 hours' - s * interval '1 millisecond', 'backfilled', 0, '' FROM generate_series(0, 10000) s`)
	stop := c.lead(allOfAnHour, 1)
	c.awaitPass()
	stop()
	if n := c.count(`SELECT count(*) FROM forge_cron_ticks WHERE cron = 'filled'`); n != 10001 {
		t.Errorf("%d of 10001 backfilled ticks are left", n)
	}
	if first := c.layout("forge_cron_ticks")[0]; first.Name != "forge_cron_ticks_first" {
		t.Errorf("they were moved: the first partition is %s", first.Name)
	}
	left := c.rows(`SELECT cron || ' ' || round(extract(epoch FROM now() - tick) / 3600) FROM forge_cron_ticks WHERE cron NOT IN ('busy', 'filled') ORDER BY cron, tick DESC`)
	if diff := cmp.Diff(stay, left); diff != "" {
		t.Errorf("ticks (-want +got):\n%s", diff)
	}
	if n := c.count(`SELECT count(*) FROM forge_cron_ticks WHERE cron = 'busy' AND tick < now() - interval '3 hours'`); n != 0 {
		t.Errorf("%d old ticks are left", n)
	}
}

// A change of partitions waits for a long reader such as a backup, and blocks
// nothing else.
func TestPartitionChangeWaitsForReader(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.largePartition = 1 // so that every step that waits for a lock is tried
	reader, err := c.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reader.Rollback(context.Background()) }()
	if _, err := reader.Exec(t.Context(), `LOCK TABLE forge_cron_ticks IN ACCESS SHARE MODE`); err != nil {
		t.Fatal(err)
	}
	stop := c.lead(allOfAnHour, 1)
	defer stop()
	c.await(`SELECT DISTINCT jsonb_object_keys(failed) FROM forge_compactions`, []string{"cron_ticks"})
	if n := len(c.layout("forge_metrics_cluster")); n < 2 {
		t.Errorf("the other table has %d partitions", n)
	}
	if err := reader.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.await(`SELECT 'made' FROM pg_inherits WHERE inhparent = 'forge_cron_ticks'::regclass HAVING count(*) > 1`, []string{"made"})
}

// For a user that may only read and write, rows are deleted individually in any
// layout.
func TestUserWithoutTableOwnership(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.cutHours("forge_cron_ticks")
	c.exec(oldTicks)
	layout := c.layout("forge_cron_ticks")
	role := "forge_test_" + strings.ToLower(rand.Text()[:12])
	c.exec(fmt.Sprintf(`CREATE ROLE %s LOGIN PASSWORD 'x'`, role))
	t.Cleanup(func() { c.exec(`DROP OWNED BY ` + role); c.exec(`DROP ROLE ` + role) })
	for _, table := range c.rows(`SELECT oid::regclass::text FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition`) {
		c.exec(fmt.Sprintf(`GRANT SELECT, INSERT, UPDATE, DELETE ON %s TO %s`, table, role))
	}
	c.exec(`GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO ` + role)
	config := c.pool.Config()
	config.ConnConfig.User, config.ConnConfig.Password = role, "x"
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	user := *c
	user.pool = pool
	c.acquire(1)
	stop := user.lead(allOfAnHour, 1)
	want := append([]string{"backfill 0", "backfill 16", "busy 0"}, stay[2:]...)
	c.await(ticks, want)
	c.awaitPass()
	stop()
	if diff := cmp.Diff(want, c.rows(ticks)); diff != "" {
		t.Errorf("a later pass deleted more (-want +got):\n%s", diff)
	}
	c.await(`SELECT DISTINCT coalesce(failed ->> 'cron_ticks', '') FROM forge_compactions`, []string{""})
	if diff := cmp.Diff(bounds(layout), bounds(c.layout("forge_cron_ticks"))); diff != "" {
		t.Errorf("partitions:\n%s", diff)
	}
}

// A version of forge from before the partitions must not delete by ctid, which is
// not unique across partitions.
func TestDeletingByCtidIsRefused(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.cutHours("forge_cron_ticks")
	c.exec(oldTicks)
	before := c.rows(ticks)
	for _, sql := range []string{
		`DELETE FROM forge_cron_ticks WHERE ctid = ANY (ARRAY (
			SELECT ctid FROM forge_cron_ticks WHERE tick < $1 ORDER BY tick LIMIT $2 FOR UPDATE SKIP LOCKED))`,
		`DELETE FROM forge_metrics_cluster WHERE ctid = ANY (ARRAY (
			SELECT ctid FROM forge_metrics_cluster WHERE at < $1 ORDER BY at LIMIT $2))`,
	} {
		_, err := c.pool.Exec(t.Context(), sql, time.Now().Add(-hour), 1000)
		if refused, ok := errors.AsType[*pgconn.PgError](err); !ok || refused.Code != "0A000" {
			t.Errorf("%s: %v, want it refused", sql, err)
		}
	}
	if diff := cmp.Diff(before, c.rows(ticks)); diff != "" {
		t.Errorf("ticks (-before +after):\n%s", diff)
	}
	c.exec(`DELETE FROM forge_cron_ticks WHERE cron = 'busy'`)
}

func (c *cluster) layout(table string) compactor.Layout {
	c.t.Helper()
	layout, err := compactor.NewStore(c.pool).Layout(c.t.Context(), table)
	if err != nil {
		c.t.Fatal(err)
	}
	return layout
}

// cutHours creates a partition for each of the last twenty hours, as passes would
// have.
func (c *cluster) cutHours(table string) {
	c.t.Helper()
	var cuts []time.Time
	for h := 20; h >= 0; h-- {
		cuts = append(cuts, time.Now().Truncate(hour).Add(-time.Duration(h)*hour))
	}
	layout := c.layout(table)
	err := pgx.BeginFunc(c.t.Context(), c.pool, func(tx pgx.Tx) error {
		return compactor.NewStore(tx).Cut(c.t.Context(), table, layout[len(layout)-1], cuts, time.Minute)
	})
	if err != nil {
		c.t.Fatal(err)
	}
}
