package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/forge-scheduler/forge/internal/jobstore"
)

// Queues reads the depth of the queues, and the limits of the cluster.
type Queues interface {
	// Queues returns the queues by name.
	Queues(ctx context.Context) ([]jobstore.Queue, error)
	Usages(ctx context.Context) ([]jobstore.Usage, error)
}

// QueueOps pauses and resumes queues.
type QueueOps interface {
	// PauseQueue and ResumeQueue return since when the queue has been paused and whether
	// its state changed. They return jobstore.ErrNoQueue for an unknown queue.
	PauseQueue(ctx context.Context, queue, by string) (since time.Time, changed bool, err error)
	ResumeQueue(ctx context.Context, queue, by string) (since time.Time, changed bool, err error)
}

var errNoSuchQueue = &refusal{http.StatusNotFound, "There is no such queue."}

func (s *apiServer) apiQueues(w http.ResponseWriter, r *http.Request) {
	queues, err := s.Source.Queues.Queues(r.Context())
	if err != nil {
		s.answerDatabaseError(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, listOf(queues, ""))
}

func (s *apiServer) apiLimits(w http.ResponseWriter, r *http.Request) {
	usages, err := s.Source.Queues.Usages(r.Context())
	if err != nil {
		s.answerDatabaseError(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, listOf(usages, ""))
}

// setQueuePaused pauses or resumes a queue.
func (s *clusterState) setQueuePaused(ctx context.Context, queue, by string, pause bool) (since time.Time, changed bool, err error) {
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

// queueStateDocument is the state of a queue and whether the request changed it.
type queueStateDocument struct {
	Name     string    `json:"name"`
	PausedAt time.Time `json:"paused_at,omitzero"`
	Changed  bool      `json:"changed"`
}

func (s *apiServer) apiSetQueuePaused(pause bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("name")
		err := readJSON(w, r, &struct{}{})
		var since time.Time
		var changed bool
		if err == nil {
			since, changed, err = s.setQueuePaused(r.Context(), name, requestOrigin(r, viaAPI), pause)
		}
		if err != nil {
			s.answerError(w, r, err)
			return
		}
		writeJSON(w, http.StatusOK, queueStateDocument{name, since, changed})
	}
}

// formSetQueuePaused handles the form and redirects to the page, which reports the result.
func (s *pageServer) formSetQueuePaused(pause bool) http.HandlerFunc {
	did := "resume"
	if pause {
		did = "pause"
	}
	return func(w http.ResponseWriter, r *http.Request) {
		if _, ok := s.form(w, r); !ok {
			return
		}
		name := r.PathValue("name")
		if _, _, err := s.setQueuePaused(r.Context(), name, requestOrigin(r, viaPage), pause); err != nil {
			s.answerError(w, r, err)
			return
		}
		http.Redirect(w, r, "/queues?"+values("did", did, "queue", name), http.StatusSeeOther)
	}
}

type queuesBody struct {
	base
	Notice   *notice
	Operates bool
	Queues   []queueRow
	Limits   []limitRow
}

type queueRow struct {
	jobstore.Queue
	Path, Jobs string
	Waits      string
	// Most is how many jobs may run at once: the lower one of the cluster's limit and the
	// slots of the nodes. Used is the width of the bar.
	Most    int
	Limited bool
	Used    string
	Paused  *stamp
}

// limitRow is a limit with the width of its bar.
type limitRow struct {
	jobstore.Usage

	Used string
}

func (s *pageServer) loadQueues(ctx context.Context, req *request) (body, error) {
	facts, err := s.cluster(ctx)
	if err != nil {
		return nil, err
	}
	queues, err := s.Source.Queues.Queues(ctx)
	if err != nil {
		return nil, fmt.Errorf("read queues: %w", err)
	}
	b := queuesBody{base: base{name: "Queues", beat: s.pulseOf(facts)}, Operates: s.QueueOps != nil && req.may(operator), Notice: queueNotice(req)}
	limits, err := s.Source.Queues.Usages(ctx)
	if err != nil {
		return nil, fmt.Errorf("read limits: %w", err)
	}
	for _, l := range limits {
		b.Limits = append(b.Limits, limitRow{l, percent(min(float64(l.Running)/float64(max(l.Most, 1)), 1))})
	}
	for _, q := range queues {
		b.Queues = append(b.Queues, newQueueRow(q, facts.now))
	}
	return &b, nil
}

func newQueueRow(q jobstore.Queue, now time.Time) queueRow {
	row := queueRow{Queue: q, Path: "/queues/" + url.PathEscape(q.Name), Jobs: "/jobs?" + values("queue", q.Name), Waits: "–"}
	if !q.OldestAt.IsZero() {
		row.Waits = precise(q.Wait())
	}
	if !q.PausedAt.IsZero() {
		since := newStamp(modeAgo, now, q.PausedAt)
		row.Paused = &since
	}
	row.Most = q.Workers
	if row.Limited = q.GlobalLimit > 0 && q.GlobalLimit < q.Workers; row.Limited {
		row.Most = q.GlobalLimit
	}
	row.Used = percent(min(float64(q.Running)/float64(max(row.Most, 1)), 1))
	return row
}

// queueNotice reports the result of the form that redirected to the page.
func queueNotice(req *request) *notice {
	queue := req.values.Get("queue")
	switch req.values.Get("did") {
	case "pause":
		return &notice{Text: queue + " is paused. Running jobs continue."}
	case "resume":
		return &notice{Text: queue + " is resumed."}
	default:
		return nil
	}
}
