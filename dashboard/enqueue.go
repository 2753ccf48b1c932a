package dashboard

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
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
	// that is there already.
	Enqueue(ctx context.Context, job jobstore.NewJob, by string) (jobstore.Enqueued, error)
}

// maxUnique bounds a unique key; what is longer is no key but a text.
const maxUnique = 1000

// enqueue checks the job before it is added.
func (s *server) enqueue(ctx context.Context, job jobstore.NewJob, by string) (jobstore.Enqueued, error) {
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
	added, err := s.Enqueuer.Enqueue(ctx, job, by)
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
	Kind     string          `json:"kind"`
	Args     json.RawMessage `json:"args"`
	Queue    string          `json:"queue"`
	Priority int             `json:"priority"`
	At       time.Time       `json:"at"`
	Unique   string          `json:"unique"`
}

// apiEnqueue answers 201 with the job that was added, and 200 with the one that was
// there.
func (s *server) apiEnqueue(w http.ResponseWriter, r *http.Request) {
	var asked enqueueAsk
	if err := readJSON(w, r, &asked); err != nil {
		s.answer(w, r, err)
		return
	}
	added, err := s.enqueue(r.Context(), jobstore.NewJob{
		Kind: asked.Kind, Args: asked.Args, Queue: asked.Queue, Priority: asked.Priority, ScheduledAt: asked.At, Unique: asked.Unique,
	}, whoAsks(r, viaAPI))
	switch {
	case err != nil:
		s.answer(w, r, err)
	case added.Existing:
		writeJSON(w, http.StatusOK, added)
	default:
		w.Header().Set("Location", "/api/v1"+jobPath(added.ID))
		writeJSON(w, http.StatusCreated, added)
	}
}
