package main

import (
	"cmp"
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
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/jobs"
)

// enqueued is what forge job enqueue answers.
type enqueued struct {
	ID   int64  `json:"id"`
	Kind string `json:"kind"`
}

func (a *app) jobEnqueueCommand() *cobra.Command {
	var job jobstore.NewJob
	var args, at string
	cmd := &cobra.Command{
		Use: "enqueue KIND", Short: "Enqueue a job", Args: cobra.ExactArgs(1),
		Example: "  forge job enqueue greet --args '{\"name\":\"Ada\"}' --priority 1",
		RunE: func(cmd *cobra.Command, positional []string) error {
			job.Kind = positional[0]
			if err := fillJob(&job, args, at); err != nil {
				return usageError(err)
			}
			cfg, err := a.loadQuietly()
			if err != nil {
				return err
			}
			return connected(cmd.Context(), cfg, func(ctx context.Context, pool *pgxpool.Pool) error {
				if err := a.checkKind(ctx, pool, job.Kind); err != nil {
					return err
				}
				if err := completeJob(ctx, pool, &job); err != nil {
					return err
				}
				inserter, err := jobs.NewInserter(pool, cfg.Database.Schema)
				if err != nil {
					return err
				}
				id, err := inserter.Insert(ctx, job)
				if err != nil {
					return err
				}
				if a.format == "table" {
					_, err = fmt.Fprintf(a.out, "enqueued job %d; see forge job show %d\n", id, id)
					return err
				}
				return a.document(enqueued{ID: id, Kind: job.Kind})
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&args, "args", "{}", "arguments, a JSON object")
	flags.StringVar(&job.Queue, "queue", "", "queue (default: the job's own)")
	flags.IntVar(&job.Priority, "priority", 0, "1 (first) to 4 (default: the job's own)")
	flags.StringVar(&at, "at", "", "run not before this instant, RFC 3339")
	return cmd
}

func fillJob(job *jobstore.NewJob, args, at string) error {
	var object map[string]any
	if err := json.Unmarshal([]byte(args), &object); err != nil || object == nil {
		return fmt.Errorf("--args %s: want a JSON object such as {\"name\":\"Ada\"}", args)
	}
	job.Args = json.RawMessage(args)
	if job.Priority < 0 || job.Priority > 4 {
		return fmt.Errorf("--priority %d: want 1 to 4", job.Priority)
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
	job.ScheduledAt = due
	return nil
}

// checkKind refuses a kind that no node of the cluster has ever had a worker
// for, and warns when none that lives has.
func (a *app) checkKind(ctx context.Context, pool *pgxpool.Pool, kind string) error {
	nodes, err := nodestore.List(ctx, pool)
	if err != nil {
		return err
	}
	var known []string
	for _, node := range nodes {
		live := node.State == nodestore.Active || node.State == nodestore.Draining
		if live && slices.Contains(node.Kinds, kind) {
			return nil
		}
		known = append(known, node.Kinds...)
	}
	slices.Sort(known)
	known = slices.Compact(known)
	if len(known) > 0 && !slices.Contains(known, kind) {
		return notFound("no node has a worker for kind %q; known kinds: %s", kind, strings.Join(known, ", "))
	}
	_, err = fmt.Fprintf(a.err, "no live node works kind %q now; the job waits until one does\n", kind)
	return err
}

// settings are the parts of an applied job that its enqueuing needs.
type settings struct {
	Queue      string            `json:"queue"`
	Priority   int               `json:"priority"`
	Capability string            `json:"capability"`
	Tags       map[string]string `json:"tags"`
	Retry      struct {
		MaxAttempts int `json:"max_attempts"`
	} `json:"retry"`
}

// completeJob fills in what the applied configuration says of the kind, as the
// scheduler does for its crons. A Go program's own kinds are not in it and take
// River's defaults.
func completeJob(ctx context.Context, pool *pgxpool.Pool, job *jobstore.NewJob) error {
	inForce, err := cronstore.ConfigInForce(ctx, pool)
	if errors.Is(err, cronstore.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	var applied struct {
		Jobs map[string]settings `json:"jobs"`
	}
	if err := json.Unmarshal(inForce.Body, &applied); err != nil {
		return fmt.Errorf("read the applied configuration: %w", err)
	}
	own, ok := applied.Jobs[job.Kind]
	if !ok {
		return nil
	}
	job.Queue = cmp.Or(job.Queue, own.Queue)
	job.Priority = cmp.Or(job.Priority, own.Priority)
	job.MaxAttempts = own.Retry.MaxAttempts
	job.Metadata = map[string]any{}
	if own.Capability != "" {
		job.Metadata[jobstore.KeyCapability] = own.Capability
	}
	if len(own.Tags) > 0 {
		job.Metadata[jobstore.KeyTags] = own.Tags
	}
	return nil
}
