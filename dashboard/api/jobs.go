package api

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/dashboard/live"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/explain"
	"github.com/forge-scheduler/forge/internal/filter"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

// bulkAsk is the JSON form of a filter of jobs.
type bulkAsk struct {
	State string `json:"state"`
	Kind  string `json:"kind"`
	Queue string `json:"queue"`
	Cron  string `json:"cron"`
	// Filter narrows the other fields, as in the list of jobs.
	Filter string `json:"filter"`
	// UpTo is the highest id that the filter matches; 0 means all jobs that exist now.
	UpTo   int64 `json:"up_to"`
	DryRun bool  `json:"dry_run"`
}

// JobDocument is one job and what it runs.
type JobDocument struct {
	jobstore.Job
	// Definition is what jobs of this kind run by the configuration in force; missing for a
	// kind that only a Go program knows.
	Definition *cronstore.Definition `json:"definition,omitempty"`
}

// actionTexts describe the actions on one job and on many.
var actionTexts = map[jobstore.Action]struct{ one, many string }{
	jobstore.Cancel:  {"Cancels a job, even one that is running. A job that has ended is refused with 409.", "Cancels the jobs that match the filter, even running ones."},
	jobstore.Discard: {"Discards a waiting job. A job that runs or has ended is refused with 409; cancel one that runs.", "Discards the waiting jobs that match the filter."},
	jobstore.Retry:   {"Makes a job available again, even one that has ended. If all its attempts were used, it gets one more.", "Makes the jobs that match the filter available again."},
}

const actsOnMany = " At least one field of the filter is required. `dry_run` counts the jobs and changes nothing. One request changes 20,000 jobs at most; a filter with more is refused with 422."

// jobRoutes returns the routes of the jobs.
func (s *API) jobRoutes() []route.Route {
	routes := []route.Route{
		get(s, "/api/v1/jobs/{id}", route.Operation{
			ID: "getJob", Summary: "Show a job with its attempts",
			About: "Returns the job with its arguments, its attempts, their errors and what the job runs.",
		}, s.getJob),
		s.logsRoute(),
		s.outputRoute(),
		get(s, "/api/v1/jobs/{id}/explain", route.Operation{
			ID: "explainJob", Summary: "Explain where a job will run, why it waits, or which nodes ran it",
			About: "Returns in one sentence, and node by node, where a waiting job will run or why no node can take it. For other jobs it returns which nodes ran them.",
		}, s.explainJob),
		get(s, "/api/v1/job-counts", route.Operation{
			ID: "countJobs", Summary: "Count the jobs by queue and state; if there are many, the counts are some seconds old",
			About: "Returns the number of jobs in each queue and state. A count stops at 10,000, and has then `more`; those of finished jobs stop for all queues of a state together. In a large database the count is some seconds old; before the first count the answer is 503.",
		}, s.countJobs),
	}
	if s.JobOps != nil {
		for _, action := range jobstore.Actions {
			word, title := string(action), format.Capital(string(action))
			routes = append(routes,
				post(s, "/api/v1/jobs/{id}/"+word, route.Operation{ID: word + "Job", Summary: title + " a job", About: actionTexts[action].one}, s.act(action)),
				post(s, "/api/v1/bulk/jobs/"+word, route.Operation{
					ID: word + "Jobs", Summary: title + " all jobs that match a filter", About: actionTexts[action].many + actsOnMany,
				}, s.actOnAll(action)))
		}
	}
	return append(routes, s.enqueueRoutes()...)
}

// filterParameter narrows a list with these keys.
func filterParameter(example string, keys []filter.Key) route.Parameter {
	names := make([]string, len(keys))
	for i, key := range keys {
		names[i] = key.Name + " (" + key.About + ")"
	}
	return route.Text("filter", "Only those that match all of these terms, such as "+example+". The keys are "+strings.Join(names, ", ")+".")
}

// sortParameter selects the order of a list.
func sortParameter[T any](orders filter.Orders[T]) route.Parameter {
	about := make([]string, len(orders))
	for i, order := range orders {
		about[i] = order.Name + " (" + order.About + ")"
	}
	return route.Among("sort", "The order: "+strings.Join(about, ", ")+".", orders.Names()...)
}

// jobsRoute returns the route of the list of jobs.
func (s *API) jobsRoute() route.Route {
	return get(s, "/api/v1/jobs", route.Operation{
		ID: "listJobs", Summary: "List the jobs, newest first", About: "Returns the jobs that match the filter. A page may hold few jobs, or none, although `next` leads to others.",
		Query: slices.Concat([]route.Parameter{
			route.Among("state", "Only jobs in this state.", cluster.JobStates...), route.Text("kind", "Only jobs of this kind."),
			route.Text("queue", "Only jobs of this queue."), route.Text("cron", "Only runs of this cron."),
			filterParameter("kind:send* node:node-2 took:>10s error:timeout since:2h", jobstore.Keys),
			route.Among("sort", "The order: newest first, slowest first (those that run or ran longest, of the last 100,000 that ended), or waiting: the available jobs, the longest waiting first. Only the newest have further pages.", jobstore.Sorts...),
			route.Flag("args", "Include the arguments of each job. A page ends early once it has 1 MiB of them."),
		}, route.PagedByID),
	}, func(r *http.Request, q *web.Query) (web.List[jobstore.Job], error) {
		filter := cluster.JobFilter(q)
		if q.Flag("args") {
			filter.Args, filter.MaxArgs = jobstore.WholeArgs, web.MaxListedArgs
		}
		if err := q.Err(); err != nil {
			return web.List[jobstore.Job]{}, err
		}
		found, err := s.Source.Jobs.Search(r.Context(), filter)
		next := ""
		if found.Next != 0 {
			next = q.Next("before", strconv.FormatInt(found.Next, 10))
		}
		return web.ListOf(found.Jobs, next), err
	})
}

// jobOf reads the job that the path names.
func (s *API) jobOf(r *http.Request) (jobstore.Job, error) {
	id, err := cluster.JobID(r.PathValue("id"))
	if err != nil {
		return jobstore.Job{}, err
	}
	return s.Source.Jobs.Get(r.Context(), id)
}

func (s *API) getJob(r *http.Request, _ *web.Query) (d JobDocument, err error) {
	if d.Job, err = s.jobOf(r); err == nil {
		d.Definition, err = s.Source.Crons.Definition(r.Context(), d.Kind)
	}
	return d, err
}

// logsRoute returns the route of the output of one attempt, by default the newest, after a
// chunk number. A followed output ends with the attempt or, if none is named, with the job.
func (s *API) logsRoute() route.Route {
	o := route.Operation{
		ID: "getJobLogs", Summary: "Read the output of an attempt",
		About: "Returns the output of one attempt in chunks, oldest first. `next` is the address of the following chunks, even while the attempt runs.",
		Query: []route.Parameter{
			route.UpTo("attempt", "The attempt; by default the newest.", cluster.MaxAttempt), route.UpTo("after", "Only chunks after this one.", cluster.MaxChunk),
			route.CursorParameter, route.Flag("follow", "Stream chunks until the attempt ends, one per line (application/x-ndjson)."),
		},
		Reply: reply[web.List[jobstore.LogChunk]](http.StatusOK),
		Also:  []route.Reply{linesOf[jobstore.LogChunk]()},
	}
	return route.Route{Path: "/api/v1/jobs/{id}/logs", Read: route.Viewer, Gets: &o, Get: s.checked(&o, func(w http.ResponseWriter, r *http.Request, q *web.Query) {
		attempt, after := q.AtMost("attempt", cluster.MaxAttempt), q.AtMost("after", cluster.MaxChunk)
		job, err := s.jobOf(r)
		if err == nil && q.Flag("follow") {
			live.Follow(s.Guard, w, r, func(ctx context.Context, send func([]jobstore.LogChunk) error) error {
				return jobstore.Follow(ctx, s.Source.Jobs, job.ID, attempt, after, send)
			})
			return
		}
		if attempt == 0 {
			attempt = job.LastAttempt()
		}
		var chunks []jobstore.LogChunk
		if err == nil {
			chunks, err = s.Source.Jobs.Logs(r.Context(), job.ID, attempt, after)
		}
		s.answer(w, r, http.StatusOK, pageOf(q, chunks, true, "after", func(last jobstore.LogChunk) string { return strconv.Itoa(last.Seq) }), err)
	})}
}

// explainJob explains where a job will run, why it waits, or which nodes ran it.
func (s *API) explainJob(r *http.Request, _ *web.Query) (explain.Placement, error) {
	id, err := cluster.JobID(r.PathValue("id"))
	if err != nil {
		return explain.Placement{}, err
	}
	return s.Source.Jobs.Placement(r.Context(), id)
}

// countJobs returns how many jobs are in each queue and state.
func (s *API) countJobs(r *http.Request, _ *web.Query) (web.List[jobstore.Count], error) {
	counts := s.Counts.Latest(r.Context(), s.Now())
	if counts.At.IsZero() {
		return web.List[jobstore.Count]{}, &web.RefusedError{Status: http.StatusServiceUnavailable, Detail: "The jobs are not counted yet.", RetryAfter: 5}
	}
	return web.ListOf(counts.Value, ""), nil
}

func (s *API) act(action jobstore.Action) func(*call, nothing) (jobstore.Change, error) {
	return func(c *call, _ nothing) (jobstore.Change, error) {
		return s.Act(c.Context(), jobstore.Order{Action: action, By: c.by}, c.PathValue("id"))
	}
}

// actOnAll applies an action to all jobs that match a filter.
func (s *API) actOnAll(action jobstore.Action) func(*call, bulkAsk) (cluster.BulkDocument, error) {
	return func(c *call, body bulkAsk) (done cluster.BulkDocument, err error) {
		where, err := filter.Parse(body.Filter, jobstore.Keys)
		if err != nil {
			return done, web.WrongFields(web.FieldError{Pointer: "#/filter", Detail: err.Error(), Whole: err.Error()})
		}
		filter := jobstore.Filter{State: body.State, Kind: body.Kind, Queue: body.Queue, Cron: body.Cron}.Narrow(where)
		if err := cluster.CheckBulk(action, filter); err != nil {
			return done, err
		}
		if body.UpTo < 0 {
			return done, web.WrongFields(web.WrongField("up_to", "must be the id of a job"))
		}
		return s.ActOnAll(c.Context(), jobstore.Order{Action: action, By: c.by}, filter, jobstore.Matching{UpTo: body.UpTo}, body.DryRun)
	}
}
