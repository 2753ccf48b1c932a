package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/argschema"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

// EnqueueAction is the name of adding a job in the audit log.
const EnqueueAction = "job.enqueue"

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

// Enqueue checks the job and adds it.
func (s *Cluster) Enqueue(ctx context.Context, job jobstore.NewJob, ownUnique bool, by string) (jobstore.Enqueued, error) {
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
		return jobstore.Enqueued{}, web.WrongFields(web.WrongField("kind", "must be one that a node has a worker for ("+got+")"))
	}
	added, err := s.Enqueuer.Enqueue(ctx, job, ownUnique, by)
	if heavy, ok := errors.AsType[jobstore.WeightError](err); ok {
		return added, web.WrongFields(web.WrongField("weight", fmt.Sprintf("must be at most %d, the units that the rate_limit of %s has at once (got %d)", heavy.Most, heavy.Of, heavy.Weight)))
	}
	auth.NoteAction(ctx, fmt.Sprintf("%s, job %d", job.Kind, added.ID))
	return added, err
}

func checkNewJob(job jobstore.NewJob) error {
	wrong, err := web.WrongArgs(config.CheckArgs(job.Args))
	if err != nil {
		return err
	}
	if job.Kind == "" {
		wrong = append(wrong, web.WrongField("kind", "is missing"))
	}
	if job.Priority < 0 || job.Priority > 4 {
		wrong = append(wrong, web.WrongField("priority", fmt.Sprintf("must be from 1 to 4 (got %d)", job.Priority)))
	}
	if job.Weight < 0 || job.Weight > config.MaxWeight {
		wrong = append(wrong, web.WrongField("weight", fmt.Sprintf("must be from 1 to %d (got %d)", config.MaxWeight, job.Weight)))
	}
	if job.Queue != "" && !config.ValidQueue(job.Queue) {
		wrong = append(wrong, web.WrongField("queue", "must be 1 to 64 lower-case letters and digits, with single _ or - between them"))
	}
	if len(job.Unique) > maxUnique {
		wrong = append(wrong, web.WrongField("unique", fmt.Sprintf("may have at most %d bytes", maxUnique)))
	}
	return web.WrongFields(wrong...)
}
