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

	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/queues"
)

func (a *app) queueShowCommand() *cobra.Command {
	var keys jobstore.KeySearch
	var sort sortFlag
	cmd := &cobra.Command{
		Use: "show NAME", Short: "Show a queue: its jobs, its limits, the nodes that work it, its crons and its pauses", Args: cobra.ExactArgs(1),
		Long: "Shows a queue. Lists are short: forge job list --queue NAME lists the jobs of a queue.\n" +
			"-o json prints the document that the API has at /api/v1/queues/NAME.",
		Example: "  forge queue show mail\n  forge queue show mail --search acme --sort waiting",
		RunE: a.onDatabase(func(ctx context.Context, pool *pgxpool.Pool, args []string) error {
			keys.Sort = sort.name
			report, err := queues.New(pool).Queue(ctx, args[0], keys)
			if errors.Is(err, jobstore.ErrNoQueue) {
				return unknownQueue(ctx, pool, args[0])
			}
			if err != nil {
				return err
			}
			return a.printQueue(&report)
		}),
	}
	cmd.Flags().StringVar(&keys.Text, "search", "", "only values of the queue's key that contain this")
	sort.addTo(cmd.Flags(), jobstore.KeySorts)
	return cmd
}

func (a *app) printQueue(q *queues.Report) error {
	if err := one(a, q, queueProperties); err != nil || !a.tabular() {
		return err
	}
	if err := section(a, "running jobs", q.RunningJobs, jobColumns); err != nil {
		return err
	}
	columns := queueKeyColumns
	if q.RatedKeys() {
		columns = append(slices.Clip(columns), queueRateColumn)
	}
	if err := section(a, "keys ("+q.Key+keysNote(q)+")", q.Keys, columns); err != nil {
		return err
	}
	if err := section(a, "paused jobs", q.PausedJobs, jobPauseColumns); err != nil {
		return err
	}
	if err := section(a, "crons", q.Crons, queueCronColumns); err != nil {
		return err
	}
	return section(a, "pauses", q.Pauses, queueChangeColumns)
}

// keysNote describes which values of the key are not listed.
func keysNote(q *queues.Report) string {
	note := ""
	if q.MoreKeys {
		note = fmt.Sprintf(", the first %d", len(q.Keys))
	}
	if q.MoreAvailable {
		note += fmt.Sprintf(", of running jobs and the first %d waiting ones", q.Available)
	}
	return note
}

// section prints a list with a title, if it is not empty.
func section[T any](a *app, title string, rows []T, columns []column[T]) error {
	if len(rows) == 0 {
		return nil
	}
	a.printf("\n%s:\n", title)
	return list(a, rows, columns)
}

var queueProperties = []column[*queues.Report]{
	{title: "queue", show: func(q *queues.Report) string { return q.Name }},
	{title: "paused", show: pauseNote},
	{title: "nodes", show: serversNote},
	{title: "available", show: func(q *queues.Report) string { return atLeast(q.Available, q.MoreAvailable) }},
	{title: "oldest waits", show: func(q *queues.Report) string {
		if q.OldestID == 0 {
			return ""
		}
		return fmt.Sprintf("%s, job %d", span(q.Wait()), q.OldestID)
	}},
	{title: "running", show: func(q *queues.Report) string { return fmt.Sprintf("%d of %d", q.Running, q.Workers) }},
	{title: "scheduled", show: func(q *queues.Report) string { return atLeast(q.Scheduled, q.MoreScheduled) }},
	{title: "retryable", show: func(q *queues.Report) string { return atLeast(q.Retryable, q.MoreRetryable) }},
	{title: "dead letters", show: func(q *queues.Report) string { return atLeast(q.Dead, q.MoreDead) }},
	{title: "last minutes", show: func(q *queues.Report) string { return workNote(q.Recent) }},
	{title: "configured", show: configuredNote},
	{title: "rate left", show: func(q *queues.Report) string { return leftNote(q.RateLeft) }},
	{title: "kinds", show: func(q *queues.Report) string {
		if q.MoreKinds {
			return strings.Join(q.Kinds, ", ") + " and others"
		}
		return strings.Join(q.Kinds, ", ")
	}},
}

func pauseNote(q *queues.Report) string {
	if q.PausedAt.IsZero() {
		return "no"
	}
	return sayPause(q.QueuePause)
}

// serversNote names the nodes that work a queue.
func serversNote(q *queues.Report) string {
	servers := make([]string, len(q.ServedBy))
	for i, n := range q.ServedBy {
		servers[i] = fmt.Sprintf("%s (%s, %d at once)", n.NodeID, n.State, n.Slots)
	}
	switch {
	case q.Worked():
		return strings.Join(servers, ", ")
	case len(servers) > 0:
		return "no node works this queue; " + strings.Join(servers, ", ")
	default:
		return "no node works this queue"
	}
}

// workNote describes the rates and percentiles of the last minutes.
func workNote(w *aggregator.Work) string {
	if w == nil {
		return ""
	}
	return fmt.Sprintf("%.4g started, %.4g finished, %.4g failed a minute; wait p50/p95/p99 %s; took %s; over %s",
		w.Started, w.Finished, w.Failed, spreadNote(w.Wait), spreadNote(w.Took), span(time.Duration(w.Minutes()-w.Unknown)*time.Minute))
}

func spreadNote(p aggregator.Percentiles) string {
	texts := make([]string, 0, 3)
	for _, seconds := range []*float64{p.P50, p.P95, p.P99} {
		if seconds == nil {
			return "-"
		}
		texts = append(texts, span(time.Duration(*seconds*float64(time.Second))))
	}
	return strings.Join(texts, "/")
}

// configuredNote describes what the configuration says about a queue.
func configuredNote(q *queues.Report) string {
	c := q.Configured
	if c == nil {
		return "no"
	}
	parts := []string{"priority " + strconv.Itoa(c.Priority)}
	if c.MaxWorkers > 0 {
		parts = append(parts, fmt.Sprintf("%d at once per node", c.MaxWorkers))
	}
	if c.Reserve > 0 {
		parts = append(parts, fmt.Sprintf("%d slots reserved per node", c.Reserve))
	}
	if c.GlobalLimit > 0 {
		parts = append(parts, fmt.Sprintf("%d at once in the cluster", c.GlobalLimit))
	}
	if l := c.LimitPerKey; l != nil {
		parts = append(parts, fmt.Sprintf("%d at once for each %s", l.Limit, l.Key))
	}
	if l := c.MaxWorkersPerKey; l != nil {
		parts = append(parts, fmt.Sprintf("%d at once per node for each %s", l.Limit, l.Key))
	}
	if c.RateLimit != nil {
		parts = append(parts, "starts "+c.RateLimit.String())
	}
	if c.FairBy != "" {
		parts = append(parts, turnsNote(q))
	}
	return strings.Join(parts, ", ")
}

// turnsNote describes whether the jobs take turns.
func turnsNote(q *queues.Report) string {
	note := "turns by " + q.Configured.FairBy
	if !q.FairReady {
		note += " once its index is built"
	}
	return note
}

var queueKeyColumns = []column[jobstore.KeyUse]{
	{title: "key", show: func(k jobstore.KeyUse) string { return dash(k.Key) }},
	{title: "running", show: func(k jobstore.KeyUse) string { return strconv.FormatInt(k.Running, 10) }},
	{title: "waiting", show: func(k jobstore.KeyUse) string { return atLeast(k.Waiting, k.Waiting >= jobstore.CountLimit) }},
	{title: "oldest", show: func(k jobstore.KeyUse) string { return stamp(k.OldestAt) }},
}

var queueRateColumn = column[jobstore.KeyUse]{title: "rate left", show: func(k jobstore.KeyUse) string { return leftNote(k.RateLeft) }}

// leftNote describes how many units a rate lets start now; empty without a rate.
func leftNote(left *int) string {
	if left == nil {
		return ""
	}
	return strconv.Itoa(*left)
}

var jobPauseColumns = []column[jobstore.JobPause]{
	{title: "jobs", show: func(p jobstore.JobPause) string { return p.String() }},
	{title: "paused", show: func(p jobstore.JobPause) string { return sayPause(p.QueuePause) }},
}

var queueCronColumns = []column[cronstore.QueueCron]{
	{title: "cron", show: func(c cronstore.QueueCron) string { return c.Name }},
	{title: "job", show: func(c cronstore.QueueCron) string { return c.Job }},
	{title: "next tick", show: func(c cronstore.QueueCron) string {
		if c.Paused {
			return "paused"
		}
		return tickStamp(c.NextTick)
	}},
}

var queueChangeColumns = []column[eventstore.QueueChange]{
	{title: "at", show: func(c eventstore.QueueChange) string { return stamp(c.At) }},
	{title: "what", show: func(c eventstore.QueueChange) string { return c.Action }},
	{title: "jobs", show: func(c eventstore.QueueChange) string { return dash(c.Jobs) }},
	{title: "by", show: func(c eventstore.QueueChange) string { return dash(c.By) }},
}
