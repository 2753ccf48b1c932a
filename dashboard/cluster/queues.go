package cluster

import (
	"context"
	"time"
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
	if pause {
		return s.QueueOps.PauseQueue(ctx, queue, by)
	}
	return s.QueueOps.ResumeQueue(ctx, queue, by)
}
