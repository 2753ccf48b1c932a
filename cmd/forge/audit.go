package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge/internal/auditstore"
	"github.com/forge-scheduler/forge/internal/tail"
)

// auditedCommands are those that change the cluster.
var auditedCommands = []string{
	"apply",
	"cron trigger", "cron pause", "cron resume", "cron backfill",
	"job enqueue", "job retry", "job cancel", "job discard",
	"queue pause", "queue resume",
	"dead retry", "dead discard",
	"leader step-down", "leader transfer",
	"drill", "node drain", "node undrain",
	"alerts silence", "alerts unsilence",
	"token create", "token revoke",
}

// actionOf names what a command does and to what, as the audit log is told; no
// action: it changes nothing.
func actionOf(cmd *cobra.Command, args []string) (action, object string) {
	path := strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
	if !slices.Contains(auditedCommands, path) {
		return "", ""
	}
	if dryRun := cmd.Flags().Lookup("dry-run"); dryRun != nil && dryRun.Changed {
		return "", ""
	}
	return strings.ReplaceAll(path, " ", "."), strings.Join(args, " ")
}

// auditTimeout is how long an outcome waits for the database.
const auditTimeout = 5 * time.Second

// audited writes down what a command does, before and after it.
func (a *app) audited(work func(context.Context, *pgxpool.Pool) error) func(context.Context, *pgxpool.Pool) error {
	if a.action == "" {
		return work
	}
	return func(ctx context.Context, pool *pgxpool.Pool) error {
		id, err := auditstore.Begin(ctx, pool, auditstore.Entry{Actor: cliActor(), Source: cliSource(), Action: a.action, Object: a.object})
		if err != nil {
			return err
		}
		done := work(ctx, pool)
		outcome, detail := outcomeOf(done)
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditTimeout)
		defer cancel()
		return errors.Join(done, auditstore.End(ending, pool, id, outcome, detail))
	}
}

func outcomeOf(err error) (outcome, detail string) {
	if err == nil {
		return auditstore.Done, ""
	}
	if coded, ok := errors.AsType[*codedError](err); ok && slices.Contains([]int{exitUsage, exitConfig, exitNotFound, exitConflict}, coded.code) {
		return auditstore.Refused, err.Error()
	}
	return auditstore.Failed, err.Error()
}

// cliActor is the user of the system who runs the command.
func cliActor() string {
	if u, err := user.Current(); err == nil {
		return "cli:" + u.Username
	}
	return "cli:somebody"
}

func cliSource() string {
	if host, err := os.Hostname(); err == nil {
		return host
	}
	return "an unknown machine"
}

func (a *app) auditCommand() *cobra.Command {
	filter := auditstore.Filter{}
	var follow bool
	cmd := &cobra.Command{
		Use: "audit", Short: "Show who did what, and who was refused it, newest first, or follow it", Args: cobra.NoArgs,
		Example: "  forge audit --outcome refused\n  forge audit --actor deploy --follow",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if outcome := filter.Outcome; outcome != "" && !slices.Contains(auditstore.Outcomes(), outcome) {
				return usageError(fmt.Errorf("--outcome %q: want %s", outcome, strings.Join(auditstore.Outcomes(), ", ")))
			}
			if follow && a.format == "yaml" {
				return usageError(errNoYAMLStream)
			}
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				if follow {
					return a.followAudit(ctx, pool, filter)
				}
				entries, err := auditstore.List(ctx, pool, filter)
				if err != nil {
					return err
				}
				return list(a, entries, auditColumns)
			})
		},
	}
	cmd.Flags().IntVarP(&filter.Limit, "limit", "n", 30, "at most this many; with --follow: so many to begin with")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with new entries, oldest first, until interrupted (-o json: one object each)")
	cmd.Flags().StringVar(&filter.Actor, "actor", "", "only what this token did, or cli:USER, or anonymous")
	cmd.Flags().StringVar(&filter.Action, "action", "", "only this action, such as job.cancel")
	cmd.Flags().StringVar(&filter.Outcome, "outcome", "", "only these: "+strings.Join(auditstore.Outcomes(), ", "))
	return cmd
}

// followAudit prints entries as they come; one that was seen begun comes again when
// it has ended.
func (a *app) followAudit(ctx context.Context, pool *pgxpool.Pool, filter auditstore.Filter) error {
	return tail.Rows[auditstore.Entry]{
		Find: func(ctx context.Context, after int64, limit int) ([]auditstore.Entry, error) {
			filter.AfterID, filter.Limit = after, limit
			return auditstore.List(ctx, pool, filter)
		},
		ID: func(e auditstore.Entry) int64 { return e.ID }, Mark: func(e auditstore.Entry) string { return e.Outcome },
		Tell: eachLine(func(e auditstore.Entry) error { return printLine(a, e, auditColumns) }),
	}.Run(ctx, 0, filter.Limit)
}

var auditColumns = []column[auditstore.Entry]{
	{title: "at", show: func(e auditstore.Entry) string { return stamp(e.At) }},
	{title: "who", show: func(e auditstore.Entry) string { return e.Actor }},
	{title: "from", show: func(e auditstore.Entry) string { return e.Source }},
	{title: "action", show: func(e auditstore.Entry) string { return e.Action }},
	{title: "object", show: func(e auditstore.Entry) string { return dash(e.Object) }},
	{title: "outcome", show: func(e auditstore.Entry) string { return e.Outcome }},
	{title: "detail", wide: true, show: func(e auditstore.Entry) string { return dash(e.Detail) }},
}
