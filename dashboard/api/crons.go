package api

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
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

func (s *API) apiCrons(w http.ResponseWriter, r *http.Request) {
	q := web.NewQuery(r)
	limit := q.Limit()
	if q.Reject(w) {
		return
	}
	s.Outlines.Forget() // the API reads its own writes
	all, err := s.Outlines.Get(r.Context())
	if err != nil {
		s.AnswerDatabaseError(w, r, err)
		return
	}
	filter := cluster.NewCronFilter(q.Values)
	page, after := filter.Page(all.At(s.Now()), filter.Named(all.Crons), limit)
	crons, err := s.ReadCrons(r.Context(), page)
	if err != nil {
		s.AnswerDatabaseError(w, r, err)
		return
	}
	next := ""
	if after != "" {
		next = q.Next("after", after)
	}
	items := make([]CronItem, 0, len(crons))
	for _, c := range crons {
		items = append(items, CronItem{Cron: c, Description: c.Describe()})
	}
	web.WriteJSON(w, http.StatusOK, web.ListOf(items, next))
}

func (s *API) apiCron(w http.ResponseWriter, r *http.Request) {
	cron, ok := s.cronOf(w, r)
	if ok {
		web.WriteJSON(w, http.StatusOK, CronDocument{CronItem{cron, cron.Describe()}, s.UpcomingTicks(cron, s.Now())})
	}
}

// cronOf reads the cron that the path names. If it returns false, it has answered the
// request. It finds removed crons too, because their history is kept.
func (s *API) cronOf(w http.ResponseWriter, r *http.Request) (cronstore.Cron, bool) {
	cron, err := s.Source.Crons.Get(r.Context(), r.PathValue("name"))
	if err != nil {
		s.AnswerError(w, r, cluster.Refuse(err))
	}
	return cron, err == nil
}

func (s *API) apiTicks(w http.ResponseWriter, r *http.Request) {
	q := web.NewQuery(r)
	before, limit := q.Time("before"), q.Limit()
	if q.Reject(w) {
		return
	}
	cron, ok := s.cronOf(w, r)
	if !ok {
		return
	}
	ticks, err := s.Source.Crons.Ticks(r.Context(), cron.Name, before, limit)
	if err != nil {
		s.AnswerDatabaseError(w, r, err)
		return
	}
	next := ""
	if len(ticks) == limit {
		next = q.Next("before", ticks[len(ticks)-1].Tick.UTC().Format(time.RFC3339Nano))
	}
	web.WriteJSON(w, http.StatusOK, web.ListOf(ticks, next))
}

// apiTick explains the verdict of one tick, even if the tick is not in the ledger.
func (s *API) apiTick(w http.ResponseWriter, r *http.Request) {
	tick, err := time.Parse(time.RFC3339Nano, r.PathValue("tick"))
	if err != nil {
		web.WriteProblem(w, http.StatusBadRequest, "The tick must be a time such as 2026-11-20T15:04:05Z.")
		return
	}
	why, err := s.Source.Explain.Why(r.Context(), r.PathValue("name"), tick)
	s.answer(w, r, http.StatusOK, why, cluster.Refuse(err))
}

// viaAPI names the API in whoAsks.
const viaAPI = "the API"

type triggerAsk struct {
	At   time.Time       `json:"at"`
	Args json.RawMessage `json:"args"`
}

func (s *API) apiTrigger(w http.ResponseWriter, r *http.Request) {
	var asked triggerAsk
	err := web.ReadJSON(w, r, &asked)
	if err == nil {
		err = cluster.Refuse(config.CheckArgs(asked.Args))
	}
	if err != nil {
		s.AnswerError(w, r, err)
		return
	}
	row, err := s.Trigger(r.Context(), cronstore.Trigger{Cron: r.PathValue("name"), At: asked.At, Args: asked.Args, By: auth.RequestOrigin(r, viaAPI)})
	if err != nil {
		s.AnswerError(w, r, err)
		return
	}
	w.Header().Set(route.LocationHeader, "/api/v1/jobs/"+strconv.FormatInt(row.JobID, 10))
	web.WriteJSON(w, http.StatusCreated, row)
}

func (s *API) apiPause(w http.ResponseWriter, r *http.Request) { s.apiSetCronPaused(w, r, true) }

func (s *API) apiResume(w http.ResponseWriter, r *http.Request) {
	s.apiSetCronPaused(w, r, false)
}

// heldDocument is a cron and whether the request changed its state.
type heldDocument struct {
	cronstore.Cron
	Changed bool `json:"changed"`
}

func (s *API) apiSetCronPaused(w http.ResponseWriter, r *http.Request, pause bool) {
	if err := web.ReadJSON(w, r, &struct{}{}); err != nil {
		s.AnswerError(w, r, err)
		return
	}
	cron, changed, err := s.SetCronPaused(r.Context(), r.PathValue("name"), auth.RequestOrigin(r, viaAPI), pause)
	s.answer(w, r, http.StatusOK, heldDocument{cron, changed}, err)
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

func (s *API) apiBackfill(w http.ResponseWriter, r *http.Request) {
	var asked backfillAsk
	err := web.ReadJSON(w, r, &asked)
	var span cronstore.Span
	if err == nil {
		span, err = cluster.NewSpan(r.PathValue("name"), asked.From, asked.To, asked.Limit)
	}
	if err != nil {
		s.AnswerError(w, r, err)
		return
	}
	b, ran, err := s.Backfill(r.Context(), span, auth.RequestOrigin(r, viaAPI), asked.DryRun)
	if err != nil {
		s.AnswerError(w, r, cluster.Interrupted(err, ran))
		return
	}
	web.WriteJSON(w, http.StatusOK, backfillDocument{b, asked.DryRun, ran})
}
