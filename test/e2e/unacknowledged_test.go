package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

const (
	// oneAtATime has the second job claimed when the first has ended.
	oneAtATime = `
[node]
slots = 1
[jobs.noted]
kind = "shell"
command = ["sh", "-c", "echo $FORGE_ATTEMPT >> %[1]s/$FORGE_JOB_ID; until [ -e %[1]s/end ]; do sleep 0.05; done"]
`

	// refuseResultSQL lets the database refuse the result of a job.
	refuseResultSQL = `
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'refused'; END $$;
CREATE TRIGGER refuse BEFORE UPDATE ON river_job FOR EACH ROW
WHEN (old.id = %s AND new.state = 'completed') EXECUTE FUNCTION refuse()`
	acceptResultSQL = `DROP TRIGGER refuse ON river_job`

	waitingClaimSQL = `
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%SET state = ''running''%'`
	// searchSQL is when the node last searched for jobs that it holds, in microseconds; 0 if
	// its session has executed another statement since then.
	searchSQL = `
SELECT coalesce(max(extract(epoch FROM query_start) * 1000000), 0)::bigint FROM pg_stat_activity
WHERE datname = current_database() AND query LIKE '%id <> ALL (%' AND pid <> pg_backend_pid()`
)

// The database takes neither the result of an ended job nor the next claim, which times
// out. The job does not run again, although the node then searches for jobs that the
// database assigns to it. Without the record of unacknowledged results, the
// node runs the same attempt twice.
func TestJobWithUnacknowledgedResultDoesNotRunAgain(t *testing.T) {
	t.Parallel()
	t.Run("forge", func(t *testing.T) {
		t.Parallel()
		if runs := runsWhileResultWaits(t, ""); runs != "1\n1\n" {
			t.Errorf("the two jobs ran as attempts %q", runs)
		}
	})
	t.Run("without its record", func(t *testing.T) {
		t.Parallel()
		for range mutantStrikes {
			if runs := runsWhileResultWaits(t, "jobs/unacknowledged"); runs != "1\n1\n" {
				return
			}
		}
		t.Errorf("in %d rounds no attempt ran twice", mutantStrikes)
	})
}

// runsWhileResultWaits returns the attempts that ran of two jobs, of which the first has
// ended while the database refused its result.
func runsWhileResultWaits(t *testing.T, without string) string {
	t.Helper()
	dir := t.TempDir()
	c := newCluster(t, fmt.Sprintf(oneAtATime, dir)+unhurried)
	c.startProgram(failpointBinary(t), "a", "FORGE_FAILPOINTS_OFF="+without)
	defer c.stop("a")
	c.leader(0)
	first := c.enqueue("noted")
	eventually(t, "the first job runs", func() bool { return read(t, dir, first) != "" })
	second := c.enqueue("noted")
	c.exec(fmt.Sprintf(refuseResultSQL, first))
	freeSecond := c.lockJob(second)
	defer freeSecond()
	if err := os.WriteFile(filepath.Join(dir, "end"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	waiting := func() bool { return c.number(waitingClaimSQL) > 0 }
	eventually(t, "the claim waits", waiting)
	eventually(t, "the claim has timed out", func() bool { return !waiting() })
	last := int64(0)
	for range 2 { // the first search may be from before the claim
		eventually(t, "the node searches", func() bool {
			at := c.number(searchSQL)
			later := at > last
			last = max(last, at)
			return later
		})
	}
	freeSecond()
	c.exec(acceptResultSQL)
	eventually(t, "both jobs are completed", func() bool {
		return c.number(`SELECT count(*) FROM river_job WHERE state = 'completed' AND attempt = 1`) == 2
	})
	return read(t, dir, first) + read(t, dir, second)
}

// lockJob locks the row of a job until free is called.
func (c *cluster) lockJob(id string) (free func()) {
	c.t.Helper()
	tx, err := c.pool.Begin(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	var locked int64
	if err := tx.QueryRow(c.t.Context(), `SELECT id FROM river_job WHERE id = $1::text::bigint FOR UPDATE`, id).Scan(&locked); err != nil {
		c.t.Fatal(err)
	}
	return func() { rollBack(c.t, tx) }
}

func rollBack(t *testing.T, tx pgx.Tx) {
	t.Helper()
	if err := tx.Rollback(t.Context()); err != nil && !strings.Contains(err.Error(), "closed") {
		t.Error(err)
	}
}

// read returns the content of a file, or an empty string if it does not exist.
func read(t *testing.T, dir, name string) string {
	t.Helper()
	body, err := os.ReadFile(filepath.Join(dir, name)) //nolint:gosec // ours
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(body)
}
