package pages

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

// formSetQueuePaused handles the form and redirects to its page, which reports the result: the
// list, or the page of the queue.
func (s *Pages) formSetQueuePaused(pause bool) http.HandlerFunc {
	did := "resume"
	if pause {
		did = "pause"
	}
	return func(w http.ResponseWriter, r *http.Request) {
		fields, ok := s.Form(w, r)
		if !ok {
			return
		}
		name := r.PathValue("name")
		if _, _, err := s.SetQueuePaused(r.Context(), name, auth.RequestOrigin(r, viaPage), pause); err != nil {
			s.AnswerError(w, r, err)
			return
		}
		if fields.Get("page") == "queue" {
			redirectWithNotice(w, r, queuePath(name)+"?"+web.Encode("did", did))
			return
		}
		redirectWithNotice(w, r, "/queues?"+web.Encode("did", did, "queue", name))
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
	Paused  *format.Stamp
}

// limitRow is a limit with the width of its bar.
type limitRow struct {
	jobstore.Usage

	Used string
}

func (s *Pages) loadQueues(ctx context.Context, req *request) (body, error) {
	facts, err := s.cluster(ctx)
	if err != nil {
		return nil, err
	}
	queues, err := s.Source.Queues.Queues(ctx)
	if err != nil {
		return nil, fmt.Errorf("read queues: %w", err)
	}
	b := queuesBody{base: base{name: "Queues", beat: s.pulseOf(facts)}, Operates: s.QueueOps != nil && req.may(route.Operator), Notice: queueNotice(req.Values.Get("queue"), req)}
	limits, err := s.Source.Queues.Usages(ctx)
	if err != nil {
		return nil, fmt.Errorf("read limits: %w", err)
	}
	for _, l := range limits {
		b.Limits = append(b.Limits, limitRow{l, format.Percent(min(float64(l.Running)/float64(max(l.Most, 1)), 1))})
	}
	for _, q := range queues {
		b.Queues = append(b.Queues, newQueueRow(q, facts.now))
	}
	return &b, nil
}

func newQueueRow(q jobstore.Queue, now time.Time) queueRow {
	row := queueRow{Queue: q, Path: queuePath(q.Name), Jobs: queueJobs(q.Name), Waits: "–"}
	if !q.OldestAt.IsZero() {
		row.Waits = format.Precise(q.Wait())
	}
	if !q.PausedAt.IsZero() {
		since := format.NewStamp(format.ModeAgo, now, q.PausedAt)
		row.Paused = &since
	}
	row.Most = q.Workers
	if row.Limited = q.GlobalLimit > 0 && q.GlobalLimit < q.Workers; row.Limited {
		row.Most = q.GlobalLimit
	}
	row.Used = format.Percent(min(float64(q.Running)/float64(max(row.Most, 1)), 1))
	return row
}

// queueNotice reports the result of the form that redirected to the page.
func queueNotice(queue string, req *request) *notice {
	switch req.Values.Get("did") {
	case "pause":
		return &notice{Text: queue + " is paused. Running jobs continue."}
	case "resume":
		return &notice{Text: queue + " is resumed."}
	default:
		return nil
	}
}
