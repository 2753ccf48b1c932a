package dashboard

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/internal/argschema"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

// Enqueuer adds jobs because somebody asks for it.
type Enqueuer interface {
	// Kinds returns the kinds that a node works now, and those that any ever did.
	Kinds(ctx context.Context) (live, known []string, err error)
	// Fields are what the schema of a kind in the configuration in force asks for.
	Fields(ctx context.Context, kind string) ([]argschema.Field, error)
	// Enqueue adds a job as the configuration in force has it, or tells of the one
	// that is there already; ownUnique: the job says what is unique, and not the
	// configuration.
	Enqueue(ctx context.Context, job jobstore.NewJob, ownUnique bool, by string) (jobstore.Enqueued, error)
}

// maxUnique bounds a unique key; what is longer is no key but a text.
const maxUnique = 1000

// enqueue checks the job before it is added.
func (s *server) enqueue(ctx context.Context, job jobstore.NewJob, ownUnique bool, by string) (jobstore.Enqueued, error) {
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
	noteDown(ctx, fmt.Sprintf("%s, job %d", job.Kind, added.ID))
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

// enqueueAsk is a job as programs write it.
type enqueueAsk struct {
	Kind     string          `json:"kind" body:"required"`
	Args     json.RawMessage `json:"args"`
	Queue    string          `json:"queue"`
	Priority int             `json:"priority"`
	At       time.Time       `json:"at"`
	Unique   string          `json:"unique"`
	// The others stand in place of unique in the job's definition.
	UniqueArgs   bool     `json:"unique_args"`
	UniquePeriod string   `json:"unique_period"`
	UniqueQueue  bool     `json:"unique_queue"`
	UniqueStates []string `json:"unique_states"`
	NoUnique     bool     `json:"no_unique"`
}

// maxUniquePeriod is the configuration's bound.
const maxUniquePeriod = "366d"

// unique says in what the job must differ from those that are there; own: what the
// definition says does not count.
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
		wrong = append(wrong, wrongBody("one of unique, no_unique and the other unique_ fields is wanted"))
	}
	return by, own || a.NoUnique || a.Unique != "", wrongFields(wrong...)
}

// apiEnqueue answers 201 with the job that was added, and 200 with the one that was
// there.
func (s *server) apiEnqueue(w http.ResponseWriter, r *http.Request) {
	var asked enqueueAsk
	if err := readJSON(w, r, &asked); err != nil {
		s.answer(w, r, err)
		return
	}
	by, own, err := asked.unique()
	if err != nil {
		s.answer(w, r, err)
		return
	}
	added, err := s.enqueue(r.Context(), jobstore.NewJob{
		Kind: asked.Kind, Args: asked.Args, Queue: asked.Queue, Priority: asked.Priority, ScheduledAt: asked.At, Unique: asked.Unique, UniqueBy: by,
	}, own, whoAsks(r, viaAPI))
	switch {
	case err != nil:
		s.answer(w, r, err)
	case added.Existing:
		writeJSON(w, http.StatusOK, added)
	default:
		w.Header().Set(locationHeader, "/api/v1"+jobPath(added.ID))
		writeJSON(w, http.StatusCreated, added)
	}
}
