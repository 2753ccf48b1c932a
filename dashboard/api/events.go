package api

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/dashboard/window"
	"github.com/forge-scheduler/forge/internal/access"
	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// eventRoutes returns the routes of the event log and of the audit log.
func (s *API) eventRoutes() []route.Route {
	routes := []route.Route{followed(s, "/api/v1/events", route.Operation{
		ID: "listEvents", Summary: "List the events of the cluster, newest first",
		About: "Returns the events of the cluster: elections, joins and deaths of nodes, applied configurations and more.",
		Query: slices.Concat([]route.Parameter{
			{Name: "type", Kind: "string", About: "Only events of this type; may be repeated, or list several separated by commas.", Many: true},
			route.Text("role", "Only of this role."),
			route.Instant("from", "Only those from this instant on."), route.Instant("to", "Only those before this instant; not with follow."),
		}, route.Followed),
	}, s.events)}
	if s.Audit != nil {
		routes = append(routes, byAdmin(followed(s, "/api/v1/audit", route.Operation{
			ID: "listAudit", Summary: "List the actions and refusals in the audit log, newest first",
			About: "Returns the audit log: each action with its caller, its address and its outcome.",
			Query: slices.Concat([]route.Parameter{
				route.Text("actor", "Only actions of this actor: a token's name, user:NAME, cli:USER or anonymous."),
				route.Text("subject", "Only actions of the user with this identifier at the provider."), route.Text("action", "Only this action, such as job.cancel."),
				route.Among("outcome", "Only entries with this outcome.", access.AuditOutcomes()...),
			}, route.Followed),
		}, s.audit)))
	}
	return routes
}

func (s *API) events(r *http.Request, q *web.Query) (growing[eventstore.Event], error) {
	times, err := window.Parse(q.Values, s.Now(), 0)
	if err == nil && !times.To.IsZero() && q.Flag("follow") {
		err = errors.New("to ends the list, and follow does not end: send one of them")
	}
	if err != nil {
		return growing[eventstore.Event]{}, web.BadRequest(err)
	}
	filter := eventstore.Filter{Types: q.Texts("type"), Role: q.Values.Get("role"), From: times.From, To: times.To}
	err = s.Source.Events.CheckTypes(r.Context(), filter.Types)
	if unknown, ok := errors.AsType[*eventstore.UnknownTypeError](err); ok {
		err = web.Refuse(http.StatusBadRequest, "type "+unknown.Error())
	}
	return growing[eventstore.Event]{
		id:    func(e eventstore.Event) int64 { return e.ID },
		at:    func(e eventstore.Event) time.Time { return e.At },
		since: !filter.From.IsZero(),
		find: func(ctx context.Context, of postgres.TailRange) ([]eventstore.Event, error) {
			filter.Before, filter.After, filter.Oldest, filter.Limit = of.Before, of.After, of.Oldest, of.Limit
			return s.Source.Events.Find(ctx, filter)
		},
	}, err
}

// audit follows the audit log. An entry is sent a second time when its action has ended.
func (s *API) audit(_ *http.Request, q *web.Query) (growing[access.AuditEntry], error) {
	filter := access.AuditFilter{Actor: q.Values.Get("actor"), Subject: q.Values.Get("subject"), Action: q.Values.Get("action"), Outcome: q.Values.Get("outcome")}
	return growing[access.AuditEntry]{
		id:   func(e access.AuditEntry) int64 { return e.ID },
		at:   func(e access.AuditEntry) time.Time { return e.At },
		mark: func(e access.AuditEntry) string { return e.Outcome },
		find: func(ctx context.Context, of postgres.TailRange) ([]access.AuditEntry, error) {
			filter.BeforeID, filter.AfterID, filter.Oldest, filter.Limit = of.Before, of.After, of.Oldest, of.Limit
			return s.Audit.List(ctx, filter)
		},
	}, nil
}
