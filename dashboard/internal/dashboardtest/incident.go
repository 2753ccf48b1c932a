package dashboardtest

import (
	"context"
	"time"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/incident"
)

// Read reports on the seventh term of the scheduler, after a crash of node-2.
func (f Leadership) Read(_ context.Context, role string, term int64) (incident.Incident, error) {
	if role != "scheduler" || term != 0 && term != 7 {
		return incident.Incident{}, incident.ErrNotFound
	}
	return Read(f.Cluster, func() incident.Incident {
		if f.Incident != nil {
			return *f.Incident
		}
		return AnIncident()
	})
}

// AnIncident is a failover from node-2 to node-1 with a delayed tick and a rescued job.
func AnIncident() incident.Incident {
	elected := Epoch.Add(-time.Minute)
	ended := elected.Add(-8 * time.Millisecond)
	gap := 8.0
	late := cronstore.Tick{
		Cron: "backup", Tick: ended.Truncate(time.Second), Verdict: cronstore.Fired, JobID: 42, Term: 7, NodeID: "node-1",
		RecordedAt: elected.Add(40 * time.Millisecond), LatenessMS: 1040, Count: 1,
	}
	return incident.Incident{
		Role: "scheduler", Term: 7, Kind: incident.Failover, Summary: "node-2 crashed. node-1 became the leader 8ms later. Nothing was lost.",
		Old: &incident.OldLeader{
			Term: 6, NodeID: "node-2", Incarnation: "00000000000000b1", AcquiredAt: Epoch.Add(-5 * time.Minute),
			EndedAt: ended, EndReason: "crashed", Process: "dead", GoneAt: elected.Add(time.Second),
		},
		DetectedAt: ended, ElectionAt: ended.Add(3 * time.Millisecond), ElectedAt: elected, NodeID: "node-1", Incarnation: Incarnation,
		GapMS: &gap, FirstTick: &late,
		Ticks: &cronstore.GapTicks{Count: 1, WorstMS: 1040, Verdicts: map[cronstore.Verdict]int64{cronstore.Fired: 1}, Items: []cronstore.Tick{late}},
		Jobs:  incident.Jobs{Rescued: 1, Available: 1, IDs: []int64{42}, RescuedAt: elected.Add(1200 * time.Millisecond)},
		Lost:  incident.Lost{Nothing: true, Ticks: &cronstore.Unrecorded{Crons: 1, Ticks: 1, Lost: []cronstore.DueTick{}, Waiting: []cronstore.DueTick{}}},
		Events: []eventstore.Event{
			{ID: 11, At: ended, Type: eventstore.LeaderLost, NodeID: "node-2", Role: "scheduler", Term: 6, Data: []byte(`{"reason": "crashed"}`)},
			{ID: 13, At: elected, Type: eventstore.LeaderElected, NodeID: "node-1", Role: "scheduler", Term: 7, Data: []byte(`{"gap_ms": 8}`)},
		},
		EventsKept: true, Now: Epoch,
	}
}
