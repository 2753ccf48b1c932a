package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/forge-scheduler/forge/internal/jobstore"
)

func (a *app) jobLogsCommand() *cobra.Command {
	var follow bool
	var attempt int
	cmd := &cobra.Command{
		Use: "logs ID", Short: "Print the output of a job's last attempt, or follow it", Args: cobra.ExactArgs(1),
		Long: "Print the output of a job's last attempt, stdout and stderr in the order written.\n\n" +
			"With --follow, print new output and further attempts until the job has finished; with --attempt\n" +
			"too, until that attempt has ended. -o json prints the stored chunks, with --follow one object each.\n" +
			"On a terminal, control sequences are removed; colours are kept unless NO_COLOR is set.",
		Example: "  forge job logs 42 --follow",
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("attempt") && attempt < 1 {
				return usageError(fmt.Errorf("--attempt %d: want a number of at least 1", attempt))
			}
			return a.withJob(cmd.Context(), args[0], func(ctx context.Context, pool *pgxpool.Pool, job jobstore.Job) error {
				if err := a.announce(job, attempt, follow); err != nil {
					return err
				}
				if follow {
					return a.followLogs(ctx, pool, job.ID, attempt)
				}
				if attempt == 0 {
					attempt = job.LastAttempt()
				}
				return a.printLogs(ctx, pool, job.ID, attempt)
			})
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "print new output until the job has finished")
	cmd.Flags().IntVar(&attempt, "attempt", 0, "which attempt (default the last)")
	return cmd
}

// announce reports on stderr that a job has not run yet. An attempt that does not exist is an error,
// unless it is followed and the job is not finished.
func (a *app) announce(job jobstore.Job, attempt int, follow bool) error {
	last := job.LastAttempt()
	if attempt > last && (!follow || !job.FinalizedAt.IsZero()) {
		return notFound("job %d has no attempt %d; it has had %d", job.ID, attempt, last)
	}
	if last == 0 {
		_, _ = fmt.Fprintf(a.err, "job %d is %s and has not run yet\n", job.ID, job.State)
	}
	return nil
}

// printLogs prints the stored output of one attempt.
func (a *app) printLogs(ctx context.Context, pool *pgxpool.Pool, id int64, attempt int) error {
	if a.tabular() {
		return a.printLogText(ctx, pool, id, attempt)
	}
	all := []jobstore.LogChunk{}
	err := eachChunk(ctx, pool, id, attempt, func(chunk jobstore.LogChunk) error {
		all = append(all, chunk)
		return nil
	})
	if err != nil {
		return err
	}
	return a.document(all)
}

func (a *app) printLogText(ctx context.Context, pool *pgxpool.Pool, id int64, attempt int) error {
	out := a.logText()
	err := eachChunk(ctx, pool, id, attempt, func(chunk jobstore.LogChunk) error {
		_, err := io.WriteString(out, chunk.Chunk)
		return err
	})
	return errors.Join(err, out.Close())
}

func eachChunk(ctx context.Context, pool *pgxpool.Pool, id int64, attempt int, do func(jobstore.LogChunk) error) error {
	for after := 0; ; {
		chunks, err := jobstore.New(pool).Logs(ctx, id, attempt, after)
		if err != nil || len(chunks) == 0 {
			return err
		}
		for _, chunk := range chunks {
			if err := do(chunk); err != nil {
				return err
			}
			after = chunk.Seq
		}
	}
}

func (a *app) followLogs(ctx context.Context, pool *pgxpool.Pool, id int64, attempt int) error {
	out := a.logText()
	pass := func(chunks []jobstore.LogChunk) error { return a.passText(out, chunks, &attempt) }
	if a.format == "json" {
		encoder := json.NewEncoder(a.out)
		pass = func(chunks []jobstore.LogChunk) error {
			for _, chunk := range chunks {
				if err := encoder.Encode(chunk); err != nil {
					return err
				}
			}
			return nil
		}
	}
	err := errors.Join(jobstore.Follow(ctx, jobstore.New(pool), id, attempt, 0, pass), out.Close())
	switch {
	case errors.Is(err, jobstore.ErrNotFound):
		return notFound("job %d was removed meanwhile", id)
	case err != nil && ctx.Err() == nil && unreachable(err):
		return databaseError(err)
	default:
		return err
	}
}

// passText prints chunks, and on stderr a line where the next attempt begins.
func (a *app) passText(out io.Writer, chunks []jobstore.LogChunk, attempt *int) error {
	for _, chunk := range chunks {
		if *attempt != 0 && *attempt != chunk.Attempt {
			_, _ = fmt.Fprintf(a.err, "attempt %d:\n", chunk.Attempt)
		}
		*attempt = chunk.Attempt
		if _, err := io.WriteString(out, chunk.Chunk); err != nil {
			return err
		}
	}
	return nil
}

// unreachable reports whether err means that the database is down, not that it returned an error.
func unreachable(err error) bool {
	postgres, answered := errors.AsType[*pgconn.PgError](err)
	if answered {
		return postgres.Code[:min(2, len(postgres.Code))] == "57" // operator intervention: the server is shutting down
	}
	_, failed := errors.AsType[*pgconn.ConnectError](err)
	return failed || errors.Is(err, io.ErrUnexpectedEOF) || pgconn.SafeToRetry(err)
}

// logText returns the writer for a job's output. On a terminal it removes control sequences.
func (a *app) logText() io.WriteCloser {
	file, ok := a.out.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return rawLog{a.out}
	}
	return newPlainText(a.out, os.Getenv("NO_COLOR") == "")
}

type rawLog struct{ io.Writer }

func (rawLog) Close() error { return nil }
