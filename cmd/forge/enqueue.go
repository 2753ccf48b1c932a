package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/jobs"
)

func (a *app) jobEnqueueCommand() *cobra.Command {
	var job jobstore.NewJob
	var args, at string
	var unique uniqueFlags
	cmd := &cobra.Command{
		Use: "enqueue KIND", Short: "Enqueue a job", Args: cobra.ExactArgs(1),
		Long: "Enqueues a job. If $TRACEPARENT is set, as in a command that forge runs, the job belongs to that trace.\n\n" +
			"With --unique a key is enqueued once: repeating it prints the existing job, until\n" +
			"that job is cancelled, discarded or past its retention. The other --unique flags say in which\n" +
			"properties the job must differ from existing ones, in place of unique in the job's definition.\n\n" +
			"--replace, --debounce and --throttle say what becomes of a duplicate. Without --unique, --unique-args\n" +
			"and --unique-queue all jobs of the kind are equal.",
		Example: "  forge job enqueue greet --args '{\"name\":\"Ada\"}' --priority 1\n" +
			"  forge job enqueue report --at 2027-01-31T09:00:00Z --unique report-january\n" +
			"  forge job enqueue index --args '{\"doc\":7,\"version\":3}' --unique-args=doc --debounce 5s --max-wait 1m",
		RunE: func(cmd *cobra.Command, positional []string) error {
			job.Kind = positional[0]
			job.Metadata = map[string]any{}
			callersTrace().AddTo(job.Metadata)
			if err := fillJob(&job, args, at); err != nil {
				return usageError(err)
			}
			if err := unique.fill(cmd.Flags(), &job); err != nil {
				return usageError(err)
			}
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				if err := a.checkKind(ctx, pool, job.Kind); err != nil {
					return err
				}
				inserter, err := jobs.NewInserter(pool, a.cfg.Database.Schema)
				if err != nil {
					return err
				}
				added, err := jobs.NewEnqueuer(pool, inserter).Enqueue(ctx, job, unique.given, whoAmI())
				if err != nil {
					return explainArgs(err)
				}
				return a.showEnqueued(added)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&args, "args", "{}", "arguments, a JSON object")
	flags.StringVar(&job.Queue, "queue", "", "queue (default: the job's own)")
	flags.IntVar(&job.Priority, "priority", 0, "1 (first) to 4 (default: the job's own)")
	flags.IntVar(&job.Weight, "weight", 0, "units of a rate_limit that the job needs (default: the job's own)")
	flags.StringVar(&at, "at", "", "do not run before this instant, RFC 3339")
	unique.register(flags, &job)
	return cmd
}

// explainArgs turns options that the kind refuses into a usage error: args that violate its
// schema, a time for a debounced job, or a weight with which the job never starts.
func explainArgs(err error) error {
	if wrong, ok := errors.AsType[*config.ArgsError](err); ok {
		return usageError(fmt.Errorf("--%w", wrong))
	}
	if wrong, ok := errors.AsType[config.SchemaError](err); ok {
		return usageError(fmt.Errorf("--%w", wrong))
	}
	if heavy, ok := errors.AsType[jobstore.WeightError](err); ok {
		return usageError(fmt.Errorf("--%w", heavy))
	}
	return err
}

func (a *app) showEnqueued(job jobstore.Enqueued) error {
	switch job.Verdict {
	case jobstore.Replaced:
		return a.result(job, "replaced the arguments of job %d, which %s; see forge job show %[1]d", job.ID, wordOf(job.State))
	case jobstore.Debounced:
		return a.result(job, "replaced the arguments of job %d, which is due at %s; see forge job show %[1]d", job.ID, stamp(job.ScheduledAt))
	case jobstore.Throttled:
		return a.result(job, "not enqueued: job %d was enqueued not long ago; the next is accepted from %s", job.ID, stamp(*job.AcceptsAt))
	case jobstore.Duplicate:
		return a.result(job, "not enqueued: job %d is the same and %s; see forge job show %[1]d", job.ID, wordOf(job.State))
	case jobstore.Added:
	}
	return a.result(job, "enqueued job %d; see forge job show %[1]d", job.ID)
}

func fillJob(job *jobstore.NewJob, args, at string) error {
	job.Args = json.RawMessage(args)
	if err := config.CheckArgs(job.Args); err != nil {
		return fmt.Errorf("--%w", err)
	}
	if job.Priority < 0 || job.Priority > 4 {
		return fmt.Errorf("--priority %d: want 1 to 4", job.Priority)
	}
	if job.Weight < 0 || job.Weight > config.MaxWeight {
		return fmt.Errorf("--weight %d: want 1 to %d", job.Weight, config.MaxWeight)
	}
	if job.Queue != "" && !config.ValidQueue(job.Queue) {
		return fmt.Errorf("--queue %q: want 1 to 64 lower-case letters and digits, with single _ or - between them", job.Queue)
	}
	if at == "" {
		return nil
	}
	due, err := time.Parse(time.RFC3339, at)
	if err != nil {
		return fmt.Errorf("--at %q: want RFC 3339, such as 2027-01-31T09:00:00Z", at)
	}
	if err := jobstore.CheckYear(due); err != nil {
		return fmt.Errorf("--at %q: %w", at, err)
	}
	job.ScheduledAt = due
	return nil
}

// checkKind rejects a kind for which no node has ever had a worker, and warns if no live node has
// one.
func (a *app) checkKind(ctx context.Context, pool *pgxpool.Pool, kind string) error {
	live, known, err := jobs.NewEnqueuer(pool, nil).Kinds(ctx)
	if err != nil || slices.Contains(live, kind) {
		return err
	}
	if len(known) > 0 && !slices.Contains(known, kind) {
		return notFound("no node has a worker for kind %q; %s", kind, knownKinds(kind, known))
	}
	_, err = fmt.Fprintf(a.err, "no live node has a worker for kind %q; the job waits until one has\n", kind)
	return err
}

// knownKinds lists the known kinds, after the one that was probably meant.
func knownKinds(kind string, known []string) string {
	list := "known kinds: " + strings.Join(known, ", ")
	if near := config.Nearest(kind, known); near != "" {
		return fmt.Sprintf("want %q; %s", near, list)
	}
	return list
}
