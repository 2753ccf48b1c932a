package dashboard

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/explain"
)

type cronItem struct {
	cronstore.Cron
	Description string `json:"description,omitempty"`
}

// cronDocument is one cron with its next ticks.
type cronDocument struct {
	cronItem
	Coming []explain.Coming `json:"coming"`
}

// defaultUpcoming is how many upcoming ticks are shown by default.
const defaultUpcoming = 5

func (s *apiServer) apiCrons(w http.ResponseWriter, r *http.Request) {
	q := newQuery(r)
	limit := q.limit()
	if q.reject(w) {
		return
	}
	s.outlines.forget() // the API reads its own writes
	all, err := s.outlines.get(r.Context())
	if err != nil {
		s.answerDatabaseError(w, r, err)
		return
	}
	filter := newCronFilter(q.values)
	page, after := filter.page(all.at(s.Now()), filter.named(all.crons), limit)
	crons, err := s.readCrons(r.Context(), page)
	if err != nil {
		s.answerDatabaseError(w, r, err)
		return
	}
	next := ""
	if after != "" {
		next = q.next("after", after)
	}
	items := make([]cronItem, 0, len(crons))
	for _, c := range crons {
		items = append(items, cronItem{Cron: c, Description: c.Describe()})
	}
	writeJSON(w, http.StatusOK, listOf(items, next))
}

func (s *apiServer) apiCron(w http.ResponseWriter, r *http.Request) {
	cron, ok := s.cronOf(w, r)
	if ok {
		writeJSON(w, http.StatusOK, cronDocument{cronItem{cron, cron.Describe()}, s.upcomingTicks(cron, s.Now())})
	}
}

// upcomingTicks returns the next ticks of a cron. There are none if the cron is paused or
// removed, or if its schedule cannot be parsed.
func (s *clusterState) upcomingTicks(cron cronstore.Cron, now time.Time) []explain.Coming {
	none := []explain.Coming{}
	if cron.Paused() || !cron.RemovedAt.IsZero() {
		return none
	}
	ticks, err := explain.Next(cron.Name, cron.Spec, now, defaultUpcoming)
	if err != nil {
		return none
	}
	return ticks
}

// cronOf reads the cron that the path names. If it returns false, it has answered the
// request. It finds removed crons too, because their history is kept.
func (s *apiServer) cronOf(w http.ResponseWriter, r *http.Request) (cronstore.Cron, bool) {
	cron, err := s.Source.Crons.Get(r.Context(), r.PathValue("name"))
	if err != nil {
		s.answerError(w, r, refuse(err))
	}
	return cron, err == nil
}

// answerError writes the answer to a failed request.
func (s *responder) answerError(w http.ResponseWriter, r *http.Request, err error) {
	if no, ok := errors.AsType[*refusal](err); ok {
		s.fail(w, r, no.status, no.detail)
		return
	}
	if wrong, ok := errors.AsType[invalidError](err); ok {
		s.refuseFields(w, r, wrong)
		return
	}
	if r.Method == http.MethodPost {
		s.logger.ErrorContext(r.Context(), "carry out a request", "path", r.URL.Path, "error", err)
		s.fail(w, r, http.StatusServiceUnavailable, "The request failed: the database did not answer, or rejected it.")
		return
	}
	s.answerDatabaseError(w, r, err)
}

func (s *apiServer) apiTicks(w http.ResponseWriter, r *http.Request) {
	q := newQuery(r)
	before, limit := q.time("before"), q.limit()
	if q.reject(w) {
		return
	}
	cron, ok := s.cronOf(w, r)
	if !ok {
		return
	}
	ticks, err := s.Source.Crons.Ticks(r.Context(), cron.Name, before, limit)
	if err != nil {
		s.answerDatabaseError(w, r, err)
		return
	}
	next := ""
	if len(ticks) == limit {
		next = q.next("before", ticks[len(ticks)-1].Tick.UTC().Format(time.RFC3339Nano))
	}
	writeJSON(w, http.StatusOK, listOf(ticks, next))
}

// apiTick explains the verdict of one tick, even if the tick is not in the ledger.
func (s *apiServer) apiTick(w http.ResponseWriter, r *http.Request) {
	tick, err := time.Parse(time.RFC3339Nano, r.PathValue("tick"))
	if err != nil {
		writeProblem(w, http.StatusBadRequest, "The tick must be a time such as 2026-11-20T15:04:05Z.")
		return
	}
	why, err := s.Source.Explain.Why(r.Context(), r.PathValue("name"), tick)
	if err != nil {
		s.answerError(w, r, refuse(err))
		return
	}
	writeJSON(w, http.StatusOK, why)
}

// viaAPI names the API in whoAsks.
const viaAPI = "the API"

type triggerAsk struct {
	At   time.Time       `json:"at"`
	Args json.RawMessage `json:"args"`
}

func (s *apiServer) apiTrigger(w http.ResponseWriter, r *http.Request) {
	var asked triggerAsk
	err := readJSON(w, r, &asked)
	if err == nil {
		err = refuse(config.CheckArgs(asked.Args))
	}
	if err != nil {
		s.answerError(w, r, err)
		return
	}
	row, err := s.trigger(r.Context(), cronstore.Trigger{Cron: r.PathValue("name"), At: asked.At, Args: asked.Args, By: requestOrigin(r, viaAPI)})
	if err != nil {
		s.answerError(w, r, err)
		return
	}
	w.Header().Set(locationHeader, "/api/v1/jobs/"+strconv.FormatInt(row.JobID, 10))
	writeJSON(w, http.StatusCreated, row)
}

func (s *apiServer) apiPause(w http.ResponseWriter, r *http.Request) { s.apiSetCronPaused(w, r, true) }

func (s *apiServer) apiResume(w http.ResponseWriter, r *http.Request) {
	s.apiSetCronPaused(w, r, false)
}

// heldDocument is a cron and whether the request changed its state.
type heldDocument struct {
	cronstore.Cron
	Changed bool `json:"changed"`
}

func (s *apiServer) apiSetCronPaused(w http.ResponseWriter, r *http.Request, pause bool) {
	if err := readJSON(w, r, &struct{}{}); err != nil {
		s.answerError(w, r, err)
		return
	}
	cron, changed, err := s.setCronPaused(r.Context(), r.PathValue("name"), requestOrigin(r, viaAPI), pause)
	if err != nil {
		s.answerError(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, heldDocument{cron, changed})
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

func (s *apiServer) apiBackfill(w http.ResponseWriter, r *http.Request) {
	var asked backfillAsk
	err := readJSON(w, r, &asked)
	var span cronstore.Span
	if err == nil {
		span, err = newSpan(r.PathValue("name"), asked.From, asked.To, asked.Limit)
	}
	if err != nil {
		s.answerError(w, r, err)
		return
	}
	b, ran, err := s.backfill(r.Context(), span, requestOrigin(r, viaAPI), asked.DryRun)
	if err != nil {
		s.answerError(w, r, interrupted(err, ran))
		return
	}
	writeJSON(w, http.StatusOK, backfillDocument{b, asked.DryRun, ran})
}

// interrupted returns an error that names how many ticks a backfill ran before it failed.
func interrupted(err error, ran int) error {
	if ran == 0 {
		return err
	}
	return &refusal{http.StatusServiceUnavailable, "The backfill stopped after " + plural(ran, "tick", "ticks") + ". Repeat the request to continue."}
}
