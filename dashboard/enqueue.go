package dashboard

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/internal/argschema"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

// Enqueuer adds jobs on behalf of an operator.
type Enqueuer interface {
	// Kinds returns the kinds that a node has a worker for now, and all kinds that ever had
	// a worker.
	Kinds(ctx context.Context) (live, known []string, err error)
	// Fields returns the arguments in the schema of a kind, by the configuration in force.
	Fields(ctx context.Context, kind string) ([]argschema.Field, error)
	// Enqueue adds a job with the settings of the configuration in force, or returns the
	// existing duplicate. With ownUnique, the job's own uniqueness replaces that of the
	// configuration.
	Enqueue(ctx context.Context, job jobstore.NewJob, ownUnique bool, by string) (jobstore.Enqueued, error)
}

// maxUnique bounds the length of a unique key.
const maxUnique = 1000

// enqueue checks the job and adds it.
func (s *clusterState) enqueue(ctx context.Context, job jobstore.NewJob, ownUnique bool, by string) (jobstore.Enqueued, error) {
	if err := checkNewJob(job); err != nil {
		return jobstore.Enqueued{}, err
	}
	_, known, err := s.Enqueuer.Kinds(ctx)
	if err != nil {
		return jobstore.Enqueued{}, err
	}
	if !slices.Contains(known, job.Kind) {
		got := fmt.Sprintf("got %q", job.Kind)
		if near := config.Nearest(job.Kind, known); near != "" {
			got += fmt.Sprintf("; did you mean %q?", near)
		}
		return jobstore.Enqueued{}, wrongFields(wrongField("kind", "must be one that a node has a worker for ("+got+")"))
	}
	added, err := s.Enqueuer.Enqueue(ctx, job, ownUnique, by)
	noteAction(ctx, fmt.Sprintf("%s, job %d", job.Kind, added.ID))
	return added, refuse(err)
}

func checkNewJob(job jobstore.NewJob) error {
	wrong, err := wrongArgs(config.CheckArgs(job.Args))
	if err != nil {
		return err
	}
	if job.Kind == "" {
		wrong = append(wrong, wrongField("kind", "is missing"))
	}
	if job.Priority < 0 || job.Priority > 4 {
		wrong = append(wrong, wrongField("priority", fmt.Sprintf("must be from 1 to 4 (got %d)", job.Priority)))
	}
	if job.Queue != "" && !config.ValidQueue(job.Queue) {
		wrong = append(wrong, wrongField("queue", "must be 1 to 64 lower-case letters and digits, with single _ or - between them"))
	}
	if len(job.Unique) > maxUnique {
		wrong = append(wrong, wrongField("unique", fmt.Sprintf("may have at most %d bytes", maxUnique)))
	}
	return wrongFields(wrong...)
}

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
	var wrong []fieldError
	if a.UniquePeriod != "" {
		period, err := config.ParseDuration(a.UniquePeriod)
		if most, _ := config.ParseDuration(maxUniquePeriod); err != nil || period.Std() < time.Second || period > most {
			wrong = append(wrong, wrongField("unique_period", fmt.Sprintf("must be from 1s to %s (got %q)", maxUniquePeriod, a.UniquePeriod)))
		}
		by.Period = period.Std()
	}
	stranger := func(state string) bool { return !slices.Contains(jobStates, state) }
	if slices.ContainsFunc(a.UniqueStates, stranger) {
		wrong = append(wrong, wrongField("unique_states", "must be of "+strings.Join(jobStates, ", ")))
	} else if missing := config.MissingStates(a.UniqueStates); len(a.UniqueStates) > 0 && len(missing) > 0 {
		wrong = append(wrong, wrongField("unique_states", "must have "+strings.Join(missing, ", ")+", which always count"))
	}
	own = a.UniqueArgs || a.UniqueQueue || a.UniquePeriod != "" || len(a.UniqueStates) > 0
	if a.Unique != "" && (own || a.NoUnique) || own && a.NoUnique {
		wrong = append(wrong, wrongBody("only one of unique, no_unique and the other unique_ fields is allowed"))
	}
	return by, own || a.NoUnique || a.Unique != "", wrongFields(wrong...)
}

// apiEnqueue answers 201 with the new job, or 200 with the existing duplicate.
func (s *apiServer) apiEnqueue(w http.ResponseWriter, r *http.Request) {
	var asked enqueueAsk
	if err := readJSON(w, r, &asked); err != nil {
		s.answerError(w, r, err)
		return
	}
	by, own, err := asked.unique()
	if err != nil {
		s.answerError(w, r, err)
		return
	}
	added, err := s.enqueue(r.Context(), jobstore.NewJob{
		Kind: asked.Kind, Args: asked.Args, Queue: asked.Queue, Priority: asked.Priority, ScheduledAt: asked.At, Unique: asked.Unique, UniqueBy: by,
	}, own, requestOrigin(r, viaAPI))
	switch {
	case err != nil:
		s.answerError(w, r, err)
	case added.Existing:
		writeJSON(w, http.StatusOK, added)
	default:
		w.Header().Set(locationHeader, "/api/v1/jobs/"+strconv.FormatInt(added.ID, 10))
		writeJSON(w, http.StatusCreated, added)
	}
}
