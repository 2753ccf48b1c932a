package cluster

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forge-scheduler/forge/internal/incident"
)

// reports counts the reads of reports on terms that began some time ago.
type reports struct {
	age   time.Duration
	reads int
}

func (r *reports) Read(_ context.Context, role string, term int64) (incident.Incident, error) {
	r.reads++
	now := time.Now()
	return incident.Incident{Role: role, Term: term, ElectedAt: now.Add(-r.age), Now: now}, nil
}

func TestIncidentsAreKept(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		age, pause time.Duration
		term       int64
		want       int
	}{
		"a fresh one for a moment":   {0, 500 * time.Millisecond, 1, 1},
		"a fresh one grows":          {0, 2 * time.Second, 1, 2},
		"a settled one for longer":   {time.Hour, 30 * time.Second, 1, 1},
		"not for good":               {time.Hour, 2 * time.Minute, 1, 2},
		"the newest may be replaced": {time.Hour, 2 * time.Second, 0, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				source := &reports{age: test.age}
				kept := newIncidentCache(source)
				for range 2 {
					if got, err := kept.Get(t.Context(), "r", test.term); err != nil || got.Term != test.term {
						t.Errorf("%+v, %v", got, err)
					}
					time.Sleep(test.pause)
				}
				if source.reads != test.want {
					t.Errorf("%d reads, want %d", source.reads, test.want)
				}
			})
		})
	}
}

func TestKeptIncidentsAreBounded(t *testing.T) {
	t.Parallel()
	kept := newIncidentCache(&reports{age: time.Hour})
	for term := range int64(3 * keptIncidents) {
		if _, err := kept.Get(t.Context(), "r", term+1); err != nil {
			t.Fatal(err)
		}
	}
	if len(kept.kept) > keptIncidents {
		t.Errorf("%d reports are kept", len(kept.kept))
	}
}
