package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/forge-scheduler/forge/internal/queuestore"
)

// Queues reads what waits in the queues, and the limits of the cluster.
type Queues interface {
	// List returns the queues by name.
	List(ctx context.Context) ([]queuestore.Queue, error)
	Usages(ctx context.Context) ([]queuestore.Usage, error)
}

// Stopper pauses queues and lets them go on.
type Stopper interface {
	// PauseQueue and ResumeQueue return since when the queue is paused and whether
	// that changed anything, and queuestore.ErrNotFound for an unknown one.
	PauseQueue(ctx context.Context, queue, by string) (since time.Time, changed bool, err error)
	ResumeQueue(ctx context.Context, queue, by string) (since time.Time, changed bool, err error)
}

var errNoSuchQueue = &refusal{http.StatusNotFound, "There is no such queue."}

func (s *server) apiQueues(w http.ResponseWriter, r *http.Request) {
	queues, err := s.Source.Queues.List(r.Context())
	if err != nil {
		s.unreadable(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, listOf(queues, ""))
}

func (s *server) apiLimits(w http.ResponseWriter, r *http.Request) {
	usages, err := s.Source.Queues.Usages(r.Context())
	if err != nil {
		s.unreadable(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, listOf(usages, ""))
}

// turnQueue pauses or resumes.
func (s *server) turnQueue(ctx context.Context, queue, by string, pause bool) (since time.Time, changed bool, err error) {
	turn := s.Stopper.ResumeQueue
	if pause {
		turn = s.Stopper.PauseQueue
	}
	since, changed, err = turn(ctx, queue, by)
	if errors.Is(err, queuestore.ErrNotFound) {
		err = errNoSuchQueue
	}
	return since, changed, err
}

// turnedDocument is a queue, and whether it was paused or let go just now.
type turnedDocument struct {
	Name     string    `json:"name"`
	PausedAt time.Time `json:"paused_at,omitzero"`
	Changed  bool      `json:"changed"`
}

func (s *server) apiTurnQueue(pause bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("name")
		err := readJSON(w, r, &struct{}{})
		var since time.Time
		var changed bool
		if err == nil {
			since, changed, err = s.turnQueue(r.Context(), name, whoAsks(r, viaAPI), pause)
		}
		if err != nil {
			s.answer(w, r, err)
			return
		}
		writeJSON(w, http.StatusOK, turnedDocument{name, since, changed})
	}
}

// formTurnQueue leads back to the page, which says what was done.
func (s *server) formTurnQueue(pause bool) http.HandlerFunc {
	did := "resume"
	if pause {
		did = "pause"
	}
	return func(w http.ResponseWriter, r *http.Request) {
		if _, ok := s.form(w, r); !ok {
			return
		}
		name := r.PathValue("name")
		if _, _, err := s.turnQueue(r.Context(), name, whoAsks(r, viaPage), pause); err != nil {
			s.answer(w, r, err)
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
	queuestore.Queue
	Path, Jobs string
	Waits      string
	// Most run at once: as many as the cluster's limit says, where one is lower than
	// what the nodes run by themselves. Used is how wide the part in use is drawn.
	Most    int
	Limited bool
	Used    string
	Paused  *stamp
}

// limitRow has how wide the part in use is drawn.
type limitRow struct {
	queuestore.Usage

	Used string
}

func (s *server) loadQueues(ctx context.Context, ask *request) (body, error) {
	facts, err := s.cluster(ctx)
	if err != nil {
		return nil, err
	}
	queues, err := s.Source.Queues.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("read queues: %w", err)
	}
	b := queuesBody{base: base{name: "Queues", beat: s.pulseOf(facts)}, Operates: s.Stopper != nil && ask.may(operator), Notice: turnedQueue(ask)}
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

func newQueueRow(q queuestore.Queue, now time.Time) queueRow {
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

// turnedQueue says what the form that led here has done.
func turnedQueue(ask *request) *notice {
	queue := ask.values.Get("queue")
	switch ask.values.Get("did") {
	case "pause":
		return &notice{Text: queue + " is paused. What runs goes on."}
	case "resume":
		return &notice{Text: queue + " goes on."}
	default:
		return nil
	}
}
