package api

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/dashboard/window"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/explain"
)

// CronItem is a cron in a list.
type CronItem struct {
	cronstore.Cron
	Description string `json:"description,omitempty"`
}

// CronDocument is one cron with its next ticks.
type CronDocument struct {
	CronItem
	Coming []explain.Coming `json:"coming"`
}

// foreseen lists the next ticks of a schedule.
type foreseen struct {
	Schedule    string           `json:"schedule"`
	Timezone    string           `json:"timezone"`
	Description string           `json:"description"`
	Items       []explain.Coming `json:"items"`
}

type triggerAsk struct {
	At   time.Time       `json:"at"`
	Args json.RawMessage `json:"args"`
}

// heldDocument is a cron and whether the request changed its state.
type heldDocument struct {
	cronstore.Cron
	Changed bool `json:"changed"`
}

type backfillAsk struct {
	From   time.Time `json:"from" body:"required"`
	To     time.Time `json:"to" body:"required"`
	Limit  int       `json:"limit"`
	DryRun bool      `json:"dry_run"`
}

// backfillDocument describes what a backfill ran, or what it would run.
type backfillDocument struct {
	cronstore.Backfill
	DryRun bool `json:"dry_run"`
	Ran    int  `json:"ran"`
}

// maxNext is the maximum number of ticks that one request computes.
const maxNext = 1000

const changesNothingTwice = " `changed` is false if nothing had to change."

func (s *API) cronRoutes() []route.Route {
	next := []route.Parameter{
		route.Instant("from", "After this instant; by default now."), route.Bounded("limit", "How many", maxNext, cluster.DefaultUpcoming),
	}
	routes := []route.Route{
		get(s, "/api/v1/crons", route.Operation{
			ID: "listCrons", Summary: "List the crons by name", About: "Returns the crons that match the filter, by name. Another order has one page.",
			Query: slices.Concat([]route.Parameter{
				route.Text("q", "Only crons with this text in their name or job."), route.Among("is", "Only crons in this state.", cluster.CronFilters...),
				filterParameter("cron:nightly* next:<1h", cronstore.FilterTable.Keys()), sortParameter(cronstore.Orders),
			}, route.Paged),
		}, s.listCrons),
		get(s, "/api/v1/crons/{name}", route.Operation{
			ID: "getCron", Summary: "Show a cron with its next ticks",
			About: "Returns the cron with its definition, its state and its next five ticks. A removed cron is found as long as its history is kept.",
		}, func(r *http.Request, _ *web.Query) (CronDocument, error) {
			cron, err := s.cronOf(r)
			return CronDocument{CronItem{cron, cron.Describe()}, s.UpcomingTicks(cron, s.Now())}, err
		}),
		get(s, "/api/v1/crons/{name}/next", route.Operation{
			ID: "listNextTicks", Summary: "List the next ticks of a cron", Query: next,
			About: "Returns the next ticks of the cron. Ticks that daylight saving time leaves out are not listed.",
		}, s.listNext),
		get(s, "/api/v1/next", route.Operation{
			ID: "listNextTicksOfSchedule", Summary: "List the next ticks of an expression",
			About: "Returns the next ticks of an expression, and the expression in words.",
			Query: slices.Concat([]route.Parameter{
				{Name: "schedule", Kind: "string", About: "An expression such as */5 * * * *.", Required: true}, route.Text("timezone", "Its time zone; by default UTC."),
			}, next),
		}, s.listNextOfSchedule),
		get(s, "/api/v1/crons/{name}/ticks", route.Operation{
			ID: "listTicks", Summary: "List a cron's ticks, newest first", About: "Returns the recorded ticks of the cron, each with its verdict.",
			Query: slices.Concat([]route.Parameter{route.Instant("before", "Only those before this instant."), route.Instant("from", "Only those from this instant on."), route.Instant("to", "Only those before this instant, like before, for all pages.")}, route.Paged),
		}, s.listTicks),
		get(s, "/api/v1/crons/{name}/ticks/{tick}", route.Operation{
			ID: "explainTick", Summary: "Explain the verdict of a tick", About: "Returns the verdict of one tick with its reason, even if the tick is not recorded.",
		}, s.explainTick),
	}
	if !s.Operates() {
		return routes
	}
	routes = append(routes, s.pauseManyRoutes()...)
	return append(routes,
		post(s, "/api/v1/crons/{name}/trigger", route.Operation{
			ID: "triggerCron", Summary: "Run a cron now, or a tick of it that did not run", Traced: true,
			Reply: route.Reply{Status: http.StatusCreated, Headers: []string{route.LocationHeader}},
			About: "Runs the cron now, or runs the tick `at` if it did not run. The answer names the job.",
		}, s.trigger),
		post(s, "/api/v1/crons/{name}/pause", route.Operation{
			ID: "pauseCron", Summary: "Pause a cron", About: "Stops the cron from firing. Running jobs continue. The cron's page shows the reason." + changesNothingTwice,
		}, s.setCronPaused(true)),
		post(s, "/api/v1/crons/{name}/resume", route.Operation{
			ID: "resumeCron", Summary: "Resume a cron", About: "Lets a paused cron fire again." + changesNothingTwice,
		}, s.setCronPaused(false)),
		post(s, "/api/v1/crons/{name}/backfill", route.Operation{
			ID: "backfillCron", Summary: "Run the ticks of a time range that have no job", Traced: true,
			About: "Runs the ticks from `from` up to `to` that have no job, oldest first. `dry_run` lists them and runs none.",
		}, s.backfill))
}

func (s *API) listCrons(r *http.Request, q *web.Query) (page web.List[CronItem], err error) {
	filter := cluster.NewCronFilter(q)
	if err := q.Err(); err != nil {
		return page, err
	}
	all, err := s.Outline(r.Context(), filter)
	if err != nil {
		return page, err
	}
	at := all.At(s.Now())
	outlined, after := filter.Page(at, filter.Select(at, all.Crons), q.Limit())
	crons, err := s.ReadCrons(r.Context(), outlined)
	items := make([]CronItem, len(crons))
	for i, c := range crons {
		items[i] = CronItem{Cron: c, Description: c.Describe()}
	}
	next := ""
	if after != "" {
		next = q.Next("after", after)
	}
	return web.ListOf(items, next), err
}

// cronOf reads the cron that the path names. It finds removed crons too, because their
// history is kept.
func (s *API) cronOf(r *http.Request) (cronstore.Cron, error) {
	return s.Source.Crons.Get(r.Context(), r.PathValue("name"))
}

func (s *API) listTicks(r *http.Request, q *web.Query) (page web.List[cronstore.Tick], err error) {
	cron, err := s.cronOf(r)
	if err != nil {
		return page, err
	}
	times, err := window.Parse(q.Values, s.Now(), 0)
	if err != nil {
		return page, web.BadRequest(err)
	}
	before := q.Time("before")
	if !times.To.IsZero() && (before.IsZero() || times.To.Before(before)) {
		before = times.To
	}
	ticks, err := s.Source.Crons.TicksBetween(r.Context(), cron.Name, times.From, before, q.Limit())
	return pageOf(q, ticks, len(ticks) == q.Limit(), "before", func(last cronstore.Tick) string { return last.Tick.UTC().Format(time.RFC3339Nano) }), err
}

// explainTick explains the verdict of one tick, even if the tick is not in the ledger.
func (s *API) explainTick(r *http.Request, _ *web.Query) (why explain.Explanation, err error) {
	tick, err := time.Parse(time.RFC3339Nano, r.PathValue("tick"))
	if err != nil {
		return why, web.Refuse(http.StatusBadRequest, "The tick must be a time such as 2026-11-20T15:04:05Z.")
	}
	return s.Source.Explain.Why(r.Context(), r.PathValue("name"), tick)
}

// nextRange returns the instant after which ticks are computed, and how many.
func (s *API) nextRange(q *web.Query) (from time.Time, count int) {
	if from = q.Time("from"); from.IsZero() {
		from = s.Now()
	}
	return from, q.UpTo("limit", cluster.DefaultUpcoming, maxNext)
}

// listNextOfSchedule computes the next ticks of a schedule that need not belong to a cron.
func (s *API) listNextOfSchedule(_ *http.Request, q *web.Query) (next foreseen, err error) {
	spec := cronstore.Spec{Schedule: q.Values.Get("schedule"), Timezone: cmp.Or(q.Values.Get("timezone"), "UTC")}
	if spec.Schedule == "" {
		return next, web.BadRequest(errors.New("schedule must be an expression such as */5 * * * *"))
	}
	schedule, err := spec.Parse("")
	if err != nil {
		return next, web.BadRequest(err)
	}
	from, count := s.nextRange(q)
	ticks, err := explain.Next("", spec, from, count)
	if err != nil {
		return next, web.BadRequest(err)
	}
	return foreseen{spec.Schedule, spec.Timezone, schedule.Describe(), ticks}, nil
}

func (s *API) listNext(r *http.Request, q *web.Query) (page web.List[explain.Coming], err error) {
	cron, err := s.cronOf(r)
	if err != nil {
		return page, err
	}
	from, count := s.nextRange(q)
	ticks, err := explain.Next(cron.Name, cron.Spec, from, count)
	if err != nil {
		return page, web.Refuse(http.StatusConflict, "The schedule was written by another version of forge: "+err.Error()+".")
	}
	return web.ListOf(ticks, ""), nil
}

func (s *API) trigger(c *call, body triggerAsk) (row cronstore.Tick, err error) {
	if err := config.CheckArgs(body.Args); err != nil {
		return row, err
	}
	row, err = s.Trigger(c.parent().Into(c.Context()), cronstore.Trigger{Cron: c.PathValue("name"), At: body.At, Args: body.Args, By: c.by})
	c.location = jobAddress(row.JobID)
	return row, err
}

func (s *API) backfill(c *call, body backfillAsk) (done backfillDocument, err error) {
	span, err := cluster.NewSpan(c.PathValue("name"), body.From, body.To, body.Limit)
	if err != nil {
		return done, err
	}
	b, ran, err := s.Backfill(c.parent().Into(c.Context()), span, c.by, body.DryRun)
	return backfillDocument{b, body.DryRun, ran}, err
}
