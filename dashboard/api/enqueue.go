package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

// enqueueAsk is the JSON form of a new job.
type enqueueAsk struct {
	Kind     string          `json:"kind" body:"required"`
	Args     json.RawMessage `json:"args"`
	Queue    string          `json:"queue"`
	Priority int             `json:"priority"`
	At       time.Time       `json:"at"`
	Unique   string          `json:"unique"`
	// The following fields replace unique in the job's definition.
	UniqueArgs   bool     `json:"unique_args"`
	UniquePeriod string   `json:"unique_period"`
	UniqueQueue  bool     `json:"unique_queue"`
	UniqueStates []string `json:"unique_states"`
	NoUnique     bool     `json:"no_unique"`
}

// maxUniquePeriod is the limit of the configuration.
const maxUniquePeriod = "366d"

// unique returns the uniqueness of the job. own reports that it replaces the uniqueness in
// the job's definition.
func (a enqueueAsk) unique() (by jobstore.UniqueBy, own bool, err error) {
	by = jobstore.UniqueBy{Args: a.UniqueArgs, Queue: a.UniqueQueue, States: a.UniqueStates}
	var wrong []web.FieldError
	if a.UniquePeriod != "" {
		period, err := config.ParseDuration(a.UniquePeriod)
		if most, _ := config.ParseDuration(maxUniquePeriod); err != nil || period.Std() < time.Second || period > most {
			wrong = append(wrong, web.WrongField("unique_period", fmt.Sprintf("must be from 1s to %s (got %q)", maxUniquePeriod, a.UniquePeriod)))
		}
		by.Period = period.Std()
	}
	stranger := func(state string) bool { return !slices.Contains(cluster.JobStates, state) }
	if slices.ContainsFunc(a.UniqueStates, stranger) {
		wrong = append(wrong, web.WrongField("unique_states", "must be of "+strings.Join(cluster.JobStates, ", ")))
	} else if missing := config.MissingStates(a.UniqueStates); len(a.UniqueStates) > 0 && len(missing) > 0 {
		wrong = append(wrong, web.WrongField("unique_states", "must have "+strings.Join(missing, ", ")+", which always count"))
	}
	own = a.UniqueArgs || a.UniqueQueue || a.UniquePeriod != "" || len(a.UniqueStates) > 0
	if a.Unique != "" && (own || a.NoUnique) || own && a.NoUnique {
		wrong = append(wrong, web.WrongBody("only one of unique, no_unique and the other unique_ fields is allowed"))
	}
	return by, own || a.NoUnique || a.Unique != "", web.WrongFields(wrong...)
}

// apiEnqueue answers 201 with the new job, or 200 with the existing duplicate.
func (s *API) apiEnqueue(w http.ResponseWriter, r *http.Request) {
	var asked enqueueAsk
	if err := web.ReadJSON(w, r, &asked); err != nil {
		s.AnswerError(w, r, err)
		return
	}
	by, own, err := asked.unique()
	if err != nil {
		s.AnswerError(w, r, err)
		return
	}
	added, err := s.Enqueue(r.Context(), jobstore.NewJob{
		Kind: asked.Kind, Args: asked.Args, Queue: asked.Queue, Priority: asked.Priority, ScheduledAt: asked.At, Unique: asked.Unique, UniqueBy: by,
	}, own, auth.RequestOrigin(r, viaAPI))
	switch {
	case err != nil:
		s.AnswerError(w, r, err)
	case added.Existing:
		web.WriteJSON(w, http.StatusOK, added)
	default:
		w.Header().Set(route.LocationHeader, "/api/v1/jobs/"+strconv.FormatInt(added.ID, 10))
		web.WriteJSON(w, http.StatusCreated, added)
	}
}
