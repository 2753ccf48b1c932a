package api

import (
	"fmt"
	"slices"
	"strings"

	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/filter"
)

// pauseAsk is the body of pausing or resuming a cron.
type pauseAsk struct {
	Reason string `json:"reason"`
}

// pauseManyAsk selects the crons to pause or to resume.
type pauseManyAsk struct {
	Names []string `json:"names"`
	Q     string   `json:"q"`
	Is    string   `json:"is"`
	// Filter narrows the other fields, as in the list.
	Filter string `json:"filter"`
	All    bool   `json:"all"`
	Reason string `json:"reason"`
	DryRun bool   `json:"dry_run"`
}

type undoAsk struct {
	Operation string `json:"operation" body:"required"`
	Reason    string `json:"reason"`
}

// checked returns the filter of the crons. A request for all crons must say so with all.
func (a pauseManyAsk) checked() (f cluster.CronFilter, err error) {
	where, err := filter.Parse(a.Filter, cronstore.FilterTable.Keys())
	var wrong []web.FieldError
	if err != nil {
		wrong = append(wrong, web.FieldError{Pointer: "#/filter", Detail: err.Error(), Whole: err.Error()})
	}
	filtered := a.Q != "" || a.Is != "" || a.Filter != ""
	if chosen := []bool{len(a.Names) > 0, filtered, a.All}; len(slices.DeleteFunc(chosen, func(is bool) bool { return !is })) != 1 {
		wrong = append(wrong, web.WrongBody("names are required, or one or more of q, is and filter, or all alone"))
	}
	if a.Is != "" && !slices.Contains(cluster.CronFilters, a.Is) {
		wrong = append(wrong, web.WrongField("is", "must be one of "+strings.Join(cluster.CronFilters, ", ")))
	}
	if len(a.Names) > cluster.MaxBulk {
		wrong = append(wrong, web.WrongField("names", fmt.Sprintf("must have at most %d names", cluster.MaxBulk)))
	}
	return cluster.CronFilter{Names: a.Names, Text: a.Q, Is: a.Is, Where: where}, web.WrongFields(wrong...)
}

const pausesMany = " `names` selects crons, `q`, `is` and `filter` those of the list, `all` all of them. Crons that are in the state already do not change. `dry_run` counts the others and changes nothing. " +
	"One request changes 20,000 at most; a filter with more is refused with 422. `operation` of the answer undoes it."

func (s *API) pauseManyRoutes() (routes []route.Route) {
	for action, about := range map[string]string{
		"pause":  "Pauses the crons that match the filter.",
		"resume": "Resumes the crons that match the filter.",
	} {
		routes = append(routes, post(s, "/api/v1/bulk/crons/"+action, route.Operation{
			ID: action + "Crons", Summary: format.Capital(action) + " all crons that match a filter", About: about + pausesMany,
		}, s.pauseMany(action == "pause")))
	}
	return append(routes, post(s, "/api/v1/bulk/crons/undo", route.Operation{
		ID: "undoPauses", Summary: "Undo pausing or resuming many crons",
		About: "Undoes an operation on many crons for those that nobody has paused or resumed since. If there are none, it is refused with 409.",
	}, func(c *call, body undoAsk) (done cluster.UndonePauses, err error) {
		if body.Operation == "" {
			return done, web.WrongFields(web.WrongField("operation", "is missing"))
		}
		return s.UndoPauses(c.Context(), body.Operation, cronstore.PauseOrder{By: c.by, Reason: body.Reason})
	}))
}

func (s *API) pauseMany(paused bool) func(*call, pauseManyAsk) (cluster.PauseManyDocument, error) {
	return func(c *call, body pauseManyAsk) (done cluster.PauseManyDocument, err error) {
		selected, err := body.checked()
		if err != nil {
			return done, err
		}
		return s.PauseAll(c.Context(), selected, paused, cronstore.PauseOrder{By: c.by, Reason: body.Reason}, 0, body.DryRun)
	}
}

func (s *API) setCronPaused(paused bool) func(*call, pauseAsk) (heldDocument, error) {
	return func(c *call, body pauseAsk) (heldDocument, error) {
		cron, changed, err := s.SetCronPaused(c.Context(), c.PathValue("name"), paused, cronstore.PauseOrder{By: c.by, Reason: body.Reason})
		return heldDocument{cron, changed}, err
	}
}
