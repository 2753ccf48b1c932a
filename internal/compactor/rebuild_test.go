package compactor_test

import "testing"

// bloatSQL fills the indexes of output and of jobs, and leaves few entries.
const bloatSQL = `
INSERT INTO forge_job_logs (job_id, attempt, seq, stream, chunk)
SELECT 1, 1, seq, 'stdout', '' FROM generate_series(1, 20000) seq`

// The space that a backlog leaves in an index is freed, and the remains of an
// interrupted rebuild are dropped. An index in normal use does not change.
func TestGrownIndexesAreRebuilt(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.leastIndex = 64 << 10
	c.exec(bloatSQL)
	c.exec(`INSERT INTO forge_events (type) SELECT 'kept' FROM generate_series(1, 20000)`)
	c.exec(`DELETE FROM forge_job_logs WHERE seq > 5`)
	for _, table := range []string{"forge_job_logs", "forge_events"} {
		c.exec(`VACUUM ANALYZE ` + table)
	}
	c.exec(`CREATE INDEX forge_job_logs_at_ccnew ON forge_job_logs (at)`)
	c.exec(`UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'forge_job_logs_at_ccnew'::regclass`)
	before := c.count(`SELECT pg_relation_size('forge_job_logs_pkey')`)
	used := c.count(`SELECT pg_relation_filenode('forge_events_pkey')::bigint`)
	stop := c.lead(allOfAnHour, 1)
	c.await(`SELECT data ->> 'index' FROM forge_events WHERE type = 'index_rebuilt' AND term = 1 AND node_id = 'leader' ORDER BY 1`,
		[]string{"forge_job_logs_at", "forge_job_logs_pkey"})
	c.awaitPass() // a pass that finds nothing more
	stop()
	if after := c.count(`SELECT pg_relation_size('forge_job_logs_pkey')`); before < 64<<10 || after > before/4 {
		t.Errorf("the index took %d bytes, and takes %d", before, after)
	}
	if now := c.count(`SELECT pg_relation_filenode('forge_events_pkey')::bigint`); now != used {
		t.Error("an index was rebuilt that is used")
	}
	if n := c.count(`SELECT count(*) FROM pg_class WHERE relname LIKE 'forge_job_logs%_cc%'`); n != 0 {
		t.Errorf("%d indexes of interrupted rebuildings are left", n)
	}
}

// An index that is as large after a rebuild is not rebuilt for a day, and does not
// prevent rebuilds of others.
func TestIndexIsRebuiltOnceADay(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.leastIndex = 8 << 10 // every index of an empty table has that size and needs nothing
	stop := c.lead(allOfAnHour, 1)
	c.await(`SELECT least(count(*), 12)::text FROM forge_events WHERE type = 'index_rebuilt'`, []string{"12"})
	stop()
	if n := c.count(`SELECT max(n) FROM (SELECT count(*) AS n FROM forge_events WHERE type = 'index_rebuilt' GROUP BY data ->> 'index') AS times`); n != 1 {
		t.Errorf("an index was rebuilt %d times in a day", n)
	}
}
