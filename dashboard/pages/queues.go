package pages

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/filter"
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
		selection, err := jobstore.SelectJobs(strings.TrimSpace(fields.Get("kind")), strings.TrimSpace(fields.Get("key")))
		if err != nil {
			s.AnswerError(w, r, web.Refuse(http.StatusUnprocessableEntity, format.Capital(err.Error())+"."))
			return
		}
		order := jobstore.QueuePauseOrder{By: auth.RequestOrigin(r, viaPage), Reason: strings.TrimSpace(fields.Get("reason")), Jobs: selection}
		if _, _, err := s.SetQueuePaused(r.Context(), name, pause, order, fields.Get("for")); err != nil {
			s.AnswerError(w, r, err)
			return
		}
		if fields.Get("page") == "queue" {
			redirectWithNotice(w, r, queuePath(name)+"?"+web.Encode("did", did, "jobs", selection.String()))
			return
		}
		redirectWithNotice(w, r, "/queues?"+web.Encode("did", did, "queue", name))
	}
}

type queuesBody struct {
	base
	Bar      bar
	Heads    []head
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
	// Until is when the pause ends by itself; nil: it does not.
	Until *format.Stamp
}

// limitRow is a limit with the width of its bar.
type limitRow struct {
	jobstore.Usage

	Used string
}

func (s *Pages) loadQueues(ctx context.Context, req *request) (body, error) {
	where, sort := pageWhere(req, jobstore.QueueTable.Keys(), queueFields), cluster.SortOf(&req.Query, jobstore.QueueOrders.Names())
	if err := req.err(); err != nil {
		return nil, err
	}
	facts, err := s.cluster(ctx)
	if err != nil {
		return nil, err
	}
	queues, err := s.Source.Queues.Queues(ctx)
	if err != nil {
		return nil, fmt.Errorf("read queues: %w", err)
	}
	b := queuesBody{
		base: base{name: "Queues", beat: s.pulseOf(facts)}, Bar: queueBar(where, sort, queues), Heads: queueHeads(where, sort),
		Operates: s.QueueOps != nil && req.may(route.Operator), Notice: queueNotice(req.Values.Get("queue"), req),
	}
	queues = jobstore.QueueOrders.Sort(sort, jobstore.QueueTable.Select(where, facts.now, queues))
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

// queueBar returns the filter bar of the queues.
func queueBar(where *filter.Filter, sort string, queues []jobstore.Queue) bar {
	var names []string
	for _, q := range queues[:min(len(queues), mostSuggested)] {
		names = append(names, q.Name)
	}
	b := newBar("/queues", where.String(), jobstore.QueueTable.Keys(), queueFields, map[string][]string{"queue": names})
	b.keep("sort", sort)
	return b
}

func queueHeads(where *filter.Filter, sort string) []head {
	columns := []head{
		{Text: "Queue"},
		{Text: "Available", Class: "num"},
		{Text: "Oldest waits", Class: "num"},
		{Text: "Running", Class: "num"},
		{Text: "In use"},
		{Text: "Scheduled", Class: "num"},
		{Text: "To be retried", Class: "num"},
		{Text: "Nodes", Class: "num"},
	}
	return heads(columns, map[string]sortBy{
		"Queue": {"name", "ascending", "By name"}, "Available": {"available", "descending", "The most available jobs first"},
		"Oldest waits": {"waits", "descending", "The longest wait first"}, "Running": {"running", "descending", "The most running jobs first"},
	}, cmp.Or(sort, jobstore.QueueOrders[0].Name), func(sort string) string { return "/queues?" + web.Encode("filter", where.String(), "sort", sort) })
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
	if !q.PausedUntil.IsZero() {
		until := format.NewStamp(format.ModeUntil, now, q.PausedUntil)
		row.Until = &until
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
	what := queue + " is"
	if jobs := req.Values.Get("jobs"); jobs != "" {
		what = "Jobs of " + queue + " (" + format.PlainText(jobs) + ") are"
	}
	switch req.Values.Get("did") {
	case "pause":
		return &notice{Text: what + " paused. Running jobs continue."}
	case "resume":
		return &notice{Text: what + " resumed."}
	default:
		return nil
	}
}
