package journal

import (
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// stalledSQL takes a role's row, and stalls before it ends.
const stalledSQL = `
WITH taken AS (
    UPDATE forge_leaders SET node_id = 'n1', term = term + 1, acquired_at = clock_timestamp() WHERE role = 'scheduler' RETURNING role
), stalled AS MATERIALIZED (SELECT clock_timestamp() AS at FROM taken)
SELECT at FROM stalled, pg_sleep(0.01)`

func TestLeadHasTheTimeOfItsRow(t *testing.T) {
	t.Parallel()
	db := pgtest.Pool(t)
	if _, err := db.Exec(t.Context(), "INSERT INTO forge_leaders (role) VALUES ('scheduler') ON CONFLICT DO NOTHING"); err != nil {
		t.Fatal(err)
	}
	if err := Install(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	var stalled, lead time.Time
	if err := db.QueryRow(t.Context(), stalledSQL).Scan(&stalled); err != nil {
		t.Fatal(err)
	}
	if err := db.QueryRow(t.Context(), "SELECT at FROM chaos_leads").Scan(&lead); err != nil {
		t.Fatal(err)
	}
	if lead.After(stalled) {
		t.Errorf("the row was taken at %s at the latest, and the journal has %s", stalled, lead)
	}
}
