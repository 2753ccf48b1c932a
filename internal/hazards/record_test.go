package hazards

import (
	"log/slog"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/leaderstore"
)

// A prepared transaction and a replication slot that were left behind are each recorded
// once, also if the leader changes.
func TestRecorderRecordsEachOccurrenceOnce(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.ServerWith(t, map[string]string{"max_prepared_transactions": "1"}).URL())
	const name = "left"
	exec := func(sql string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec(`INSERT INTO forge_leaders (role, term, node_id, incarnation) VALUES ('metrics_aggregator', 1, 'a', 'one')
		ON CONFLICT (role) DO UPDATE SET term = 1, node_id = 'a', incarnation = 'one'`)
	exec(`BEGIN; INSERT INTO forge_events (type) VALUES ('left'); PREPARE TRANSACTION '` + name + `'`)
	exec(`SELECT pg_create_physical_replication_slot('` + name + `', true)`)

	fence := leaderstore.Fence{Role: "metrics_aggregator", Term: 1, NodeID: "a", Incarnation: "one"}
	for range 2 { // leaders
		recorder := NewRecorder(pool, time.Second, slog.New(slog.DiscardHandler))
		recorder.limits = limits{}
		var known []occurrence
		for range 2 {
			found, err := recorder.record(t.Context(), fence, known)
			if err != nil {
				t.Fatal(err)
			}
			known = found
		}
	}
	for _, subject := range []string{"prepared " + name, "slot " + name} {
		var n int
		var remedy string
		err := pool.QueryRow(t.Context(), `SELECT count(*), max(data ->> 'remedy') FROM forge_events
			WHERE type = 'hazard_found' AND data ->> 'subject' = $1 AND role = 'metrics_aggregator'`, subject).Scan(&n, &remedy)
		if err != nil || n != 1 || remedy == "" {
			t.Errorf("%s: %d events, remedy %q, %v", subject, n, remedy, err)
		}
	}
}
