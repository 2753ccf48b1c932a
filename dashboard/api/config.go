package api

import (
	"net/http"
	"strconv"
	"time"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/activity"
	"github.com/forge-scheduler/forge/internal/cronstore"
)

// configRoutes returns the routes of the configurations that were in force.
func (s *API) configRoutes() []route.Route {
	if s.Configs == nil {
		return nil
	}
	return []route.Route{
		get(s, "/api/v1/config", route.Operation{
			ID: "listConfigurations", Summary: "List the configurations that were in force",
			About: "Returns each time that a configuration was put in force: when, by whom, and from which node's file. The newest one is in force.",
			Query: append([]route.Parameter{
				filterParameter("by:ada* since:7d", cronstore.HistoryTable.Keys()),
				route.Among("sort", "The order: newest (the newest first) or oldest.", activity.Orders...),
			}, route.PagedBothWays...),
		}, s.listConfigs),
		get(s, "/api/v1/config/{hash}/diff", route.Operation{
			ID: "diffConfigurations", Summary: "Compare a configuration with the one before it, or with another one",
			About: "Returns the crons, jobs, queues and alerts that were added, changed and removed. Secrets are redacted.",
			Query: []route.Parameter{route.Text("from", "The hash of the configuration to compare with; by default the one that was in force before.")},
		}, func(r *http.Request, q *web.Query) (cronstore.ConfigDiff, error) {
			return s.Configs.DiffConfigs(r.Context(), q.Values.Get("from"), r.PathValue("hash"))
		}),
		get(s, "/api/v1/config/{hash}/plan", route.Operation{
			ID: "planRevert", Summary: "Compare an earlier configuration with the one in force",
			About: "Returns what a revert to the configuration would change, the crons that it would remove, and the jobs whose runs would wait because no running node defines them so. It changes nothing.",
			Query: []route.Parameter{route.Bounded("days", "How many days of runs to compare", maxDays, defaultDays)},
		}, func(r *http.Request, q *web.Query) (cronstore.RevertPlan, error) {
			return s.Configs.PlanRevert(r.Context(), r.PathValue("hash"), time.Duration(q.UpTo("days", defaultDays, maxDays))*24*time.Hour)
		}),
		byAdmin(post(s, "/api/v1/config/{hash}/revert", route.Operation{
			ID: "revertConfiguration", Summary: "Put an earlier configuration in force again; yes confirms the removal of crons",
			About: "Puts an earlier configuration in force again, without its file. The nodes keep their files. If that would remove crons the answer is 409 unless `yes` is true.",
		}, s.revert)),
	}
}

func (s *API) listConfigs(r *http.Request, q *web.Query) (web.List[cronstore.Application], error) {
	query := cluster.HistoryQuery(q, cluster.Where(q, cronstore.HistoryTable.Keys()), q.Limit())
	if err := q.Err(); err != nil {
		return web.List[cronstore.Application]{}, err
	}
	rows, err := s.Configs.SearchHistory(r.Context(), query)
	return pageOf(q, rows, len(rows) == query.Limit, cluster.HistoryBound(query), func(last cronstore.Application) string { return strconv.FormatInt(last.ID, 10) }), err
}

func (s *API) revert(c *call, body applyAsk) (cronstore.Outcome, error) {
	outcome, err := s.Configs.Revert(c.Context(), c.PathValue("hash"), body.confirm("configuration"))
	if err == nil {
		s.Outlines.Forget(c.Context())
		auth.NoteAction(c.Context(), "configuration "+outcome.InForce)
	}
	return outcome, err
}
