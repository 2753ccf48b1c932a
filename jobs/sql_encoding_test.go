package jobs_test

import (
	"testing"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/jobs"
)

// A statement is UTF-8, whatever client_encoding the role or the database has.
func TestSQLStatementIsUTF8(t *testing.T) {
	t.Parallel()
	job := once(config.Job{Kind: config.KindSQL, Statement: `SELECT length('é✓') AS n`})
	n := startNode(t, map[string]config.Job{"text": job}, func(o *jobs.Options) {
		const sql = `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET client_encoding = LATIN1', current_database()); END $$`
		if _, err := pgtest.Connect(t, o.ClusterURL).Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	})
	done := n.finish(t, n.work(t, jobstore.NewJob{Kind: "text"}), "completed", "discarded")
	if got := n.logs(t, done.ID, 1, jobstore.StreamStdout); got != "n\n2\n" {
		t.Errorf("output is %q: %s", got, done.LastError)
	}
}
