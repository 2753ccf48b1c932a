package dashboard

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/forge-scheduler/forge/internal/jobstore"
)

// apiExplain explains where a job will run, why it waits, or which nodes ran it.
func (s *apiServer) apiExplain(w http.ResponseWriter, r *http.Request) {
	id, ok := jobID(r.PathValue("id"))
	if !ok {
		s.answerError(w, r, errNoSuchJob)
		return
	}
	placement, err := s.Source.Jobs.Placement(r.Context(), id)
	if err != nil {
		s.answerError(w, r, refuse(err))
		return
	}
	writeJSON(w, http.StatusOK, placement)
}

// apiAct applies an action to one job.
func (s *apiServer) apiAct(action jobstore.Action) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := readJSON(w, r, &struct{}{}); err != nil {
			s.answerError(w, r, err)
			return
		}
		change, err := s.act(r.Context(), jobstore.Order{Action: action, By: requestOrigin(r, viaAPI)}, r.PathValue("id"))
		if err != nil {
			s.answerError(w, r, err)
			return
		}
		writeJSON(w, http.StatusOK, change)
	}
}

// maxBulk is the maximum number of jobs that one request changes. It bounds the duration of
// the request.
const maxBulk = 20_000

// bulkAsk is the JSON form of a filter of jobs.
type bulkAsk struct {
	State string `json:"state"`
	Kind  string `json:"kind"`
	Queue string `json:"queue"`
	Cron  string `json:"cron"`
	// UpTo is the highest id that the filter matches; 0 means all jobs that exist now.
	UpTo   int64 `json:"up_to"`
	DryRun bool  `json:"dry_run"`
}

// apiActOnAll applies an action to all jobs that match a filter.
func (s *apiServer) apiActOnAll(action jobstore.Action) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var asked bulkAsk
		err := readJSON(w, r, &asked)
		filter := jobstore.Filter{State: asked.State, Kind: asked.Kind, Queue: asked.Queue, Cron: asked.Cron}
		if err == nil {
			err = checkBulk(action, filter)
		}
		if err == nil && asked.UpTo < 0 {
			err = wrongFields(wrongField("up_to", "must be the id of a job"))
		}
		if err != nil {
			s.answerError(w, r, err)
			return
		}
		done, err := s.actOnAll(r.Context(), jobstore.Order{Action: action, By: requestOrigin(r, viaAPI)}, filter, asked.UpTo, asked.DryRun)
		if err != nil {
			s.answerError(w, r, err)
			return
		}
		writeJSON(w, http.StatusOK, done)
	}
}

func checkBulk(action jobstore.Action, filter jobstore.Filter) error {
	switch {
	case filter == jobstore.Filter{}:
		return wrongFields(wrongBody("a filter is required: one or more of state, kind, queue and cron"))
	case filter.State == "":
		return nil
	case !slices.Contains(jobStates, filter.State):
		return wrongFields(wrongField("state", "must be one of "+strings.Join(jobStates, ", ")))
	case action.Refuses(filter.State) != "":
		return wrongFields(wrongField("state", fmt.Sprintf("is of jobs that cannot be %s: %s", pastTense[action], action.Refuses(filter.State))))
	}
	return nil
}
