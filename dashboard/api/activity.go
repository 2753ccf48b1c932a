package api

import (
	"context"
	"net/http"
	"slices"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/live"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/activity"
)

// activityRoutes returns the route of the activity.
func (s *API) activityRoutes() []route.Route {
	o := route.Operation{
		ID: "listActivity", Summary: "List events and audit entries in one stream",
		About: "Returns what has happened in the cluster and who did it. The entries of the audit log require the scope admin; others get only events. An action that both logs have is one entry, the event. Of an action on many jobs or crons, which writes many events, the stream has the first one, unless the filter has the key cron or text. A page may hold fewer entries than the limit although others follow.",
		Query: slices.Concat([]route.Parameter{
			filterParameter("type:config_* node:node-2 by:ada since:2h", activity.Keys), route.Among("sort", "The order: newest (the newest entries first) or oldest. With follow, it is the newest.", activity.Orders...),
		}, route.Paged, []route.Parameter{
			route.Flag("follow", "Continue with new entries, oldest first, one object per line (application/x-ndjson)."),
		}),
		Reply: reply[web.List[activity.Entry]](http.StatusOK), Also: []route.Reply{linesOf[activity.Entry]()},
	}
	return []route.Route{{Path: "/api/v1/activity", Read: route.Viewer, Gets: &o, Get: s.checked(&o, s.activity)}}
}

func (s *API) activity(w http.ResponseWriter, r *http.Request, q *web.Query) {
	query, err := cluster.ActivityQuery(q, auth.CallerOf(r.Context()).Scope)
	if err == nil && q.Flag("follow") {
		live.Follow(s.Guard, w, r, func(ctx context.Context, send func([]activity.Entry) error) error {
			return s.Source.Activity.Follow(ctx, query, send)
		})
		return
	}
	var page activity.Page
	if err == nil {
		page, err = s.Source.Activity.Find(r.Context(), query)
	}
	next := ""
	if !page.Next.IsZero() {
		next = q.Next("before", page.Next.String())
	}
	s.answer(w, r, http.StatusOK, web.ListOf(page.Entries, next), err)
}
