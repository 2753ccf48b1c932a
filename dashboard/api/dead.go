package api

import (
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/config"
	search "github.com/forge-scheduler/forge/internal/filter"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

// deadAsk is the JSON form of a filter of dead letters.
type deadAsk struct {
	IDs       []int64 `json:"ids"`
	Group     string  `json:"group"`
	Kind      string  `json:"kind"`
	Error     string  `json:"error"`
	OlderThan string  `json:"older_than"`
	NewerThan string  `json:"newer_than"`
	// Filter narrows the other fields, as in the lists.
	Filter string `json:"filter"`
	All    bool   `json:"all"`
	DryRun bool   `json:"dry_run"`
}

// filter returns the filter. A filter that names all dead letters must say so with all.
func (a deadAsk) filter() (filter jobstore.DeadFilter, err error) {
	filter, wrong := a.parts()
	named := a.IDs != nil || a.Group != "" || a.Kind != "" || a.Error != "" || a.OlderThan != "" || a.NewerThan != "" || a.Filter != ""
	if named == a.All {
		wrong = append(wrong, web.WrongBody("one or more of ids, group, kind, error, older_than, newer_than and filter are required, or all alone"))
	}
	return filter, web.WrongFields(wrong...)
}

// parts returns the filter without checking that it names anything.
func (a deadAsk) parts() (filter jobstore.DeadFilter, wrong []web.FieldError) {
	where, err := search.Parse(a.Filter, jobstore.DeadKeys)
	if err != nil {
		wrong = append(wrong, web.FieldError{Pointer: "#/filter", Detail: err.Error(), Whole: err.Error()})
	}
	filter = jobstore.DeadFilter{IDs: a.IDs, Group: a.Group, Kind: a.Kind, Error: a.Error, Where: where}
	for _, age := range []struct {
		name, text string
		value      *time.Duration
	}{{"older_than", a.OlderThan, &filter.OlderThan}, {"newer_than", a.NewerThan, &filter.NewerThan}} {
		if age.text == "" {
			continue
		}
		d, err := config.ParseDuration(age.text)
		if err != nil || d <= 0 {
			wrong = append(wrong, web.WrongField(age.name, "must be a duration such as 90s, 6h or 2d"))
			continue
		}
		*age.value = d.Std()
	}
	return filter, wrong
}

const actsOnManyDead = " At least one field of the filter is required, or `all` alone. `dry_run` counts the dead letters and changes nothing. One request changes 20,000 at most; a filter with more is refused with 422."

func (s *API) deadRoutes() []route.Route {
	filters := []route.Parameter{
		route.Text("kind", "Only of this kind."), route.Text("error", "Only dead letters with this text in their error."),
		filterParameter("kind:send* error:timeout since:2h", jobstore.DeadKeys), route.Text("older_than", "Only jobs that died longer ago than this, such as 6h or 2d."), route.Text("newer_than", "Only jobs that died more recently than this, such as 6h or 2d."),
	}
	pages := slices.Concat(filters, route.PagedByID)
	idOf := func(l jobstore.DeadLetter) int64 { return l.ID }
	routes := []route.Route{
		get(s, "/api/v1/dead", route.Operation{
			ID: "listDeadGroups", Summary: "List the dead letters by kind and error", Query: append(slices.Clip(filters), sortParameter(jobstore.DeadOrders)),
			About: "Returns the dead letters in groups of one kind and one error. The list is complete.",
		}, func(r *http.Request, q *web.Query) (groups web.List[jobstore.DeadGroup], err error) {
			sort := cluster.SortOf(q, jobstore.DeadOrders.Names())
			filter, err := deadFilter(q)
			if err != nil {
				return groups, err
			}
			found, err := s.Source.Dead.DeadGroups(r.Context(), filter)
			return web.ListOf(jobstore.DeadOrders.Sort(sort, found), ""), err
		}),
		paged(s, "/api/v1/dead-letters", route.Operation{
			ID: "listDeadLetters", Summary: "List the dead letters, newest first", Query: pages,
			About: "Returns the jobs that have failed for good and were neither retried nor discarded.",
		}, idOf, s.deadLetters),
		paged(s, "/api/v1/dead/{group}", route.Operation{
			ID: "listDeadLettersOfGroup", Summary: "List the dead letters of a group, newest first", Query: pages,
			About: "Returns the dead letters of one group. An empty group is answered with 404.",
		}, idOf, s.deadLetters),
	}
	if s.DeadLetterOps == nil {
		return routes
	}
	for action, about := range map[jobstore.Action]string{
		jobstore.Discard: "Removes the dead letters that match the filter from the list, without another attempt.",
		jobstore.Retry:   "Makes the dead letters that match the filter available again.",
	} {
		routes = append(routes, post(s, "/api/v1/bulk/dead/"+string(action), route.Operation{
			ID: string(action) + "DeadLetters", Summary: format.Capital(string(action)) + " all dead letters that match a filter", About: about + actsOnManyDead,
		}, func(c *call, body deadAsk) (done cluster.BulkDocument, err error) {
			filter, err := body.filter()
			if err != nil {
				return done, err
			}
			return s.ActOnDead(c.Context(), jobstore.Order{Action: action, By: c.by}, filter, jobstore.Matching{}, body.DryRun)
		}))
	}
	return routes
}

// deadFilter returns the filter of a list of dead letters.
func deadFilter(q *web.Query) (jobstore.DeadFilter, error) {
	filter, wrong := deadAsk{
		Kind: q.Values.Get("kind"), Error: q.Values.Get("error"), OlderThan: q.Values.Get("older_than"), NewerThan: q.Values.Get("newer_than"),
		Filter: q.Values.Get("filter"),
	}.parts()
	for _, one := range wrong {
		q.Errs = append(q.Errs, errors.New(one.Whole))
	}
	return filter, q.Err()
}

// deadLetters lists the dead letters of a group, or of all groups.
func (s *API) deadLetters(r *http.Request, q *web.Query) ([]jobstore.DeadLetter, error) {
	filter, err := deadFilter(q)
	if err != nil {
		return nil, err
	}
	filter.Group = r.PathValue("group")
	before := q.Number("before")
	letters, err := s.Source.Dead.DeadLetters(r.Context(), filter, before, q.Limit())
	if err == nil && len(letters) == 0 && before == 0 && filter.Group != "" {
		return nil, cluster.ErrNoSuchGroup
	}
	return letters, err
}
