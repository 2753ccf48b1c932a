package dashboard

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/forge-scheduler/forge/internal/jobstore"
)

// apiExplain says where a job goes, why it waits, or who ran it.
func (s *server) apiExplain(w http.ResponseWriter, r *http.Request) {
	id, ok := jobID(r.PathValue("id"))
	if !ok {
		s.answer(w, r, errNoSuchJob)
		return
	}
	placement, err := s.Source.Jobs.Placement(r.Context(), id)
	if err != nil {
		s.answer(w, r, refuse(err))
		return
	}
	writeJSON(w, http.StatusOK, placement)
}

// apiAct does something to one job.
func (s *server) apiAct(action jobstore.Action) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := readJSON(w, r, &struct{}{}); err != nil {
			s.answer(w, r, err)
			return
		}
		change, err := s.act(r.Context(), jobstore.Order{Action: action, By: whoAsks(r, viaAPI)}, r.PathValue("id"))
		if err != nil {
			s.answer(w, r, err)
			return
		}
		writeJSON(w, http.StatusOK, change)
	}
}

// maxBulk is the most jobs that one request changes: it has to end.
const maxBulk = 20_000

// bulkAsk is a filter of jobs as programs write it.
type bulkAsk struct {
	State string `json:"state"`
	Kind  string `json:"kind"`
	Queue string `json:"queue"`
	Cron  string `json:"cron"`
	// UpTo is the highest id that is meant; 0: all that are there now.
	UpTo   int64 `json:"up_to"`
	DryRun bool  `json:"dry_run"`
}

// apiActOnAll does it to all jobs that a filter names.
func (s *server) apiActOnAll(action jobstore.Action) http.HandlerFunc {
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
			s.answer(w, r, err)
			return
		}
		done, err := s.actOnAll(r.Context(), jobstore.Order{Action: action, By: whoAsks(r, viaAPI)}, filter, asked.UpTo, asked.DryRun)
		if err != nil {
			s.answer(w, r, err)
			return
		}
		writeJSON(w, http.StatusOK, done)
	}
}

func checkBulk(action jobstore.Action, filter jobstore.Filter) error {
	switch {
	case filter == jobstore.Filter{}:
		return wrongFields(wrongBody("a filter is wanted: one or more of state, kind, queue and cron"))
	case filter.State == "":
		return nil
	case !slices.Contains(jobStates, filter.State):
		return wrongFields(wrongField("state", "must be one of "+strings.Join(jobStates, ", ")))
	case action.Refuses(filter.State) != "":
		return wrongFields(wrongField("state", fmt.Sprintf("is of jobs that cannot be %s: %s", past[action], action.Refuses(filter.State))))
	}
	return nil
}
