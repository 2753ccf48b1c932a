package pages

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/eventstore"
	search "github.com/forge-scheduler/forge/internal/filter"
)

var bulkCronKeys = append([]string{"q", "is", "filter", "sort", "name"}, cronFields...)

// hold is an action on many crons.
type hold struct {
	action, icon string
	paused       bool
}

var holds = []hold{{"pause", "pause", true}, {"resume", "play", false}}

// cronFilterOf returns the filter of a page: the text in the bar, narrowed by the fields of
// the form.
func cronFilterOf(req *request) cluster.CronFilter {
	filter := cluster.NewCronFilter(&req.Query)
	filter.Where = search.New(append(filter.Where.Terms(), fieldTerms(req, cronstore.FilterTable.Keys(), cronFields)...)...)
	return filter
}

// cronValues encodes a filter and more parameters for an address.
func cronValues(f cluster.CronFilter, more ...string) string {
	return web.Encode(append([]string{"q", f.Text, "filter", f.Where.String(), "is", f.Is, "sort", f.Sort}, more...)...)
}

// holdAll adds the buttons for actions on the selected crons, and on all that match the filter,
// which are paused or not.
func (b *cronsBody) holdAll(filter cluster.CronFilter, all int, paused int) {
	filter.Sort, filter.After = "", ""
	for _, hold := range holds {
		b.Picks = append(b.Picks, act{"/bulk/crons/" + hold.action, format.Capital(hold.action) + " selected", hold.icon})
		if hold.paused && all > paused || !hold.paused && paused > 0 {
			b.Acts = append(b.Acts, act{"/bulk/crons/" + hold.action + "?" + cronValues(filter), format.Capital(hold.action) + " all", hold.icon})
		}
	}
}

// undoable is what a form has done to many crons.
type undoable struct {
	Text string
	// Operation undoes it; empty if nothing was changed.
	Operation string
}

func undoableOf(req *request) *undoable {
	n, err := strconv.Atoi(req.Values.Get("n"))
	did := map[string]string{"pause": "paused", "resume": "resumed"}[req.Values.Get("did")]
	if err != nil || did == "" {
		return nil
	}
	return &undoable{format.Plural(n, "cron was ", "crons were ") + did + ".", req.Values.Get("operation")}
}

// bulkCronsBody is the confirmation page of pausing or resuming many crons.
type bulkCronsBody struct {
	base
	Action, Title, Icon string
	Filter              cluster.CronFilter
	Named               []fact
	Crons               int
	// AsOf is the time of the count. Crons that were added later are not changed.
	AsOf          string
	What, Refused string
	Most          int
	Back          string
}

var holdEffects = map[bool]string{
	true:  "They do not fire until they are resumed. Ticks that are due meanwhile are recorded and not caught up. Running jobs continue.",
	false: "They fire again from now on. Ticks of the pause are not caught up.",
}

// loadBulkCrons loads the confirmation page.
func loadBulkCrons(paused bool) func(*Pages, context.Context, *request) (body, error) {
	return func(s *Pages, ctx context.Context, req *request) (body, error) {
		filter := cronFilterOf(req)
		names, err := pickedNames(req.Values["name"])
		if err = cmp.Or(err, filter.CheckCondition(), req.err()); err != nil {
			return nil, err
		}
		back := filter
		filter.Names = names
		facts, err := s.cluster(ctx)
		if err != nil {
			return nil, err
		}
		hold := holdOf(paused)
		b := &bulkCronsBody{
			base:   base{name: format.Capital(hold.action) + " crons", beat: s.pulseOf(facts)},
			Action: hold.action, Title: format.Capital(hold.action), Icon: hold.icon, Filter: filter,
			What: holdEffects[paused], Most: eventstore.MaxReason, Back: "/crons?" + cronValues(back),
		}
		return b, s.countBulkCrons(ctx, b, paused)
	}
}

func holdOf(paused bool) hold {
	if paused {
		return holds[0]
	}
	return holds[1]
}

// countBulkCrons counts the crons that match the filter.
func (s *Pages) countBulkCrons(ctx context.Context, b *bulkCronsBody, paused bool) error {
	matching, asOf, err := s.CronsToPause(ctx, b.Filter, paused)
	if err != nil {
		return err
	}
	b.Crons, b.AsOf = len(matching), asOf.UTC().Format(time.RFC3339Nano)
	b.Named = withoutEmpty([]fact{{"Selected", strings.Join(b.Filter.Names, ", ")}, {"Name or job", b.Filter.Text}, {"Condition", b.Filter.Is}, {"Filter", b.Filter.Where.String()}})
	if b.Named == nil {
		b.Named = []fact{{"Filter", "none: all crons"}}
	}
	if err := cluster.CheckPauseCount(b.Crons, paused); err != nil {
		b.Refused = err.Error()
	}
	return nil
}

// pickedNames checks the names of selected crons.
func pickedNames(names []string) ([]string, error) {
	if len(names) > web.MaxLimit {
		return nil, web.Refuse(http.StatusUnprocessableEntity, fmt.Sprintf("%d crons are selected, but at most %d can be.", len(names), web.MaxLimit))
	}
	return names, nil
}

// formHoldMany pauses or resumes the crons that were confirmed.
func (s *Pages) formHoldMany(paused bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		fields, ok := s.Form(w, r)
		if !ok {
			return
		}
		req := &request{Query: web.Query{Values: fields}}
		filter := cronFilterOf(req)
		done, err := s.holdMany(r.Context(), filter, paused, auth.RequestOrigin(r, viaPage), req)
		if err != nil {
			s.AnswerError(w, r, err)
			return
		}
		redirectWithNotice(w, r, "/crons?"+cronValues(filter, "did", holdOf(paused).action, "n", strconv.Itoa(done.Changed), "operation", done.Operation))
	}
}

func (s *Pages) holdMany(ctx context.Context, filter cluster.CronFilter, paused bool, by string, req *request) (done cluster.PauseManyDocument, err error) {
	if err := req.err(); err != nil {
		return done, err
	}
	order := cronstore.PauseOrder{By: by, Reason: strings.TrimSpace(req.Values.Get("reason"))}
	if filter.Names, err = pickedNames(req.Values["name"]); err != nil {
		return done, err
	}
	counted, err := countedCrons(req.Values, &order)
	if err == nil {
		err = filter.CheckCondition()
	}
	if err != nil {
		return done, err
	}
	return s.PauseAll(ctx, filter, paused, order, counted, false)
}

// countedCrons returns how many crons a confirmation page has counted.
func countedCrons(fields url.Values, order *cronstore.PauseOrder) (counted int, err error) {
	if counted, err = strconv.Atoi(fields.Get("counted")); err != nil || counted < 1 {
		return 0, web.Refuse(http.StatusBadRequest, "The form lacks counted, the number of crons that were counted.")
	}
	if order.AsOf, err = time.Parse(time.RFC3339Nano, fields.Get("as_of")); err != nil {
		return 0, web.Refuse(http.StatusBadRequest, "as_of must be the time of the count.")
	}
	return counted, nil
}

// formUndoHold undoes what a form has done to many crons.
func (s *Pages) formUndoHold(w http.ResponseWriter, r *http.Request) {
	fields, ok := s.Form(w, r)
	if !ok {
		return
	}
	req := &request{Query: web.Query{Values: fields}}
	filter := cronFilterOf(req)
	if err := req.err(); err != nil {
		s.AnswerError(w, r, err)
		return
	}
	done, err := s.UndoPauses(r.Context(), fields.Get("operation"), cronstore.PauseOrder{By: auth.RequestOrigin(r, viaPage)})
	if err != nil {
		s.AnswerError(w, r, err)
		return
	}
	redirectWithNotice(w, r, "/crons?"+cronValues(filter, "did", holdOf(done.Paused).action, "n", strconv.Itoa(done.Changed), "operation", done.Operation))
}

// holdRoutes are the routes of actions on many crons.
func (s *Pages) holdRoutes() (routes []route.Route) {
	for _, hold := range holds {
		routes = append(routes, route.Route{Path: "/bulk/crons/" + hold.action, Get: s.page("bulkcron" + hold.action), Post: s.formHoldMany(hold.paused), Read: route.Operator, Write: route.Operator})
	}
	return append(routes, route.Route{Path: "/bulk/crons/undo", Post: s.formUndoHold, Write: route.Operator})
}
