package api

import (
	"errors"
	"net/http"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

func (s *API) apiJobs(w http.ResponseWriter, r *http.Request) {
	q := web.NewQuery(r)
	filter := cluster.JobFilter(q)
	if q.Flag("args") {
		filter.Args, filter.MaxArgs = jobstore.WholeArgs, web.MaxListedArgs
	}
	if q.Reject(w) {
		return
	}
	jobs, err := s.Source.Jobs.List(r.Context(), filter)
	limit := filter.Limit
	if filter.EndsEarly(jobs) {
		limit = len(jobs)
	}
	answerPage(s, w, r, q, jobs, err, limit, func(j jobstore.Job) int64 { return j.ID })
}

func (s *API) apiJob(w http.ResponseWriter, r *http.Request) {
	job, ok := s.jobOf(w, r)
	if ok {
		web.WriteJSON(w, http.StatusOK, job)
	}
}

// jobOf reads the job that the path names. If it returns false, it has answered the
// request.
func (s *API) jobOf(w http.ResponseWriter, r *http.Request) (jobstore.Job, bool) {
	id, ok := cluster.JobID(r.PathValue("id"))
	if !ok {
		web.WriteProblem(w, http.StatusNotFound, "There is no such job.")
		return jobstore.Job{}, false
	}
	job, err := s.Source.Jobs.Get(r.Context(), id)
	switch {
	case errors.Is(err, jobstore.ErrNotFound):
		web.WriteProblem(w, http.StatusNotFound, "There is no such job.")
	case err != nil:
		s.AnswerDatabaseError(w, r, err)
	}
	return job, err == nil
}

// apiExplain explains where a job will run, why it waits, or which nodes ran it.
func (s *API) apiExplain(w http.ResponseWriter, r *http.Request) {
	id, ok := cluster.JobID(r.PathValue("id"))
	if !ok {
		s.AnswerError(w, r, cluster.ErrNoSuchJob)
		return
	}
	placement, err := s.Source.Jobs.Placement(r.Context(), id)
	s.answer(w, r, http.StatusOK, placement, cluster.Refuse(err))
}

// apiAct applies an action to one job.
func (s *API) apiAct(action jobstore.Action) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := web.ReadJSON(w, r, &struct{}{}); err != nil {
			s.AnswerError(w, r, err)
			return
		}
		change, err := s.Act(r.Context(), jobstore.Order{Action: action, By: auth.RequestOrigin(r, viaAPI)}, r.PathValue("id"))
		s.answer(w, r, http.StatusOK, change, err)
	}
}

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
func (s *API) apiActOnAll(action jobstore.Action) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var asked bulkAsk
		err := web.ReadJSON(w, r, &asked)
		filter := jobstore.Filter{State: asked.State, Kind: asked.Kind, Queue: asked.Queue, Cron: asked.Cron}
		if err == nil {
			err = cluster.CheckBulk(action, filter)
		}
		if err == nil && asked.UpTo < 0 {
			err = web.WrongFields(web.WrongField("up_to", "must be the id of a job"))
		}
		if err != nil {
			s.AnswerError(w, r, err)
			return
		}
		done, err := s.ActOnAll(r.Context(), jobstore.Order{Action: action, By: auth.RequestOrigin(r, viaAPI)}, filter, asked.UpTo, asked.DryRun)
		s.answer(w, r, http.StatusOK, done, err)
	}
}
