package cluster

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

// QueueOps pauses and resumes queues.
type QueueOps interface {
	// PauseQueue and ResumeQueue return since when the queue has been paused and whether
	// its state changed. They return jobstore.ErrNoQueue for an unknown queue.
	PauseQueue(ctx context.Context, queue, by string) (since time.Time, changed bool, err error)
	ResumeQueue(ctx context.Context, queue, by string) (since time.Time, changed bool, err error)
}

var errNoSuchQueue = web.Refuse(http.StatusNotFound, "There is no such queue.")

// SetQueuePaused pauses or resumes a queue.
func (s *Cluster) SetQueuePaused(ctx context.Context, queue, by string, pause bool) (since time.Time, changed bool, err error) {
	turn := s.QueueOps.ResumeQueue
	if pause {
		turn = s.QueueOps.PauseQueue
	}
	since, changed, err = turn(ctx, queue, by)
	if errors.Is(err, jobstore.ErrNoQueue) {
		err = errNoSuchQueue
	}
	return since, changed, err
}
