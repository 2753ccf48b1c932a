package leaderstore_test

import (
	"testing"

	"github.com/forge-scheduler/forge/leaderstore"
)

// A confirmed renewal with a note records it, with both strategies. A refused renewal does
// not.
func TestRenewalRecordsItsNote(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.open("a")
	c.win(a)
	b := c.openLease("b")
	if _, err := b.AcquireTerm(t.Context(), "log_compactor", leaderstore.SessionEnd{}); err != nil {
		t.Fatal(err)
	}
	const note = `{"renewals": 7}`
	for term, want := range map[int64]int{1: 1, 2: 0} {
		for role, renew := range map[string]func(leaderstore.Held) ([]leaderstore.Renewed, error){
			role: func(h leaderstore.Held) ([]leaderstore.Renewed, error) {
				return a.Renew(t.Context(), []leaderstore.Held{h})
			},
			"log_compactor": func(h leaderstore.Held) ([]leaderstore.Renewed, error) {
				return b.Renew(t.Context(), []leaderstore.Held{h})
			},
		} {
			for _, held := range []leaderstore.Held{{Role: role, Term: term, Note: note}, {Role: role, Term: term}} {
				if still, err := renew(held); err != nil || len(still) != want {
					t.Errorf("%s term %d: renewed %v, %v", role, term, still, err)
				}
			}
		}
	}
	if n := c.count(`SELECT count(*) FROM forge_events WHERE type = 'lease_renewed' AND term = 1 AND data ->> 'renewals' = '7'`); n != 2 {
		t.Errorf("%d events of the two terms that were renewed", n)
	}
	if n := c.count(`SELECT count(*) FROM forge_events WHERE type = 'lease_renewed'`); n != 2 {
		t.Errorf("%d events in all", n)
	}
}
