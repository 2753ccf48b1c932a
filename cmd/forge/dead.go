package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

func (a *app) deadCommand() *cobra.Command {
	return group("dead", "Show dead letters, the jobs that have used all attempts, and retry or discard them",
		a.watchable(a.deadListCommand()), a.deadRetryCommand(), a.deadDiscardCommand())
}

// deadFlags are the filter's flags as given.
type deadFlags struct {
	kind, failure, older, newer string
	where                       whereFlag
}

func (f *deadFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.kind, "kind", "", "only jobs of this kind")
	flags.StringVar(&f.failure, "error", "", "only jobs whose error contains this text")
	flags.StringVar(&f.older, "older-than", "", "only jobs that died longer ago than this, such as 6h or 2d")
	flags.StringVar(&f.newer, "newer-than", "", "only jobs that died since then")
	f.where.addTo(flags, jobstore.DeadKeys, "jobs", "kind:send* node:node-2 error:timeout since:2h", "jobs.md")
}

func (f *deadFlags) given() bool {
	return f.kind != "" || f.failure != "" || f.older != "" || f.newer != "" || f.where.Filter != nil
}

// filter returns the filter of the flags and of the arguments, which are job ids or one group.
func (f *deadFlags) filter(args []string) (filter jobstore.DeadFilter, err error) {
	filter = jobstore.DeadFilter{Kind: f.kind, Error: f.failure, Where: f.where.Filter}
	for _, flag := range []struct {
		name, text string
		value      *time.Duration
	}{{"--older-than", f.older, &filter.OlderThan}, {"--newer-than", f.newer, &filter.NewerThan}} {
		if flag.text == "" {
			continue
		}
		d, err := config.ParseDuration(flag.text)
		if err != nil || d <= 0 {
			return filter, usageError(fmt.Errorf("%s %s: want a duration such as 90s, 6h or 2d", flag.name, flag.text))
		}
		*flag.value = d.Std()
	}
	switch {
	case len(args) == 1 && jobstore.IsDeadGroup(args[0]):
		filter.Group = args[0]
	case len(args) > 0:
		filter.IDs, err = deadIDs(args)
	}
	return filter, err
}

func deadIDs(args []string) ([]int64, error) {
	for _, arg := range args {
		if _, err := strconv.ParseInt(arg, 10, 64); err != nil {
			return nil, usageError(fmt.Errorf("%q: want ids of jobs, or one group such as d28cfe5c16a; see forge dead list", arg))
		}
	}
	return jobIDs(args)
}

func (a *app) deadListCommand() *cobra.Command {
	var flags deadFlags
	var jobs bool
	var limit int
	var sort sortFlag
	cmd := &cobra.Command{
		Use: "list [GROUP]", Short: "List dead letters by kind and error, or the jobs of a group", Args: cobra.MaximumNArgs(1),
		Example: "  forge dead list\n  forge dead list d28cfe5c16a\n  forge dead list --jobs --kind report --newer-than 1d\n" +
			"  forge dead list --filter 'kind:send* error:timeout since:2h'",
		RunE: func(cmd *cobra.Command, args []string) error {
			filter, err := flags.filter(args)
			if err != nil {
				return err
			}
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				if jobs || len(args) > 0 {
					return a.listDead(ctx, pool, filter, limit)
				}
				groups, err := jobstore.New(pool).DeadGroups(ctx, filter)
				if err != nil {
					return err
				}
				groups = jobstore.DeadOrders.Sort(sort.name, groups)
				return list(a, groups[:min(len(groups), limit)], deadGroupColumns)
			})
		},
	}
	flags.register(cmd)
	sort.addTo(cmd.Flags(), jobstore.DeadOrders.Names())
	cmd.Flags().BoolVar(&jobs, "jobs", false, "list the jobs, newest first, instead of their groups")
	cmd.Flags().IntVarP(&limit, "limit", "n", 100, "at most this many")
	return cmd
}

func (a *app) listDead(ctx context.Context, pool *pgxpool.Pool, filter jobstore.DeadFilter, limit int) error {
	letters, err := jobstore.New(pool).DeadLetters(ctx, filter, 0, limit)
	if err != nil {
		return err
	}
	if filter.Group != "" && len(letters) == 0 {
		return noDeadGroup(filter.Group)
	}
	return list(a, letters, deadLetterColumns)
}

func noDeadGroup(name string) error {
	return notFound("no dead letters in the group %s, or none that the filter names; see forge dead list", name)
}

var deadGroupColumns = []column[jobstore.DeadGroup]{
	{title: "group", show: func(g jobstore.DeadGroup) string { return g.Group }},
	{title: "kind", show: func(g jobstore.DeadGroup) string { return g.Kind }},
	{title: "jobs", show: func(g jobstore.DeadGroup) string { return strconv.FormatInt(g.Jobs, 10) }},
	{title: "first", show: func(g jobstore.DeadGroup) string { return ago(g.First, time.Now()) }},
	{title: "last", show: func(g jobstore.DeadGroup) string { return ago(g.Last, time.Now()) }},
	{title: "second round", show: func(g jobstore.DeadGroup) string { return ago(g.SecondRound, time.Now()) }},
	{title: "newest job", wide: true, show: func(g jobstore.DeadGroup) string { return strconv.FormatInt(g.NewestJob, 10) }},
	{title: "error", show: func(g jobstore.DeadGroup) string { return dash(firstLine(g.Error, 80)) }},
}

var deadLetterColumns = []column[jobstore.DeadLetter]{
	{title: "id", show: func(l jobstore.DeadLetter) string { return strconv.FormatInt(l.ID, 10) }},
	{title: "kind", show: func(l jobstore.DeadLetter) string { return l.Kind }},
	{title: "group", show: func(l jobstore.DeadLetter) string { return l.Group }},
	{title: "cron", wide: true, show: func(l jobstore.DeadLetter) string { return dash(l.Cron) }},
	{title: "node", wide: true, show: func(l jobstore.DeadLetter) string { return dash(l.NodeID) }},
	{title: "queue", wide: true, show: func(l jobstore.DeadLetter) string { return l.Queue }},
	{title: "attempts", show: func(l jobstore.DeadLetter) string { return strconv.Itoa(l.Attempt) }},
	{title: "died", show: func(l jobstore.DeadLetter) string { return ago(l.DiedAt, time.Now()) }},
	{title: "lost nodes", show: func(l jobstore.DeadLetter) string { return dash(l.LostNodes()) }},
	{title: "how", wide: true, show: func(l jobstore.DeadLetter) string { return dash(l.HowLost()) }},
	{title: "second round", show: func(l jobstore.DeadLetter) string { return ago(l.SecondRound, time.Now()) }},
	{title: "error", show: func(l jobstore.DeadLetter) string { return dash(firstLine(l.Error, 80)) }},
}

func (a *app) deadRetryCommand() *cobra.Command {
	return a.deadActCommand(jobstore.Retry, "Give dead letters one more attempt now")
}

func (a *app) deadDiscardCommand() *cobra.Command {
	return a.deadActCommand(jobstore.Discard, "Remove dead letters from the list; the jobs stay until their retention ends")
}

func (a *app) deadActCommand(action jobstore.Action, short string) *cobra.Command {
	var flags deadFlags
	var all, dryRun, yes bool
	cmd := &cobra.Command{
		Use: string(action) + " [ID... | GROUP]", Short: short, Args: cobra.ArbitraryArgs,
		Long: short + ".\n\nSelect dead letters by the ids of their jobs, by group, by a filter, or with --all. The exit code is 4\n" +
			"if a job is not a dead letter, and 6 if another job has its unique key by now; the command still\n" +
			"changes the other jobs.",
		Example: fmt.Sprintf("  forge dead %[1]s 42 43\n  forge dead %[1]s d28cfe5c16a\n  forge dead %[1]s --kind report --older-than 2d --dry-run", action),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case all && (len(args) > 0 || flags.given()):
				return usageError(errors.New("--all cannot be combined with ids, a group or a filter"))
			case !all && len(args) == 0 && !flags.given():
				return usageError(errors.New("which dead letters? Name ids, a group or a filter (--kind, --error, --older-than, --newer-than, --filter), or use --all"))
			}
			filter, err := flags.filter(args)
			if err != nil {
				return err
			}
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				return a.actOnDead(ctx, pool, action, filter, dryRun, yes || len(filter.IDs) > 0)
			})
		},
	}
	flags.register(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "all dead letters")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only print how many jobs it would change")
	cmd.Flags().BoolVar(&yes, "yes", false, "with a group or a filter: do not ask")
	return cmd
}

func (a *app) actOnDead(ctx context.Context, pool *pgxpool.Pool, action jobstore.Action, filter jobstore.DeadFilter, dryRun, sure bool) error {
	counted, err := jobstore.New(pool).CountDead(ctx, filter, jobstore.Matching{})
	if err != nil {
		return err
	}
	if filter.Group != "" && counted.Jobs == 0 {
		return noDeadGroup(filter.Group)
	}
	var letters []jobstore.DeadLetter // among the jobs given by id, before they are changed
	if len(filter.IDs) > 0 {
		if letters, err = jobstore.New(pool).DeadLetters(ctx, filter, 0, len(filter.IDs)); err != nil {
			return err
		}
	}
	answer, err := a.changeCounted(action, counted.Jobs, dryRun, sure, func(order jobstore.Order) (int, error) {
		return jobstore.New(pool).ActOnDead(ctx, order, filter, counted)
	})
	if err != nil {
		return err
	}
	return missingDead(filter.IDs, letters, answer)
}

// missingDead returns an error unless all jobs given by id were dead letters and were changed.
func missingDead(ids []int64, letters []jobstore.DeadLetter, done bulkDone) error {
	var missing []int64
	for _, id := range ids {
		if !slices.ContainsFunc(letters, func(l jobstore.DeadLetter) bool { return l.ID == id }) {
			missing = append(missing, id)
		}
	}
	switch {
	case len(missing) > 0:
		return notFound("no dead letters: %v; see forge dead list --jobs", missing)
	case len(ids) > 0 && !done.DryRun && int64(done.Changed) < done.Jobs:
		return conflictError(fmt.Errorf("%s left alone: another job holds the unique key", countJobs(done.Jobs-int64(done.Changed))))
	default:
		return nil
	}
}

// secondRound describes a job's second round, or returns an empty string.
func secondRound(round *jobstore.SecondRound) string {
	if round == nil {
		return ""
	}
	return fmt.Sprintf("after attempt %d, given %s by %s in term %d", round.Attempt, stamp(round.At), round.NodeID, round.Term)
}
