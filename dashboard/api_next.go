package dashboard

import (
	"cmp"
	"errors"
	"net/http"
	"time"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/explain"
)

// maxNext is the maximum number of ticks that one request computes.
const maxNext = 1000

// nextParameters are the parameters of the routes that compute ticks.
var nextParameters = []parameter{
	instant("from", "After this instant; by default now."), bounded("limit", "How many", maxNext, defaultUpcoming),
}

// foreseen lists the next ticks of a schedule.
type foreseen struct {
	Schedule    string           `json:"schedule"`
	Timezone    string           `json:"timezone"`
	Description string           `json:"description"`
	Items       []explain.Coming `json:"items"`
}

// apiNextOfSchedule computes the next ticks of a schedule that need not belong to a cron.
func (s *apiServer) apiNextOfSchedule(w http.ResponseWriter, r *http.Request) {
	q := newQuery(r)
	from, count := s.nextRange(q)
	if q.values.Get("schedule") == "" {
		q.errs = append(q.errs, errors.New("schedule must be an expression such as */5 * * * *"))
	}
	if q.reject(w) {
		return
	}
	spec := cronstore.Spec{Schedule: q.values.Get("schedule"), Timezone: cmp.Or(q.values.Get("timezone"), "UTC")}
	schedule, err := spec.Parse("")
	var ticks []explain.Coming
	if err == nil {
		ticks, err = explain.Next("", spec, from, count)
	}
	if err != nil {
		writeProblem(w, http.StatusBadRequest, err.Error())
		return
	}
	writeJSON(w, http.StatusOK, foreseen{spec.Schedule, spec.Timezone, schedule.Describe(), ticks})
}

// nextRange returns the instant after which ticks are computed, and how many.
func (s *apiServer) nextRange(q *query) (from time.Time, count int) {
	from, count = q.time("from"), q.upTo("limit", defaultUpcoming, maxNext)
	if from.IsZero() {
		from = s.Now()
	}
	return from, count
}

// apiNext computes the next ticks of a cron.
func (s *apiServer) apiNext(w http.ResponseWriter, r *http.Request) {
	q := newQuery(r)
	from, count := s.nextRange(q)
	if q.reject(w) {
		return
	}
	cron, ok := s.cronOf(w, r)
	if !ok {
		return
	}
	ticks, err := explain.Next(cron.Name, cron.Spec, from, count)
	if err != nil {
		s.answerError(w, r, &refusal{http.StatusConflict, "The schedule was written by another version of forge: " + err.Error() + "."})
		return
	}
	writeJSON(w, http.StatusOK, listOf(ticks, ""))
}
