package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/forge-scheduler/forge/internal/jobstore"
)

// bulk are the filter and flags of a command on many jobs.
type bulk struct {
	filter      jobstore.Filter
	dryRun, yes bool
}

// bulkDone is the JSON output of a command on many jobs.
type bulkDone struct {
	Action jobstore.Action `json:"action"`
	// Jobs is the number of jobs that match the filter, Changed the number of jobs changed.
	Jobs    int64 `json:"jobs"`
	Changed int   `json:"changed"`
	DryRun  bool  `json:"dry_run"`
}

func (a *app) jobCancelCommand() *cobra.Command {
	return a.jobActCommand(jobstore.Cancel, "Cancel jobs and stop those that run",
		"Cancels jobs for good. A running job is told to stop and is cancelled once it has stopped; see forge job wait.")
}

func (a *app) jobRetryCommand() *cobra.Command {
	return a.jobActCommand(jobstore.Retry, "Run jobs again, or run waiting jobs now",
		"Makes jobs available now: jobs that wait for their next attempt, jobs that are scheduled for later,\n"+
			"and jobs that have ended. With a filter but without --state it selects discarded jobs.")
}

func (a *app) jobDiscardCommand() *cobra.Command {
	return a.jobActCommand(jobstore.Discard, "Discard waiting jobs",
		"Discards waiting jobs as if their last attempt had failed: they stay until retention.discarded\n"+
			"ends, and the receivers of failed runs are notified.")
}

func (a *app) jobActCommand(action jobstore.Action, short, long string) *cobra.Command {
	var many bulk
	var where whereFlag
	cmd := &cobra.Command{
		Use: string(action) + " ID...", Short: short, Args: cobra.ArbitraryArgs,
		Long: long + "\n\nSelect jobs by their ids or by a filter. If a job cannot be changed, the command prints the reason and\n" +
			"exits with 6, or with 4 if the job does not exist. It still changes the other jobs.",
		Example: fmt.Sprintf("  forge job %[1]s 42 43\n  forge job %[1]s --kind report --queue slow --dry-run", action),
		RunE: func(cmd *cobra.Command, args []string) error {
			many.filter = many.filter.Narrow(where.Filter)
			byFilter := many.filter != jobstore.Filter{}
			if err := many.check(action, args, byFilter); err != nil {
				return usageError(err)
			}
			ids, err := jobIDs(args)
			if err != nil {
				return err
			}
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				if byFilter {
					return a.actOnAll(ctx, pool, action, many)
				}
				return a.act(ctx, pool, action, ids)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&many.filter.State, "state", "", "all jobs in this state")
	flags.StringVar(&many.filter.Kind, "kind", "", "all jobs of this kind")
	flags.StringVar(&many.filter.Queue, "queue", "", "all jobs of this queue")
	flags.StringVar(&many.filter.Cron, "cron", "", "all runs of this cron")
	where.addJobs(flags)
	flags.BoolVar(&many.dryRun, "dry-run", false, "with a filter: only print how many jobs match")
	flags.BoolVar(&many.yes, "yes", false, "with a filter: do not ask")
	return cmd
}

func (b bulk) check(action jobstore.Action, args []string, byFilter bool) error {
	state := b.filter.State
	switch {
	case len(args) > 0 && (byFilter || b.dryRun || b.yes):
		return errors.New("jobs are named by ids or by a filter, not by both; --dry-run and --yes go with a filter")
	case len(args) == 0 && !byFilter:
		return errors.New("which jobs? Name ids, or a filter: --state, --kind, --queue, --cron, --filter")
	case state != "" && !slices.Contains(jobStates, state):
		return fmt.Errorf("--state %q: want one of %s", state, strings.Join(jobStates, ", "))
	case state != "" && action.Refuses(state) != "":
		return fmt.Errorf("--state %s: a job in that state cannot be selected: %s", state, action.Refuses(state))
	}
	return nil
}

func jobIDs(args []string) ([]int64, error) {
	var ids []int64
	for _, arg := range args {
		id, err := jobID(arg)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

func jobID(argument string) (int64, error) {
	id, err := strconv.ParseInt(argument, 10, 64)
	if err != nil || id < 1 {
		return 0, usageError(fmt.Errorf("job id %q: want a positive number", argument))
	}
	return id, nil
}

// act applies the action to the jobs of these ids.
func (a *app) act(ctx context.Context, pool *pgxpool.Pool, action jobstore.Action, ids []int64) error {
	changes, err := jobstore.New(pool).Act(ctx, jobstore.Order{Action: action, By: whoAmI()}, ids)
	if err != nil {
		return err
	}
	if !a.tabular() {
		if err := a.document(changes); err != nil {
			return err
		}
		return refusals(action, changes)
	}
	for _, change := range changes {
		if change.Changed() {
			a.printf("%s\n", acted(action, change))
		}
	}
	return refusals(action, changes)
}

// acted describes what was done to a job.
func acted(action jobstore.Action, c jobstore.Change) string {
	if action == jobstore.Cancel && c.State == "running" {
		return fmt.Sprintf("job %d (%s) runs and is told to stop; see forge job wait %[1]d", c.ID, c.Kind)
	}
	return fmt.Sprintf("job %d (%s) was %s and is %s", c.ID, c.Kind, c.Was, c.State)
}

// refusals returns an error that lists the jobs that were missing or rejected. The exit code of a
// rejection takes precedence over that of a missing job.
func refusals(action jobstore.Action, changes []jobstore.Change) error {
	var said []string
	conflict := false
	for _, c := range changes {
		switch {
		case c.Missing:
			said = append(said, noJob(c.ID).Error())
		case c.Refused != "":
			said = append(said, fmt.Sprintf("cannot %s job %d (%s): %s", action, c.ID, c.Kind, c.Refused))
			conflict = true
		}
	}
	switch {
	case len(said) == 0:
		return nil
	case conflict:
		return conflictError(errors.New(strings.Join(said, "\nforge: ")))
	default:
		return notFound("%s", strings.Join(said, "\nforge: "))
	}
}

// actOnAll applies the action to the jobs that match the filter now.
func (a *app) actOnAll(ctx context.Context, pool *pgxpool.Pool, action jobstore.Action, many bulk) error {
	store := jobstore.New(pool)
	counted, err := store.CountMatching(ctx, action, many.filter, jobstore.Matching{})
	if err != nil {
		return err
	}
	_, err = a.changeCounted(action, counted.Jobs, many.dryRun, many.yes, func(order jobstore.Order) (int, error) {
		return store.ActOnAll(ctx, order, many.filter, counted)
	})
	return err
}

// changeCounted changes jobs that were counted, after confirmation unless sure, with a progress bar,
// and prints the result.
func (a *app) changeCounted(action jobstore.Action, jobs int64, dryRun, sure bool, act func(jobstore.Order) (int, error)) (bulkDone, error) {
	answer := bulkDone{Action: action, Jobs: jobs, DryRun: dryRun}
	if jobs > 0 && !dryRun {
		if !sure {
			if err := a.confirm(fmt.Sprintf("%s %s?", action, countJobs(jobs)), "use --yes, or --dry-run to see how many"); err != nil {
				return answer, err
			}
		}
		var err error
		progress := newBar(a.err, int(jobs))
		answer.Changed, err = act(jobstore.Order{Action: action, By: whoAmI(), Progress: func(done int) { progress.set(min(done, int(jobs))) }})
		progress.end()
		if err != nil {
			return answer, fmt.Errorf("%w (after %s; repeat the command to continue)", err, countJobs(int64(answer.Changed)))
		}
	}
	return answer, a.result(answer, "%s", answer)
}

// String describes the result in one sentence.
func (b bulkDone) String() string {
	if b.DryRun {
		return fmt.Sprintf("would %s %s", b.Action, countJobs(b.Jobs))
	}
	did := map[jobstore.Action]string{
		jobstore.Cancel: "cancelled, or told to stop,", jobstore.Retry: "made available", jobstore.Discard: "discarded",
	}[b.Action]
	said := fmt.Sprintf("%s %s", did, countJobs(int64(b.Changed)))
	if left := b.Jobs - int64(b.Changed); left > 0 {
		said += fmt.Sprintf("; %d changed state meanwhile, or cannot be changed", left)
	}
	return said
}

func countJobs(n int64) string {
	if n == 1 {
		return "1 job"
	}
	return fmt.Sprintf("%d jobs", n)
}

// confirm asks the question on a terminal. Without a terminal it returns an error with the advice.
func (a *app) confirm(question, advice string) error {
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		return usageError(fmt.Errorf("%s Confirmation needs a terminal: %s", question, advice))
	}
	_, _ = fmt.Fprintf(a.err, "%s [y/N] ", question)
	answer, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil || !slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(answer))) {
		return errors.New("nothing was done")
	}
	return nil
}
