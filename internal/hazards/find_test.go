package hazards_test

import (
	"strings"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/hazards"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/leaderstore"
)

var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func queue(name string, paused, waits time.Duration) jobstore.Queue {
	q := jobstore.Queue{Name: name, Now: now, WaitSeconds: waits.Seconds()}
	if paused > 0 {
		q.PausedAt = now.Add(-paused)
	}
	if waits > 0 {
		q.OldestAt = now.Add(-waits)
	}
	return q
}

func terms(count int, reason string, ago time.Duration) []leaderstore.Tenure {
	tenures := make([]leaderstore.Tenure, count)
	for i := range tenures {
		tenures[i] = leaderstore.Tenure{Role: "scheduler", EndReason: reason, EndedAt: now.Add(-ago)}
	}
	return tenures
}

// Each case lists the expected hazards in order; there must be no others.
func TestFind(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for name, test := range map[string]struct {
		facts hazards.Facts
		want  []string
	}{
		"nothing": {hazards.Facts{Queues: []jobstore.Queue{queue("a", 0, time.Minute)}, Snapshots: []postgres.Snapshot{
			{Holder: postgres.Session, Transactions: 999_999, Age: 59 * time.Minute},
		}}, nil},
		"paused without jobs": {hazards.Facts{Queues: []jobstore.Queue{queue("a", 9*day, 0)}}, nil},
		"paused since today":  {hazards.Facts{Queues: []jobstore.Queue{queue("a", day/2, 9*day)}}, nil},
		"paused for days":     {hazards.Facts{Queues: []jobstore.Queue{queue("a", 3*day, time.Minute)}}, []string{"queue a is paused for 72h0m0s"}},
		"the longest first": {hazards.Facts{Queues: []jobstore.Queue{
			queue("a", 0, 2*time.Hour), queue("b", 0, 9*time.Hour), queue("c", 0, 8*time.Hour), queue("d", 0, 7*time.Hour), queue("e", 0, 6*time.Hour),
		}}, []string{"queue b has waited for 9h", "queue c", "queue d has waited for 7h0m0s; 2 more are like it"}},
		"holders": {hazards.Facts{Snapshots: []postgres.Snapshot{
			{Holder: postgres.Standby, Name: "repl", Transactions: 2_000_000},
			{Holder: postgres.Slot, Name: "cdc", Transactions: 1_500_000},
			{Holder: postgres.Prepared, Name: "it's", Transactions: 5, Age: 2 * time.Hour},
		}}, []string{
			"standby repl holds a snapshot from 2,000,000 transactions ago; hot_standby_feedback",
			"slot cdc holds a snapshot from 1,500,000 transactions ago; pg_drop_replication_slot('cdc')",
			"prepared transaction it's is open for 2h0m0s; ROLLBACK PREPARED 'it''s'",
		}},
		"slots": {hazards.Facts{Slots: []postgres.ReplicationSlot{
			{Name: "gone", Lost: true}, {Name: "cdc", RetainedBytes: 20 << 30, Active: true}, {Name: "fine", RetainedBytes: 1 << 30},
		}}, []string{
			"slot gone, without a consumer, is beyond max_slot_wal_keep_size; pg_drop_replication_slot('gone')",
			"slot cdc, with a slow consumer, keeps 20 GiB of write-ahead log; pg_drop_replication_slot('cdc')",
		}},
		"planned ends": {hazards.Facts{Clock: postgres.Clock{Now: now}, Tenures: append(terms(9, "resigned", 0), terms(9, "transferred", 0)...)}, nil},
		"old ends":     {hazards.Facts{Clock: postgres.Clock{Now: now}, Tenures: terms(9, "crashed", 2*time.Hour)}, nil},
		"step-downs": {
			hazards.Facts{Clock: postgres.Clock{Now: now}, Tenures: append(terms(4, "stepped_down", 0), terms(1, "lease_expired", 0)...)},
			[]string{"scheduler lost its leader 5 times within an hour (1 lease expired, 4 stepped down)"},
		},
		"clocks": {
			hazards.Facts{Clock: postgres.Clock{SetBack: time.Hour}, Clocks: []aggregator.Clock{{NodeID: "a", Ahead: -time.Hour}, {NodeID: "b", Ahead: time.Second}}},
			[]string{"set back by 1h0m0s or more", "node a is 1h0m0s behind the database's"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := test.facts.Find()
			if len(found) != len(test.want) {
				t.Fatalf("found %+v; want %q", found, test.want)
			}
			for i, h := range found {
				text, remedy, _ := strings.Cut(test.want[i], "; ")
				if !strings.Contains(h.Text+" "+h.Remedy, text) || !strings.Contains(h.Text+" "+h.Remedy, remedy) || h.Remedy == "" {
					t.Errorf("found %+v; want %q", h, test.want[i])
				}
			}
		})
	}
}
