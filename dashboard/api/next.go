package api

import (
	"cmp"
	"errors"
	"net/http"
	"time"

	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/explain"
)

// maxNext is the maximum number of ticks that one request computes.
const maxNext = 1000

// nextParameters are the parameters of the routes that compute ticks.
var nextParameters = []route.Parameter{
	route.Instant("from", "After this instant; by default now."), route.Bounded("limit", "How many", maxNext, cluster.DefaultUpcoming),
}

// foreseen lists the next ticks of a schedule.
type foreseen struct {
	Schedule    string           `json:"schedule"`
	Timezone    string           `json:"timezone"`
	Description string           `json:"description"`
	Items       []explain.Coming `json:"items"`
}

// apiNextOfSchedule computes the next ticks of a schedule that need not belong to a cron.
func (s *API) apiNextOfSchedule(w http.ResponseWriter, r *http.Request) {
	q := web.NewQuery(r)
	from, count := s.nextRange(q)
	if q.Values.Get("schedule") == "" {
		q.Errs = append(q.Errs, errors.New("schedule must be an expression such as */5 * * * *"))
	}
	if q.Reject(w) {
		return
	}
	spec := cronstore.Spec{Schedule: q.Values.Get("schedule"), Timezone: cmp.Or(q.Values.Get("timezone"), "UTC")}
	schedule, err := spec.Parse("")
	var ticks []explain.Coming
	if err == nil {
		ticks, err = explain.Next("", spec, from, count)
	}
	if err != nil {
		web.WriteProblem(w, http.StatusBadRequest, err.Error())
		return
	}
	web.WriteJSON(w, http.StatusOK, foreseen{spec.Schedule, spec.Timezone, schedule.Describe(), ticks})
}

// nextRange returns the instant after which ticks are computed, and how many.
func (s *API) nextRange(q *web.Query) (from time.Time, count int) {
	from, count = q.Time("from"), q.UpTo("limit", cluster.DefaultUpcoming, maxNext)
	if from.IsZero() {
		from = s.Now()
	}
	return from, count
}

// apiNext computes the next ticks of a cron.
func (s *API) apiNext(w http.ResponseWriter, r *http.Request) {
	q := web.NewQuery(r)
	from, count := s.nextRange(q)
	if q.Reject(w) {
		return
	}
	cron, ok := s.cronOf(w, r)
	if !ok {
		return
	}
	ticks, err := explain.Next(cron.Name, cron.Spec, from, count)
	if err != nil {
		s.AnswerError(w, r, web.Refuse(http.StatusConflict, "The schedule was written by another version of forge: "+err.Error()+"."))
		return
	}
	web.WriteJSON(w, http.StatusOK, web.ListOf(ticks, ""))
}
