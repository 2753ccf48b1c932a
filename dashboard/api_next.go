package dashboard

import (
	"cmp"
	"errors"
	"net/http"
	"time"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/explain"
)

// maxNext is the most ticks that are foreseen at once.
const maxNext = 1000

// nextParameters are of addresses that foresee ticks.
var nextParameters = []parameter{
	instant("from", "After this instant; now without."), bounded("limit", "How many", maxNext, coming),
}

// foreseen are the ticks of an expression.
type foreseen struct {
	Schedule    string           `json:"schedule"`
	Timezone    string           `json:"timezone"`
	Description string           `json:"description"`
	Items       []explain.Coming `json:"items"`
}

// apiForesee foresees the ticks of an expression, which no cron has to have.
func (s *server) apiForesee(w http.ResponseWriter, r *http.Request) {
	q := newQuery(r)
	from, count := s.foreseeing(q)
	if q.values.Get("schedule") == "" {
		q.errs = append(q.errs, errors.New("schedule must be an expression such as */5 * * * *"))
	}
	if q.reject(w) {
		return
	}
	spec := cronstore.Spec{Schedule: q.values.Get("schedule"), Timezone: cmp.Or(q.values.Get("timezone"), "UTC")}
	schedule, err := spec.Timing().Parse("")
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

// foreseeing reads from when ticks are wanted, and how many.
func (s *server) foreseeing(q *query) (from time.Time, count int) {
	from, count = q.time("from"), q.upTo("limit", coming, maxNext)
	if from.IsZero() {
		from = s.Now()
	}
	return from, count
}

// apiNext foresees the ticks of a cron.
func (s *server) apiNext(w http.ResponseWriter, r *http.Request) {
	q := newQuery(r)
	from, count := s.foreseeing(q)
	if q.reject(w) {
		return
	}
	cron, ok := s.cronOf(w, r)
	if !ok {
		return
	}
	ticks, err := explain.Next(cron.Name, cron.Spec, from, count)
	if err != nil {
		s.answer(w, r, &refusal{http.StatusConflict, "The schedule is of another version of forge: " + err.Error() + "."})
		return
	}
	writeJSON(w, http.StatusOK, listOf(ticks, ""))
}
