package cluster

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/queues"
)

// QueueOps pauses and resumes queues.
type QueueOps interface {
	// PauseQueue and ResumeQueue return since when the queue has been paused and whether
	// its state changed. They return jobstore.ErrNoQueue for an unknown queue.
	PauseQueue(ctx context.Context, queue, by string) (since time.Time, changed bool, err error)
	ResumeQueue(ctx context.Context, queue, by string) (since time.Time, changed bool, err error)
}

// SetQueuePaused pauses or resumes a queue.
func (s *Cluster) SetQueuePaused(ctx context.Context, queue, by string, pause bool) (since time.Time, changed bool, err error) {
	defer s.reports.of(queue).Forget(ctx)
	if pause {
		return s.QueueOps.PauseQueue(ctx, queue, by)
	}
	return s.QueueOps.ResumeQueue(ctx, queue, by)
}

// QueueReports reports on queues.
type QueueReports interface {
	// Queue returns jobstore.ErrNoQueue for an unknown queue.
	Queue(ctx context.Context, name string) (queues.Report, error)
}

// Queue reports on a queue. For an unknown one, the error suggests the name that was probably
// meant.
func (s *Cluster) Queue(ctx context.Context, name string) (queues.Report, error) {
	report, err := s.reports.of(name).Get(ctx)
	if !errors.Is(err, jobstore.ErrNoQueue) {
		return report, err
	}
	known, err := s.Source.Queues.Queues(ctx)
	if err != nil {
		return report, err
	}
	names := make([]string, len(known))
	for i, q := range known {
		names[i] = q.Name
	}
	if near := config.Nearest(name, names); near != "" {
		return report, web.Refuse(http.StatusNotFound, "There is no such queue. Did you mean "+near+"?")
	}
	return report, jobstore.ErrNoQueue
}

const (
	// keepReport is how long pages and the API share a report, keptReports bounds the reports.
	keepReport  = time.Second
	keptReports = 64
)

// reportCache holds the reports on queues by their names.
type reportCache struct {
	source QueueReports

	mu   sync.Mutex
	kept map[string]*Cache[queues.Report]
}

func (c *reportCache) of(name string) *Cache[queues.Report] {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kept[name] == nil {
		if c.kept == nil || len(c.kept) >= keptReports {
			c.kept = map[string]*Cache[queues.Report]{}
		}
		c.kept[name] = NewCache(keepReport, func(ctx context.Context) (queues.Report, error) { return c.source.Queue(ctx, name) })
	}
	return c.kept[name]
}
