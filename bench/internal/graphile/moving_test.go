package graphile

import (
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// The statement in docs/moving-graphile-worker.md moves the jobs that wait, each once.
func TestWaitingJobsMove(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/moving-graphile-worker.md")
	if err != nil {
		t.Fatal(err)
	}
	_, statement, _ := strings.Cut(string(page), "```sql\n")
	statement, _, found := strings.Cut(statement, "```")
	if !found {
		t.Fatal("the page has no statement")
	}
	url := pgtest.URL(t)
	program, err := Install(t.Context())
	if err == nil {
		err = program.Prepare(t.Context(), url)
	}
	if err != nil {
		t.Fatal(err)
	}
	pool := pgtest.Connect(t, url)
	exec := func(sql string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	exec(`
SELECT graphile_worker.add_job('send_mail', '{"to": "now"}'), graphile_worker.add_job('other', '{"to": "other"}'),
       graphile_worker.add_job('send_mail', '{"to": "later"}', run_at => now() + interval '1 day', job_key => 'later'),
       graphile_worker.add_job('send_mail', '{"to": "locked"}'), graphile_worker.add_job('send_mail', '{"to": "failed"}')`)
	exec(`UPDATE graphile_worker._private_jobs SET locked_at = now(), locked_by = 'w' WHERE payload ->> 'to' = 'locked'`)
	exec(`UPDATE graphile_worker._private_jobs SET attempts = max_attempts WHERE payload ->> 'to' = 'failed'`)
	exec(statement)
	exec(statement)
	for query, want := range map[string]string{
		`SELECT string_agg(kind || ' ' || (args ->> 'to') || ' ' || state, ', ' ORDER BY scheduled_at) FROM river_job`: "send_mail now available, send_mail later scheduled",
		`SELECT string_agg(payload ->> 'to', ', ' ORDER BY payload ->> 'to') FROM graphile_worker._private_jobs`:       "failed, locked, other",
	} {
		var got string
		if err := pool.QueryRow(t.Context(), query).Scan(&got); err != nil || got != want {
			t.Errorf("%s: got %q, %v; want %q", query, got, err, want)
		}
	}
}
