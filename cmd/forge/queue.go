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

	"github.com/forge-scheduler/forge/internal/jobstore"
)

func (a *app) queueCommand() *cobra.Command {
	return group("queue", "Show queues, their waiting jobs and their limits, and pause them",
		a.watchable(a.queueListCommand()), a.watchable(a.queueShowCommand()), a.watchable(a.queueLimitsCommand()), a.queuePauseCommand(), a.queueResumeCommand())
}

func (a *app) queueListCommand() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the queues with their waiting and running jobs", Args: cobra.NoArgs,
		Example: "  forge queue list",
		RunE: listed(a, queueColumns, func(ctx context.Context, pool *pgxpool.Pool, _ []string) ([]jobstore.Queue, error) {
			return jobstore.New(pool).Queues(ctx)
		}),
	}
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
	{title: "running", show: func(u jobstore.Usage) string { return strconv.FormatInt(u.Running, 10) }},
	{title: "limit", show: func(u jobstore.Usage) string { return strconv.Itoa(u.Most) }},
	{title: "available", show: func(u jobstore.Usage) string { return atLeast(u.Available, u.MoreAvailable) }},
}

// pausedQueue is the JSON output of forge queue pause and forge queue resume.
type pausedQueue struct {
	Name     string    `json:"name"`
	PausedAt time.Time `json:"paused_at,omitzero"`
	Changed  bool      `json:"changed"`
}

func (a *app) queuePauseCommand() *cobra.Command {
	return a.pauseQueueCommand("pause NAME", "Start no more jobs of a queue until it is resumed; running jobs continue", (*jobstore.Store).PauseQueue,
		func(h pausedQueue) string {
			if h.Changed {
				return fmt.Sprintf("%s is paused; resume it with forge queue resume %s", h.Name, h.Name)
			}
			return h.Name + " is already paused, since " + stamp(h.PausedAt)
		})
}

func (a *app) queueResumeCommand() *cobra.Command {
	return a.pauseQueueCommand("resume NAME", "Resume a paused queue", (*jobstore.Store).ResumeQueue,
		func(h pausedQueue) string {
			if h.Changed {
				return h.Name + " is resumed"
			}
			return h.Name + " is not paused"
		})
}

// pauseQueueCommand returns a command that pauses or resumes a queue. To repeat it is not an error.
func (a *app) pauseQueueCommand(use, short string,
	change func(store *jobstore.Store, ctx context.Context, queue, by string) (time.Time, bool, error), say func(pausedQueue) string,
) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.ExactArgs(1),
		Example: "  forge queue " + strings.Replace(use, "NAME", "mail", 1),
		RunE: a.onDatabase(func(ctx context.Context, pool *pgxpool.Pool, args []string) error {
			since, changed, err := change(jobstore.New(pool), ctx, args[0], whoAmI())
			if errors.Is(err, jobstore.ErrNoQueue) {
				return unknownQueue(ctx, pool, args[0])
			}
			if err != nil {
				return err
			}
			answer := pausedQueue{Name: args[0], PausedAt: since, Changed: changed}
			return a.result(answer, "%s", say(answer))
		}),
	}
}

func unknownQueue(ctx context.Context, pool *pgxpool.Pool, name string) error {
	queues, err := jobstore.New(pool).Queues(ctx)
	if err != nil {
		return err
	}
	return unknown("queue", name, names(queues, func(q jobstore.Queue) string { return q.Name }), "forge queue list")
}
