package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/watchdog"
)

// waitInterval is the time between two reads of a job that is waited for.
const waitInterval = 200 * time.Millisecond

func (a *app) jobWaitCommand() *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "wait ID", Short: "Wait until a job has ended", Args: cobra.ExactArgs(1),
		Long: "Waits until a job has ended for good. The exit code is 0 if it completed, 1 if it was discarded\n" +
			"or cancelled, 4 if there is no such job and 124 if --timeout passed first.",
		Example: "  forge job wait 42 --timeout 10m",
		RunE: func(cmd *cobra.Command, args []string) error {
			if timeout < 0 {
				return usageError(fmt.Errorf("--timeout %s: want a duration such as 30s, or 0 for none", timeout))
			}
			return a.withJob(cmd.Context(), args[0], func(ctx context.Context, pool *pgxpool.Pool, job jobstore.Job) error {
				return a.waitFor(ctx, pool, job, timeout)
			})
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "give up waiting after this long (exit code 124; default never)")
	return cmd
}

func (a *app) waitFor(ctx context.Context, pool *pgxpool.Pool, job jobstore.Job, timeout time.Duration) error {
	began := time.Now()
	for !jobstore.Finished(job.State) {
		pause := waitInterval
		if timeout > 0 {
			pause = min(pause, timeout-time.Since(began))
		}
		if pause <= 0 {
			return timeoutError(fmt.Errorf("job %d is %s after %s; see forge job explain %d", job.ID, job.State, timeout, job.ID))
		}
		if !watchdog.Sleep(ctx, pause) {
			return ctx.Err()
		}
		next, err := jobstore.New(pool).Get(ctx, job.ID)
		if errors.Is(err, jobstore.ErrNotFound) {
			return notFound("job %d no longer exists; it was last seen %s", job.ID, job.State)
		}
		if err != nil {
			return err
		}
		job = next
	}
	return a.ended(job)
}

// ended prints how a job has ended, and returns an error unless it completed.
func (a *app) ended(job jobstore.Job) error {
	if err := a.result(job, "job %d (%s) is %s", job.ID, job.Kind, job.State); err != nil {
		return err
	}
	switch {
	case job.State == "completed":
		return nil
	case job.LastError != "":
		return fmt.Errorf("job %d was %s: %s", job.ID, job.State, firstLine(job.LastError, 200))
	default:
		return fmt.Errorf("job %d was %s", job.ID, job.State)
	}
}
