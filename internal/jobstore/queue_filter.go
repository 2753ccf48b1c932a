package jobstore

import (
	"time"

	"github.com/forge-scheduler/forge/internal/filter"
)

// The conditions in which a queue may be.
const (
	queuePaused   = "paused"
	queueWaiting  = "waiting"
	queueRunning  = "running"
	queueUnworked = "unworked"
)

// QueueTable declares the keys of the filters of queues.
var QueueTable = filter.Table[Queue]{
	{
		Key:   filter.Key{Name: "queue", Example: "mail*", About: "the name"},
		Texts: func(q *Queue, _ time.Time) []string { return []string{q.Name} },
	},
	{
		Key: filter.Key{
			Name: "is", Type: filter.Choice, Values: []string{queuePaused, queueWaiting, queueRunning, queueUnworked}, Example: queuePaused,
			About: "paused, with waiting or running jobs, or worked by no node",
		},
		Texts: func(q *Queue, _ time.Time) (is []string) {
			for condition, holds := range map[string]bool{
				queuePaused: !q.PausedAt.IsZero(), queueWaiting: q.Available > 0, queueRunning: q.Running > 0, queueUnworked: q.Nodes == 0,
			} {
				if holds {
					is = append(is, condition)
				}
			}
			return is
		},
	},
	{
		Key:  filter.Key{Name: "waits", Type: filter.Duration, Example: ">1m", About: "how long its oldest available job has waited"},
		Span: func(q *Queue, _ time.Time) (time.Duration, bool) { return q.Wait(), !q.OldestAt.IsZero() },
	},
}

// QueueOrders declares the orders of queues.
var QueueOrders = filter.Orders[Queue]{
	{Name: "name", About: "by name"},
	{Name: "available", About: "the most available jobs first", Compare: func(a, b *Queue) int { return int(b.Available - a.Available) }},
	{Name: "waits", About: "the longest wait first", Compare: func(a, b *Queue) int { return int(b.Wait() - a.Wait()) }},
	{Name: "running", About: "the most running jobs first", Compare: func(a, b *Queue) int { return int(b.Running - a.Running) }},
}
