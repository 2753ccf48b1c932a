package main

import (
	"cmp"
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

	"github.com/forge-scheduler/forge/internal/access"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// auditedCommands are the commands that change the cluster.
var auditedCommands = []string{
	"apply", "config revert",
	"cron trigger", "cron pause", "cron resume", "cron undo", "cron backfill",
	"job enqueue", "job retry", "job cancel", "job discard",
	"queue pause", "queue resume",
	"dead retry", "dead discard",
	"leader step-down", "leader transfer",
	"drill", "node drain", "node undrain",
	"alerts silence", "alerts unsilence",
	"token create", "token revoke", "session end",
}

// actionOf returns the action and object of a command for the audit log. The action is empty if
// the command changes nothing.
func actionOf(cmd *cobra.Command, args []string) (action, object string) {
	path := strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
	if !slices.Contains(auditedCommands, path) {
		return "", ""
	}
	if dryRun := cmd.Flags().Lookup("dry-run"); dryRun != nil && dryRun.Value.String() == "true" {
		return "", ""
	}
	if path != "job enqueue" {
		args = append(slices.Clone(args), filterOf(cmd)...)
	}
	return strings.ReplaceAll(path, " ", "."), strings.Join(args, " ")
}

// filterFlags are the flags that select the jobs of an action.
var filterFlags = []string{"user", "state", "kind", "queue", "cron", "older-than", "newer-than", "error", "all", "filter"}

// filterOf returns the filter of a command on many jobs, as it was given.
func filterOf(cmd *cobra.Command) (filter []string) {
	for _, name := range filterFlags {
		if flag := cmd.Flags().Lookup(name); flag != nil && flag.Changed {
			filter = append(filter, "--"+name+"="+flag.Value.String())
		}
	}
	return filter
}

// auditTimeout bounds how long recording an outcome may take.
const auditTimeout = 5 * time.Second

// audited wraps work so that the audit log has an entry before it and its outcome after it.
func (a *app) audited(work databaseWork) databaseWork {
	if a.action == "" {
		return work
	}
	return func(ctx context.Context, pool *pgxpool.Pool) error {
		user, host := whoRuns()
		id, err := access.NewAudit(pool).Begin(ctx, access.AuditEntry{
			Actor: "cli:" + cmp.Or(user, "somebody"), Source: cmp.Or(host, "an unknown machine"), Action: a.action, Object: a.object,
		})
		if err != nil {
			return err
		}
		done := work(ctx, pool)
		outcome, detail := outcomeOf(done)
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditTimeout)
		defer cancel()
		return errors.Join(done, access.NewAudit(pool).End(ending, id, outcome, detail))
	}
}

func outcomeOf(err error) (outcome, detail string) {
	if err == nil {
		return access.Done, ""
	}
	if coded, ok := errors.AsType[*codedError](err); ok && slices.Contains([]int{exitUsage, exitConfig, exitNotFound, exitConflict}, coded.code) {
		return access.Refused, err.Error()
	}
	return access.Failed, err.Error()
}

// whoRuns returns the operating system's user who runs the command, and the host. Either may be
// empty.
func whoRuns() (name, host string) {
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if known, err := os.Hostname(); err == nil {
		host = known
	}
	return name, host
}

// whoAmI names the user of a command for the event log.
func whoAmI() string {
	name, host := whoRuns()
	return strings.TrimSuffix(cmp.Or(name, "somebody")+"@"+host, "@")
}

func (a *app) auditCommand() *cobra.Command {
	filter := access.AuditFilter{}
	var follow bool
	cmd := &cobra.Command{
		Use: "audit", Short: "Show the audit log, newest first, or follow it", Args: cobra.NoArgs,
		Example: "  forge audit --outcome refused\n  forge audit --actor deploy --follow\n  forge audit --actor user:ann@example.com -o wide",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if outcome := filter.Outcome; outcome != "" && !slices.Contains(access.AuditOutcomes(), outcome) {
				return usageError(fmt.Errorf("--outcome %q: want %s", outcome, strings.Join(access.AuditOutcomes(), ", ")))
			}
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				log := postgres.Tail[access.AuditEntry]{
					Read: func(ctx context.Context, of postgres.TailRange) ([]access.AuditEntry, error) {
						filter.AfterID, filter.BeforeID, filter.Oldest, filter.Limit = of.After, of.Before, of.Oldest, of.Limit
						return access.NewAudit(pool).List(ctx, filter)
					},
					ID: func(e access.AuditEntry) int64 { return e.ID }, At: func(e access.AuditEntry) time.Time { return e.At },
					// an entry whose action was still running is printed again once the action has ended
					Mark: func(e access.AuditEntry) string { return e.Outcome },
				}
				return logged(ctx, a, log, follow, filter.Limit, auditColumns)
			})
		},
	}
	cmd.Flags().IntVarP(&filter.Limit, "limit", "n", 30, "at most this many; with --follow: how many earlier entries to print first")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "print new entries as they are added, until interrupted (-o json: one object each)")
	cmd.Flags().StringVar(&filter.Actor, "actor", "", "only entries of this actor: a token's name, user:NAME, cli:USER or anonymous")
	cmd.Flags().StringVar(&filter.Subject, "subject", "", "only entries of the user with this identifier at the provider")
	cmd.Flags().StringVar(&filter.Action, "action", "", "only this action, such as job.cancel")
	cmd.Flags().StringVar(&filter.Outcome, "outcome", "", "only entries with this outcome: "+strings.Join(access.AuditOutcomes(), ", "))
	return cmd
}

var auditColumns = []column[access.AuditEntry]{
	{title: "at", show: func(e access.AuditEntry) string { return stamp(e.At) }},
	{title: "who", show: func(e access.AuditEntry) string { return e.Actor }},
	{title: "from", show: func(e access.AuditEntry) string { return e.Source }},
	{title: "action", show: func(e access.AuditEntry) string { return e.Action }},
	{title: "object", show: func(e access.AuditEntry) string { return dash(e.Object) }},
	{title: "outcome", show: func(e access.AuditEntry) string { return e.Outcome }},
	{title: "subject", wide: true, show: func(e access.AuditEntry) string { return dash(e.Subject) }},
	{title: "detail", wide: true, show: func(e access.AuditEntry) string { return dash(e.Detail) }},
}
