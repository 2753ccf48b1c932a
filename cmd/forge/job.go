package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

func (a *app) jobCommand() *cobra.Command {
	return group("job", "Show jobs and their output; enqueue, cancel and retry them",
		a.watchable(a.jobListCommand()), a.watchable(a.jobShowCommand()), a.jobLogsCommand(), a.watchable(a.jobExplainCommand()), a.jobWaitCommand(),
		a.jobEnqueueCommand(), a.jobCancelCommand(), a.jobRetryCommand(), a.jobDiscardCommand())
}

func (a *app) jobListCommand() *cobra.Command {
	filter := jobstore.Filter{Args: jobstore.WholeArgs}
	var where whereFlag
	var sort sortFlag
	cmd := &cobra.Command{
		Use: "list", Short: "List jobs, newest first", Args: cobra.NoArgs,
		Example: "  forge job list --state discarded --kind report\n  forge job list --cron nightly-report -n 5\n" +
			"  forge job list --filter 'kind:send* took:>10s since:2h'\n" +
			"  forge job list --sort slowest --filter since:1h",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if filter.State != "" && !slices.Contains(jobStates, filter.State) {
				return usageError(fmt.Errorf("--state %q: want one of %s", filter.State, strings.Join(jobStates, ", ")))
			}
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				filter.Sort = jobstore.Sort(sort.name)
				found, err := searchJobs(ctx, jobstore.New(pool), filter.Narrow(where.Filter))
				if err != nil {
					return err
				}
				if len(found) == 0 {
					if err := a.hintFilter(ctx, pool, filter); err != nil {
						return err
					}
				}
				return list(a, found, jobColumns)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&filter.State, "state", "", "only jobs in this state: "+strings.Join(jobStates, ", "))
	flags.StringVar(&filter.Kind, "kind", "", "only jobs of this kind")
	flags.StringVar(&filter.Queue, "queue", "", "only jobs of this queue")
	flags.StringVar(&filter.Cron, "cron", "", "only runs of this cron")
	where.addJobs(flags)
	sort.addTo(flags, jobstore.Sorts)
	flags.Int64Var(&filter.BeforeID, "before", 0, "only jobs with a lower id, for the next page")
	flags.IntVarP(&filter.Limit, "limit", "n", 30, "at most this many")
	return cmd
}

var jobStates = []string{
	"available", "cancelled", "completed", "discarded", "pending", "retryable", "running", "scheduled",
}

var jobColumns = []column[jobstore.Job]{
	{title: "id", show: func(j jobstore.Job) string { return strconv.FormatInt(j.ID, 10) }},
	{title: "kind", show: func(j jobstore.Job) string { return j.Kind }},
	{title: "state", show: func(j jobstore.Job) string { return j.State }},
	{title: "cron", show: func(j jobstore.Job) string { return dash(j.Cron) }},
	{title: "node", show: func(j jobstore.Job) string { return dash(j.NodeID) }},
	{title: "attempt", show: func(j jobstore.Job) string { return fmt.Sprintf("%d of %d", j.Attempt, j.MaxAttempts) }},
	{title: "due", show: func(j jobstore.Job) string { return ago(j.ScheduledAt, time.Now()) }},
	{title: "took", show: func(j jobstore.Job) string {
		if j.FinalizedAt.IsZero() || j.AttemptedAt.IsZero() {
			return "-"
		}
		return span(j.FinalizedAt.Sub(j.AttemptedAt))
	}},
	{title: "error", show: func(j jobstore.Job) string { return dash(firstLine(j.LastError, 60)) }},
	{title: "queue", wide: true, show: func(j jobstore.Job) string { return j.Queue }},
	{title: "priority", wide: true, show: func(j jobstore.Job) string { return strconv.Itoa(j.Priority) }},
	{title: "tick", wide: true, show: func(j jobstore.Job) string { return tickStamp(j.Tick) }},
}

func (a *app) jobShowCommand() *cobra.Command {
	return &cobra.Command{
		Use: "show ID", Short: "Show a job, its attempts and the output of the last attempt", Args: cobra.ExactArgs(1),
		Example: "  forge job show 42",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withJob(cmd.Context(), args[0], func(ctx context.Context, pool *pgxpool.Pool, job jobstore.Job) error {
				definition, err := cronstore.New(pool).Definition(ctx, job.Kind)
				if err != nil {
					return err
				}
				if err := one(a, jobDocument{job, definition}, jobProperties); err != nil || !a.tabular() || len(job.Attempts) == 0 {
					return err
				}
				a.printf("\n")
				if err := list(a, job.Attempts, attemptColumns); err != nil {
					return err
				}
				attempt := job.Attempts[len(job.Attempts)-1].Attempt
				a.printf("\noutput of attempt %d:\n", attempt)
				return a.printLogText(ctx, pool, job.ID, attempt)
			})
		},
	}
}

// jobDocument is one job and what it runs, as in the API.
type jobDocument struct {
	jobstore.Job
	Definition *cronstore.Definition `json:"definition,omitempty"`
}

// maxShownResult bounds the result that is shown; -o json has all of it.
const maxShownResult = 400

var jobProperties = []column[jobDocument]{
	{title: "id", show: func(j jobDocument) string { return strconv.FormatInt(j.ID, 10) }},
	{title: "kind", show: func(j jobDocument) string { return j.Kind }},
	{title: "state", show: func(j jobDocument) string { return j.State }},
	{title: "queue", show: func(j jobDocument) string { return fmt.Sprintf("%s, priority %d", j.Queue, j.Priority) }},
	{title: "cron", show: func(j jobDocument) string { return j.Cron }},
	{title: "tick", show: func(j jobDocument) string { return strings.TrimPrefix(tickStamp(j.Tick), "-") }},
	{title: "runs", show: func(j jobDocument) string { return j.Definition.Text() }},
	{title: "args", show: func(j jobDocument) string { return string(j.Args) }},
	{title: "created", show: func(j jobDocument) string { return stamp(j.CreatedAt) }},
	{title: "due", show: func(j jobDocument) string { return stamp(j.ScheduledAt) }},
	{title: "attempt", show: func(j jobDocument) string { return fmt.Sprintf("%d of %d", j.Attempt, j.MaxAttempts) }},
	{title: "snoozed", show: func(j jobDocument) string { return snoozed(j.Snoozes) }},
	{title: "duplicates", show: func(j jobDocument) string { return j.Duplicates.Text() }},
	{title: "progress", show: func(j jobDocument) string { return j.Progress.Text() }},
	{title: "result", show: func(j jobDocument) string { return firstLine(string(j.Result), maxShownResult) }},
	{title: "second round", show: func(j jobDocument) string { return secondRound(j.SecondRound) }},
	{title: "error", show: func(j jobDocument) string { return j.LastError }},
}

var attemptColumns = []column[jobstore.Attempt]{
	{title: "attempt", show: func(t jobstore.Attempt) string { return strconv.Itoa(t.Attempt) }},
	{title: "outcome", show: func(t jobstore.Attempt) string { return dash(t.Outcome) }},
	{title: "node", show: func(t jobstore.Attempt) string { return dash(t.NodeID) }},
	{title: "started", show: func(t jobstore.Attempt) string { return stamp(t.StartedAt) }},
	{title: "took", show: func(t jobstore.Attempt) string { return milliseconds(t.DurationMS) }},
	{title: "exit", show: func(t jobstore.Attempt) string { return optional(t.ExitCode) }},
	{title: "status", show: func(t jobstore.Attempt) string { return optional(t.StatusCode) }},
	{title: "output", show: func(t jobstore.Attempt) string { return fmt.Sprintf("%d B", t.OutputBytes) }},
	{title: "error", show: func(t jobstore.Attempt) string { return dash(firstLine(t.Error, 80)) }},
}

// snoozed describes how often a job has snoozed. It is empty for a job that never did.
func snoozed(times int) string {
	switch times {
	case 0:
		return ""
	case 1:
		return "once"
	default:
		return fmt.Sprintf("%d times", times)
	}
}

func (a *app) withJob(ctx context.Context, argument string, work func(context.Context, *pgxpool.Pool, jobstore.Job) error) error {
	id, err := jobID(argument)
	if err != nil {
		return err
	}
	return a.withDatabase(ctx, func(ctx context.Context, pool *pgxpool.Pool) error {
		job, err := jobstore.New(pool).Get(ctx, id)
		if errors.Is(err, jobstore.ErrNotFound) {
			return noJob(id)
		}
		if err != nil {
			return err
		}
		return work(ctx, pool, job)
	})
}

func noJob(id int64) error { return notFound("no job %d; it may be past its retention", id) }

func firstLine(s string, most int) string {
	s, _, _ = strings.Cut(s, "\n")
	if runes := []rune(s); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return s
}

func optional(n *int) string {
	if n == nil {
		return "-"
	}
	return strconv.Itoa(*n)
}
