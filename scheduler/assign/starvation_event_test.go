package assign_test

import (
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/scheduler/assign"
)

// starvationEvents returns the types of the events about waits for limits, and their data.
func (c *cluster) starvationEvents(t *testing.T) (types []string, about []eventstore.LimitWait) {
	t.Helper()
	events, err := eventstore.New(c.pool).Find(t.Context(), eventstore.Filter{Types: []string{eventstore.LimitStarving, eventstore.LimitRecovered}, Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	for _, event := range events {
		data, err := eventstore.ReadLimitWait(event.Data)
		if err != nil || event.Role != "scheduler" || event.NodeID != "leader" {
			t.Errorf("%+v: %v", event, err)
		}
		types, about = append(types, event.Type), append(about, data)
	}
	return types, about
}

// The leader records that a limit has held a job back for long, the next leader does not record
// it again, and records when it has ended.
func TestStarvingKeyIsRecorded(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.limit(t, jobstore.Limit{Scope: "queue", Name: "default", Most: 1, Key: "args.tenant"})
	c.join(t, nodestore.Node{NodeID: "a", Slots: 50})
	c.exec(t, `INSERT INTO river_job (kind, args, scheduled_at) SELECT 'k', '{"tenant": "acme"}', now() - interval '20 minutes' FROM generate_series(1, 2)`)
	c.insertTenant(t, 2, "k", "new")
	stop := c.lead(t, c.makeLeader(t, 1), assign.LeastLoaded)
	c.waitFor(t, "the event", func() bool {
		types, _ := c.starvationEvents(t)
		return len(types) > 0
	})
	_ = stop()
	stop, _ = c.leadUntilDone(t, c.makeLeader(t, 2), assign.LeastLoaded, func(a *assign.Assigner) {
		assign.SetOfferTimeout(a, time.Hour)
		assign.SetRecoverAfter(a, time.Millisecond)
	})
	c.exec(t, `UPDATE river_job SET state = 'completed', finalized_at = now() WHERE state = 'running'`)
	c.exec(t, `SELECT pg_notify('public.river_insert', '{}')`)
	c.waitFor(t, "the end", func() bool {
		types, _ := c.starvationEvents(t)
		return len(types) > 1
	})
	_ = stop()
	types, about := c.starvationEvents(t)
	if len(types) != 2 || types[0] != eventstore.LimitRecovered || types[1] != eventstore.LimitStarving {
		t.Fatalf("events %v: %+v", types, about)
	}
	for i, got := range about {
		if got.WaitedS < 1200 || got.WaitedS > 1500 {
			t.Errorf("%s: waited for %d s", types[i], got.WaitedS)
		}
		got.WaitedS, got.LastedS = 0, 0
		if want := (eventstore.LimitWait{Queue: "default", Limit: "key", Key: "args.tenant", Value: "acme"}); got != want {
			t.Errorf("%s: got %+v, want %+v", types[i], got, want)
		}
	}
}
