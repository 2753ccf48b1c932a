package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/queues"
)

// QueueOps pauses and resumes queues.
type QueueOps interface {
	// PauseQueue and ResumeQueue return the pause and whether they changed the queue. They
	// return jobstore.ErrNoQueue for an unknown queue.
	PauseQueue(ctx context.Context, queue string, order jobstore.QueuePauseOrder) (jobstore.QueuePause, bool, error)
	ResumeQueue(ctx context.Context, queue string, order jobstore.QueuePauseOrder) (jobstore.QueuePause, bool, error)
}

// SetQueuePaused pauses a queue for a time such as 2h, or until it is resumed, or resumes it.
func (s *Cluster) SetQueuePaused(ctx context.Context, queue string, paused bool, order jobstore.QueuePauseOrder, lasts string) (pause jobstore.QueuePause, changed bool, err error) {
	defer s.reports.of(queue, jobstore.KeySearch{}).Forget(ctx)
	change := s.QueueOps.ResumeQueue
	if paused {
		change = s.QueueOps.PauseQueue
	}
	wrongSpan := web.WrongFields(web.WrongField("for", "must be from a second to 366 days"))
	if lasts != "" {
		d, err := config.ParseDuration(lasts)
		if err != nil {
			return pause, false, web.WrongFields(web.WrongField("for", fmt.Sprintf("is %v (got %q); want a time such as 90m, 2h or 3d", err, lasts)))
		}
		if order.For = d.Std(); order.For == 0 { // which would mean without end
			return pause, false, wrongSpan
		}
	}
	pause, changed, err = change(ctx, queue, order)
	switch {
	case errors.Is(err, jobstore.ErrManyPauses):
		return pause, false, web.Refuse(http.StatusConflict, fmt.Sprintf("The queue has %d pauses of jobs already. Resume some first.", jobstore.MaxJobPauses))
	case errors.Is(err, jobstore.ErrPauseSpan):
		return pause, false, wrongSpan
	case err == nil && changed:
		auth.NoteAction(ctx, fmt.Sprintf("reason=%q until=%s jobs=%q", order.Reason, format.UTC(pause.PausedUntil), order.Jobs))
	}
	return pause, changed, refuseReason(err)
}

// maxSearch bounds the text of a search among the values of a key, in bytes.
const maxSearch = 200

// KeysOf reads the parameters search and sort, which select values of a queue's key.
func KeysOf(q *web.Query) jobstore.KeySearch {
	if found := len(q.Values.Get("search")); found > maxSearch {
		q.Errs = append(q.Errs, fmt.Errorf("search: found %d bytes, want at most %d", found, maxSearch))
	}
	return jobstore.KeySearch{Text: q.Values.Get("search"), Sort: SortOf(q, jobstore.KeySorts)}
}

// QueueReports reports on queues.
type QueueReports interface {
	// Queue returns jobstore.ErrNoQueue for an unknown queue.
	Queue(ctx context.Context, name string, keys jobstore.KeySearch) (queues.Report, error)
}

// Queue reports on a queue, with the selected values of its key. For an unknown one, the error
// suggests the name that was probably meant.
func (s *Cluster) Queue(ctx context.Context, name string, keys jobstore.KeySearch) (queues.Report, error) {
	report, err := s.reports.of(name, keys).Get(ctx)
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

// reportCache holds the reports on queues by their names and what was selected of their keys.
type reportCache struct {
	source   QueueReports
	lifetime context.Context //nolint:containedctx // the context of the node, not of a call

	mu   sync.Mutex
	kept map[reportID]*Cache[queues.Report]
}

type reportID struct {
	queue string
	keys  jobstore.KeySearch
}

func (c *reportCache) of(queue string, keys jobstore.KeySearch) *Cache[queues.Report] {
	id := reportID{queue, keys}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kept[id] == nil {
		if c.kept == nil || len(c.kept) >= keptReports {
			c.kept = map[reportID]*Cache[queues.Report]{}
		}
		c.kept[id] = NewCache(c.lifetime, keepReport, func(ctx context.Context) (queues.Report, error) { return c.source.Queue(ctx, queue, keys) })
	}
	return c.kept[id]
}
