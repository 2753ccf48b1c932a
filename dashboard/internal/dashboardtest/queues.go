package dashboardtest

import (
	"context"
	"time"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/queues"
)

// OddQueue is the name of a queue that no node works, with characters that have a meaning in
// addresses and pages.
const OddQueue = `o'dd/"q"?&<b>%`

func listedQueues() []jobstore.Queue {
	return []jobstore.Queue{
		{Name: "bulk", QueuePause: jobstore.QueuePause{PausedAt: Epoch.Add(-time.Hour), PausedBy: "ada", PauseReason: "move <it>", PausedUntil: Epoch.Add(time.Hour)}, Available: 7, Scheduled: 4, OldestAt: Epoch.Add(-90 * time.Second), WaitSeconds: 90},
		{Name: "default", Running: 2, GlobalLimit: 3},
	}
}

func (f Queues) Queues(context.Context) ([]jobstore.Queue, error) {
	return Read(f.Cluster, listedQueues)
}

// Queue reports on the queues of the list, on OddQueue, and on one with the name that tests put
// into all addresses.
func (f Queues) Queue(_ context.Context, name string, keys jobstore.KeySearch) (queues.Report, error) {
	report := queues.Report{Kinds: []string{}, Crons: []cronstore.QueueCron{}, RunningJobs: []jobstore.Job{}, Pauses: []eventstore.QueueChange{}, ServedBy: []queues.Server{}}
	listed := listedQueues()
	switch name {
	case "bulk":
		report.QueueDetail = jobstore.QueueDetail{Queue: listed[0], OldestID: 42, Dead: 3, MoreDead: true, Known: true}
		report.Configured = &cronstore.QueueConfig{MaxWorkers: 4, Priority: 2, FairBy: "args.tenant", FairWeights: map[string]int{"acme": 3}}
		report.Key, report.MoreKeys = "args.tenant", true
		none := 0
		report.Keys = []jobstore.KeyUse{{Key: "acme <it>", Running: 2, Waiting: 10000, OldestAt: Epoch.Add(-time.Minute), RateLeft: &none}, {Key: "", Running: 1}}
		if keys.Text != "" {
			report.Keys, report.MoreKeys = []jobstore.KeyUse{{Key: "only " + keys.Text + keys.Sort, Waiting: 1, OldestAt: Epoch}}, false
		}
		if keys.Text == "behind" { // a value of jobs that are not counted
			report.Available, report.MoreAvailable, report.Keys = jobstore.CountLimit, true, nil
		}
		report.PausedJobs = []jobstore.JobPause{{
			JobSelection: jobstore.JobSelection{Kind: "send", Key: "args.tenant", Value: "a <b>"},
			QueuePause:   jobstore.QueuePause{PausedAt: Epoch.Add(-time.Minute), PausedBy: "eve", PauseReason: "too <much>", PausedUntil: Epoch.Add(time.Hour)},
		}}
		report.Recent = recentWork()
		report.Kinds, report.MoreKinds = []string{"dump", "send"}, true
		report.Crons, report.MoreCrons = []cronstore.QueueCron{{Name: "backup", Job: "dump", NextTick: Epoch.Add(time.Hour)}, {Name: "held", Job: "send", Paused: true}}, true
		report.Pauses = []eventstore.QueueChange{{At: Epoch.Add(-time.Hour), Action: "pause", By: "ada", Reason: "move <it>", Jobs: "kind <x>"}, {At: Epoch.Add(-2 * time.Hour), Action: "resume"}}
	case "default":
		report.QueueDetail = jobstore.QueueDetail{Queue: listed[1], Known: true}
		report.Nodes, report.Workers, report.Configured = 1, 10, &cronstore.QueueConfig{GlobalLimit: 3, Priority: 1}
		report.ServedBy = []queues.Server{{NodeID: "node-1", State: "active", Slots: 10}, {NodeID: "node-2", State: "draining", Slots: 4}}
	case OddQueue, "backup":
		report.QueueDetail = jobstore.QueueDetail{Queue: jobstore.Queue{Name: name, Available: 1, OldestAt: Epoch.Add(-time.Minute), WaitSeconds: 60}, OldestID: 41, Known: true}
	default:
		return report, jobstore.ErrNoQueue
	}
	return Read(f.Cluster, func() queues.Report { return report })
}
