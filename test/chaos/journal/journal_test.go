package journal

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/test/chaos/checker"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// installed returns a database with a free role and the journal.
func installed(t *testing.T) *pgxpool.Pool {
	t.Helper()
	db := pgtest.Pool(t)
	if _, err := db.Exec(t.Context(), "INSERT INTO forge_leaders (role) VALUES ('scheduler') ON CONFLICT DO NOTHING"); err != nil {
		t.Fatal(err)
	}
	if err := Install(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	return db
}

// stalledSQL takes a role's row, and stalls before it ends.
const stalledSQL = `
WITH taken AS (
    UPDATE forge_leaders SET node_id = 'n1', term = term + 1, acquired_at = clock_timestamp() WHERE role = 'scheduler' RETURNING role
), stalled AS MATERIALIZED (SELECT clock_timestamp() AS at FROM taken)
SELECT at FROM stalled, pg_sleep(0.01)`

func TestLeadHasTheTimeOfItsRow(t *testing.T) {
	t.Parallel()
	db := installed(t)
	var stalled, began, acquired, lead time.Time
	if err := db.QueryRow(t.Context(), stalledSQL).Scan(&stalled); err != nil {
		t.Fatal(err)
	}
	if err := db.QueryRow(t.Context(), "SELECT c.began, l.acquired_at, c.at FROM chaos_leads c JOIN forge_leaders l USING (role)").Scan(&began, &acquired, &lead); err != nil {
		t.Fatal(err)
	}
	if acquired.Before(began) || lead.Before(acquired) {
		t.Errorf("the statement began at %s and took the row at %s, and the journal has %s", began, acquired, lead)
	}
	if lead.After(stalled) {
		t.Errorf("the row was taken at %s at the latest, and the journal has %s", stalled, lead)
	}
}

// deletedSQL deletes the row of a term. forge's own trigger, which ends the term, is late.
const deletedSQL = `
INSERT INTO forge_leader_history (role, term, node_id, incarnation, acquired_at) VALUES ('scheduler', 1, 'n1', 'i', clock_timestamp());
UPDATE forge_leaders SET node_id = 'n1', term = 1 WHERE role = 'scheduler';
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.01); RETURN NULL; END $$;
CREATE TRIGGER forge_a_slow AFTER DELETE ON forge_leaders FOR EACH ROW EXECUTE FUNCTION slow();
DELETE FROM forge_leaders WHERE role = 'scheduler'`

func TestDeletedRowEndsTermWithinTheStatement(t *testing.T) {
	t.Parallel()
	db := installed(t)
	if _, err := db.Exec(t.Context(), deletedSQL); err != nil {
		t.Fatal(err)
	}
	var began, ended, at time.Time
	if err := db.QueryRow(t.Context(), "SELECT c.began, h.ended_at, c.at FROM chaos_leads c JOIN forge_leader_history h USING (role, term) WHERE c.deleted").Scan(&began, &ended, &at); err != nil {
		t.Fatal(err)
	}
	if ended.Before(began) || at.Before(ended) {
		t.Errorf("the statement began at %s and ended the term at %s, and the journal has %s", began, ended, at)
	}
}

const (
	waitingSQL = `INSERT INTO river_job (kind, queue, args, max_attempts) VALUES ('mail', 'mail', '{"tenant": "a"}', 5) RETURNING id`
	claimedSQL = `UPDATE river_job SET state = 'running', attempt = attempt + 1, attempted_at = $1 WHERE id = $2`
	againSQL   = `UPDATE river_job SET state = 'available' WHERE id = $1`
)

func TestRunsHaveTheStartsOfAttempts(t *testing.T) {
	t.Parallel()
	db := installed(t)
	var job int64
	if err := db.QueryRow(t.Context(), waitingSQL).Scan(&job); err != nil {
		t.Fatal(err)
	}
	starts := []time.Time{time.Date(2026, time.November, 20, 12, 0, 0, 123456000, time.UTC), time.Date(2026, time.November, 20, 12, 0, 1, 0, time.UTC)}
	for _, at := range starts {
		if _, err := db.Exec(t.Context(), claimedSQL, at, job); err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec(t.Context(), againSQL, job); err != nil {
			t.Fatal(err)
		}
	}
	h, err := Read(t.Context(), db, "")
	if err != nil {
		t.Fatal(err)
	}
	if len(h.Runs) != 2*len(starts) {
		t.Fatalf("the journal has %d beginnings and ends of %d attempts", len(h.Runs), len(starts))
	}
	for i, run := range h.Runs {
		if run.Began != (i%2 == 0) || !run.At.Equal(starts[i/2]) || run.Job != job || run.Kind != "mail" || run.Key != "a" {
			t.Errorf("%+v", run)
		}
	}
	h.Rates = map[string]checker.Rate{"mail": {Limit: 1, Per: time.Second}}
	found := map[checker.Kind]int{}
	for _, finding := range checker.Check(h) {
		found[finding.Kind]++
	}
	if found[checker.OverRate] != 1 || found[checker.WrongStart] != len(starts) {
		t.Errorf("found %v, want one window that is too full, and starts that nobody claimed then", found)
	}
}
