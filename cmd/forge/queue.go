package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

func (a *app) queueCommand() *cobra.Command {
	return group("queue", "Show queues, their waiting jobs and their limits, and pause them",
		a.watchable(a.queueListCommand()), a.watchable(a.queueShowCommand()), a.watchable(a.queueLimitsCommand()), a.queuePauseCommand(), a.queueResumeCommand())
}

func (a *app) queueListCommand() *cobra.Command {
	var where whereFlag
	var sort sortFlag
	cmd := &cobra.Command{
		Use: "list", Short: "List the queues with their waiting and running jobs", Args: cobra.NoArgs,
		Example: "  forge queue list\n  forge queue list --filter 'is:waiting waits:>1m' --sort waits",
		RunE: listed(a, queueColumns, func(ctx context.Context, pool *pgxpool.Pool, _ []string) ([]jobstore.Queue, error) {
			queues, err := jobstore.New(pool).Queues(ctx)
			return jobstore.QueueOrders.Sort(sort.name, jobstore.QueueTable.Select(where.Filter, time.Now(), queues)), err
		}),
	}
	where.addTo(cmd.Flags(), jobstore.QueueTable.Keys(), "queues", "queue:mail* is:paused waits:>1m", "jobs.md")
	sort.addTo(cmd.Flags(), jobstore.QueueOrders.Names())
	return cmd
}

var queueColumns = []column[jobstore.Queue]{
	{title: "queue", show: func(q jobstore.Queue) string { return q.Name }},
	{title: "available", show: func(q jobstore.Queue) string { return atLeast(q.Available, q.MoreAvailable) }},
	{title: "oldest waits", show: func(q jobstore.Queue) string {
		if q.OldestAt.IsZero() {
			return "-"
		}
		return span(q.Wait())
	}},
	{title: "running", show: func(q jobstore.Queue) string { return strconv.FormatInt(q.Running, 10) }},
	{title: "limit", show: func(q jobstore.Queue) string { return number(q.GlobalLimit) }},
	{title: "paused", show: func(q jobstore.Queue) string { return ago(q.PausedAt, q.Now) }},
	{title: "scheduled", wide: true, show: func(q jobstore.Queue) string { return atLeast(q.Scheduled, q.MoreScheduled) }},
	{title: "retryable", wide: true, show: func(q jobstore.Queue) string { return atLeast(q.Retryable, q.MoreRetryable) }},
	{title: "nodes", wide: true, show: func(q jobstore.Queue) string { return strconv.Itoa(q.Nodes) }},
	{title: "workers", wide: true, show: func(q jobstore.Queue) string { return strconv.Itoa(q.Workers) }},
	{title: "paused until", wide: true, show: func(q jobstore.Queue) string { return stamp(q.PausedUntil) }},
	{title: "paused at", wide: true, show: func(q jobstore.Queue) string { return stamp(q.PausedAt) }},
}

// atLeast marks a count that stopped at jobstore.CountLimit.
func atLeast(jobs int64, more bool) string {
	if more {
		return strconv.FormatInt(jobs, 10) + "+"
	}
	return strconv.FormatInt(jobs, 10)
}

func (a *app) queueLimitsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "limits", Short: "List the limits of queues and jobs in force, with their use", Args: cobra.NoArgs,
		Example: "  forge queue limits",
		RunE: listed(a, limitColumns, func(ctx context.Context, pool *pgxpool.Pool, _ []string) ([]jobstore.Usage, error) {
			return jobstore.New(pool).Usages(ctx)
		}),
	}
}

var limitColumns = []column[jobstore.Usage]{
	{title: "on", show: func(u jobstore.Usage) string { return u.Scope }},
	{title: "name", show: func(u jobstore.Usage) string { return u.Name }},
	{title: "for each", show: func(u jobstore.Usage) string {
		if u.PerNode {
			return u.Key + ", per node"
		}
		return u.Key
	}},
	{title: "running", show: func(u jobstore.Usage) string { return strconv.FormatInt(u.Running, 10) }},
	{title: "started", show: func(u jobstore.Usage) string {
		if u.Started == nil {
			return ""
		}
		return strconv.FormatInt(*u.Started, 10)
	}},
	{title: "limit", show: func(u jobstore.Usage) string {
		text := strconv.Itoa(u.Most)
		if u.Window != "" {
			text += " in " + u.Window
		}
		if u.Burst > 0 {
			text += fmt.Sprintf(", %d at once", u.Burst)
		}
		return text
	}},
	{title: "available", show: func(u jobstore.Usage) string { return atLeast(u.Available, u.MoreAvailable) }},
}

// pausedQueue is the JSON output of forge queue pause and forge queue resume.
type pausedQueue struct {
	Name string `json:"name"`
	jobstore.JobPause

	Changed bool `json:"changed"`
}

// subject names what was paused or resumed, with the verb.
func (h pausedQueue) subject() string {
	if h.All() {
		return h.Name + " is"
	}
	return h.Name + ": jobs with " + h.String() + " are"
}

// pronoun refers to the subject.
func (h pausedQueue) pronoun() string {
	if h.All() {
		return "it"
	}
	return "them"
}

func (a *app) queuePauseCommand() *cobra.Command {
	var lasts string
	cmd := a.holdQueueCommand("pause NAME", "Start no more jobs of a queue until it is resumed; running jobs continue", (*jobstore.Store).PauseQueue, func(order *jobstore.QueuePauseOrder) error {
		if lasts == "" {
			return nil
		}
		d, err := config.ParseDuration(lasts)
		if err != nil {
			return usageError(fmt.Errorf("--for %q: %w; want a time such as 90m, 2h or 3d", lasts, err))
		}
		if order.For = d.Std(); order.For == 0 { // which would mean without end
			return usageError(jobstore.ErrPauseSpan)
		}
		return nil
	}, func(h pausedQueue) string {
		switch {
		case !h.Changed:
			return h.subject() + " already paused, " + sayPause(h.QueuePause) + "; resume " + h.pronoun() + " first to change that"
		case h.PausedUntil.IsZero():
			return fmt.Sprintf("%s paused; resume %s with forge queue resume %s%s", h.subject(), h.pronoun(), h.Name, h.Flags())
		default:
			return fmt.Sprintf("%s paused until %s; resume %s earlier with forge queue resume %s%s", h.subject(), stamp(h.PausedUntil), h.pronoun(), h.Name, h.Flags())
		}
	})
	cmd.Example += "\n  forge queue pause mail --for 2h --reason 'the provider is down'\n  forge queue pause mail --key args.tenant=acme"
	cmd.Flags().StringVar(&lasts, "for", "", "for how long, such as 90m, 2h or 3d; then the leader resumes it (default: until it is resumed)")
	return cmd
}

func (a *app) queueResumeCommand() *cobra.Command {
	return a.holdQueueCommand("resume NAME", "Resume a paused queue", (*jobstore.Store).ResumeQueue, func(*jobstore.QueuePauseOrder) error { return nil }, func(h pausedQueue) string {
		if h.Changed {
			return h.subject() + " resumed"
		}
		return h.subject() + " not paused"
	})
}

// sayPause describes a pause: since when, by whom, why and until when.
func sayPause(p jobstore.QueuePause) string {
	said := "since " + stamp(p.PausedAt)
	if p.PausedBy != "" {
		said += ", by " + p.PausedBy
	}
	if !p.PausedUntil.IsZero() {
		said += ", until " + stamp(p.PausedUntil)
	}
	if p.PauseReason != "" {
		said += ": " + p.PauseReason
	}
	return said
}

// holdQueueCommand returns a command that pauses or resumes a queue. complete adds what its own flags
// say. To repeat it is not an error.
func (a *app) holdQueueCommand(use, short string,
	change func(*jobstore.Store, context.Context, string, jobstore.QueuePauseOrder) (jobstore.QueuePause, bool, error),
	complete func(*jobstore.QueuePauseOrder) error, say func(pausedQueue) string,
) *cobra.Command {
	var reason, kind, keyed string
	cmd := &cobra.Command{
		Use: use, Short: short, Args: cobra.ExactArgs(1),
		Example: "  forge queue " + strings.Replace(use, "NAME", "mail", 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			selection, err := jobstore.SelectJobs(kind, keyed)
			if err != nil {
				return usageError(fmt.Errorf("--key: %w", err))
			}
			order := jobstore.QueuePauseOrder{By: whoAmI(), Reason: reason, Jobs: selection}
			if err := complete(&order); err != nil {
				return err
			}
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				pause, changed, err := change(jobstore.New(pool), ctx, args[0], order)
				switch {
				case errors.Is(err, jobstore.ErrNoQueue):
					return unknownQueue(ctx, pool, args[0])
				case errors.Is(err, eventstore.ErrReasonTooLong), errors.Is(err, jobstore.ErrPauseSpan), errors.Is(err, jobstore.ErrManyPauses):
					return usageError(err)
				case err != nil:
					return err
				}
				answer := pausedQueue{Name: args[0], JobPause: jobstore.JobPause{JobSelection: selection, QueuePause: pause}, Changed: changed}
				return a.result(answer, "%s", say(answer))
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for those who look at the queue")
	cmd.Flags().StringVar(&kind, "kind", "", "only jobs of this kind")
	cmd.Flags().StringVar(&keyed, "key", "", "only jobs with this value of a key, such as args.tenant=acme, tags.region=eu or cron=nightly")
	return cmd
}

func unknownQueue(ctx context.Context, pool *pgxpool.Pool, name string) error {
	queues, err := jobstore.New(pool).Queues(ctx)
	if err != nil {
		return err
	}
	return unknown("queue", name, names(queues, func(q jobstore.Queue) string { return q.Name }), "forge queue list")
}
