package api

import (
	"net/http"

	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/queues"
)

// queueStateDocument is the state of a queue and whether the request changed it.
type queueStateDocument struct {
	Name string `json:"name"`
	jobstore.JobPause

	Changed bool `json:"changed"`
}

// queuePauseAsk is the body of pausing a queue. Kind and Key, such as args.tenant=acme, are for a
// part of its jobs.
type queuePauseAsk struct {
	Reason string `json:"reason"`
	Kind   string `json:"kind"`
	Key    string `json:"key"`
	For    string `json:"for"`
}

// queueResumeAsk is the body of resuming a queue, with a part of its jobs as in queuePauseAsk.
type queueResumeAsk struct {
	Reason string `json:"reason"`
	Kind   string `json:"kind"`
	Key    string `json:"key"`
}

// queueRoutes returns the routes of the queues and of the limits.
func (s *API) queueRoutes() []route.Route {
	routes := []route.Route{
		get(s, "/api/v1/queues", route.Operation{
			ID: "listQueues", Summary: "List the queues with their depth",
			About: "Returns the queues that match the filter, with their depth, their limits and whether they are paused. The list is complete.",
			Query: []route.Parameter{filterParameter("queue:mail* is:paused waits:>1m", jobstore.QueueTable.Keys()), sortParameter(jobstore.QueueOrders)},
		}, s.listQueues),
		get(s, "/api/v1/queues/{name}", route.Operation{
			ID: "getQueue", Summary: "Show a queue",
			About: "Returns the queue as in the list, with its dead letters, what the configuration says about it, the nodes that work it, `recent` (attempts a minute and percentiles in seconds of the last quarter of an hour, if the metrics aggregator has recorded them), its kinds, its crons, its newest running jobs, and its newest pauses and resumptions. `nodes` is 0 if no node works the queue. Counts stop at 10,000, and have then a `more_`; dead letters are counted among the newest 10,000 discarded jobs of all queues. `keys` has at most 50 values of the queue's key.",
			Query: []route.Parameter{
				route.Text("search", "Only values of the queue's key that contain this text, in any case."),
				route.Among("sort", "The order of these values: by the most running jobs, the most waiting ones, or the longest wait.", jobstore.KeySorts...),
			},
		}, s.getQueue),
		list(s, "/api/v1/limits", route.Operation{
			ID: "listLimits", Summary: "List the limits in use", About: "Returns each limit of the whole cluster with its use. The list is complete.",
		}, s.Source.Queues.Usages),
	}
	if s.QueueOps != nil {
		routes = append(routes,
			post(s, "/api/v1/queues/{name}/pause", route.Operation{
				ID: "pauseQueue", Summary: "Pause a queue", About: "Stops jobs of the queue from starting. Running jobs continue. With `for`, such as 2h, the leader resumes the queue after that time; otherwise it stays paused until it is resumed. `reason` is shown with the pause. `kind` and `key`, such as `args.tenant=acme`, are for a part of the jobs." + changesNothingTwice,
			}, func(c *call, body queuePauseAsk) (queueStateDocument, error) { return s.setQueuePaused(c, true, body) }),
			post(s, "/api/v1/queues/{name}/resume", route.Operation{
				ID: "resumeQueue", Summary: "Resume a queue", About: "Lets jobs of a paused queue start again, or with `kind` or `key` a part of them that was paused as such." + changesNothingTwice,
			}, func(c *call, body queueResumeAsk) (queueStateDocument, error) {
				return s.setQueuePaused(c, false, queuePauseAsk{Reason: body.Reason, Kind: body.Kind, Key: body.Key})
			}))
	}
	return routes
}

func (s *API) listQueues(r *http.Request, q *web.Query) (list web.List[jobstore.Queue], err error) {
	where, sort := cluster.Where(q, jobstore.QueueTable.Keys()), cluster.SortOf(q, jobstore.QueueOrders.Names())
	if err := q.Err(); err != nil {
		return list, err
	}
	all, err := s.Source.Queues.Queues(r.Context())
	return web.ListOf(jobstore.QueueOrders.Sort(sort, jobstore.QueueTable.Select(where, s.Now(), all)), ""), err
}

func (s *API) getQueue(r *http.Request, q *web.Query) (queues.Report, error) {
	keys := cluster.KeysOf(q)
	if err := q.Err(); err != nil {
		return queues.Report{}, err
	}
	return s.Queue(r.Context(), r.PathValue("name"), keys)
}

func (s *API) setQueuePaused(c *call, paused bool, body queuePauseAsk) (queueStateDocument, error) {
	name := c.PathValue("name")
	selection, err := jobstore.SelectJobs(body.Kind, body.Key)
	if err != nil {
		return queueStateDocument{}, web.WrongFields(web.WrongField("key", err.Error()))
	}
	order := jobstore.QueuePauseOrder{By: c.by, Reason: body.Reason, Jobs: selection}
	pause, changed, err := s.SetQueuePaused(c.Context(), name, paused, order, body.For)
	return queueStateDocument{name, jobstore.JobPause{JobSelection: selection, QueuePause: pause}, changed}, err
}
