package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forge-scheduler/forge/internal/access"
	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/jobs"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/roles"
)

const (
	// completionTimeout bounds how long the shell waits for names.
	completionTimeout = time.Second
	// completedNames and completedJobs bound how many names a shell is given.
	completedNames, completedJobs = 500, 50
)

// nameSource reads the names of one sort, from a database unless they are fixed. Each may have a
// description after a tab.
type nameSource struct {
	read  func(ctx context.Context, pool *pgxpool.Pool) ([]string, error)
	fixed []string
}

// completeNames gives each command and flag below cmd that takes a name the completion of such names.
func (a *app) completeNames(cmd *cobra.Command) {
	if cmd.Runnable() && cmd.ValidArgsFunction == nil && !cmd.HasSubCommands() {
		a.completeArguments(cmd)
	}
	cmd.LocalFlags().VisitAll(func(flag *pflag.Flag) { a.completeFlag(cmd, flag) })
	for _, sub := range cmd.Commands() {
		a.completeNames(sub)
	}
}

// completeArguments completes the arguments by their names in the usage.
func (a *app) completeArguments(cmd *cobra.Command) {
	arguments := strings.Fields(strings.NewReplacer("[", "", "]", "").Replace(cmd.Use))[1:]
	if slices.ContainsFunc(arguments, func(argument string) bool {
		return strings.Contains(argument, "FILE") || argument == "DIR" || argument == "--"
	}) {
		return // the shell completes files
	}
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		at := len(args)
		if n := len(arguments); n > 0 && at >= n && strings.HasSuffix(arguments[n-1], "...") {
			at = n - 1
		}
		if at >= len(arguments) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return a.namesFor(cmd.Context(), sourceOf(cmd, strings.TrimSuffix(arguments[at], "...")), args, prefix)
	}
}

// sourceOf returns where the names of an argument come from. It is nil if nothing completes them.
func sourceOf(cmd *cobra.Command, argument string) *nameSource {
	switch argument {
	case "NODE":
		return &nameSource{read: nodeNames}
	case "ROLE":
		return &nameSource{read: roleNames}
	case "ID":
		return &nameSource{read: jobNames}
	case "KIND":
		return &nameSource{read: kindNames}
	case "NAME", "NAME|EXPRESSION":
		switch cmd.Parent().Name() {
		case "cron":
			return &nameSource{read: cronNames}
		case "queue":
			return &nameSource{read: queueNames}
		case "alerts":
			return &nameSource{read: alertNames}
		case "token":
			if cmd.Name() == "revoke" {
				return &nameSource{read: tokenNames}
			}
		}
	}
	return nil
}

// completeFlag completes the values of a flag by its name.
func (a *app) completeFlag(cmd *cobra.Command, flag *pflag.Flag) {
	var source *nameSource
	switch flag.Name {
	case "kind":
		source = &nameSource{read: kindNames}
	case "queue":
		source = &nameSource{read: queueNames}
	case "cron":
		source = &nameSource{read: cronNames}
	case "role":
		source = &nameSource{read: roleNames}
	case "node", "to":
		if flag.Value.Type() == "string" && !strings.Contains(flag.Usage, "RFC 3339") {
			source = &nameSource{read: nodeNames}
		}
	case "output":
		source = fixed("table", "wide", "json", "yaml")
	case "state":
		source = fixed(jobStates...)
	case "outcome":
		source = fixed(access.AuditOutcomes()...)
	case "scope":
		source = fixed(string(access.Viewer), string(access.Operator), string(access.Admin))
	case "sort":
		if orders, ok := flag.Value.(*sortFlag); ok {
			source = fixed(orders.orders...)
		}
	}
	if source == nil {
		return
	}
	// Only a flag that is not there, or that has a completion already, gives an error.
	_ = cmd.RegisterFlagCompletionFunc(flag.Name, func(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
		return a.namesFor(cmd.Context(), source, nil, prefix)
	})
}

// namesFor returns the names of a source that begin with prefix, without those already given. It is
// silent and quick: without a database there are no names.
func (a *app) namesFor(ctx context.Context, source *nameSource, given []string, prefix string) ([]string, cobra.ShellCompDirective) {
	const directive = cobra.ShellCompDirectiveNoFileComp
	if source == nil {
		return nil, directive
	}
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	all := source.fixed
	if source.read != nil {
		all = a.readNames(ctx, source)
	}
	var names []string
	for _, name := range all {
		bare, _, _ := strings.Cut(name, "\t")
		if strings.HasPrefix(bare, prefix) && !slices.Contains(given, bare) && len(names) < completedNames {
			names = append(names, harmless(name))
		}
	}
	return names, directive
}

// readNames reads the names of a source from the configured database. It returns none if that fails.
func (a *app) readNames(ctx context.Context, source *nameSource) (names []string) {
	cfg, err := a.quiet().load()
	if err != nil {
		return nil
	}
	pool, err := openPool(ctx, cfg, true)
	if err != nil {
		return nil
	}
	defer postgres.ClosePool(pool)
	names, _ = source.read(ctx, pool) // a shell has no use for the error
	return names
}

func fixed(all ...string) *nameSource { return &nameSource{fixed: all} }

func cronNames(ctx context.Context, pool *pgxpool.Pool) ([]string, error) {
	return cronstore.New(pool).Names(ctx)
}

func nodeNames(ctx context.Context, pool *pgxpool.Pool) ([]string, error) {
	nodes, err := nodestore.New(pool).List(ctx)
	return names(nodes, func(n nodestore.Node) string { return n.NodeID + "\t" + n.State }), err
}

// roleNames returns the built-in roles, and those that have had a leader.
func roleNames(ctx context.Context, pool *pgxpool.Pool) ([]string, error) {
	all := names(roles.All(), func(r roles.Role) string { return string(r) })
	leaders, err := leaderstore.New(pool).Leaders(ctx)
	for _, l := range leaders {
		if !slices.Contains(all, l.Role) {
			all = append(all, l.Role)
		}
	}
	return all, err
}

func jobNames(ctx context.Context, pool *pgxpool.Pool) ([]string, error) {
	newest, err := jobstore.New(pool).List(ctx, jobstore.Filter{Limit: completedJobs, Args: jobstore.ShortArgs})
	return names(newest, func(j jobstore.Job) string { return strconv.FormatInt(j.ID, 10) + "\t" + j.Kind + ", " + j.State }), err
}

// kindNames returns the kinds that nodes have had workers for, and the jobs of the configuration in
// force.
func kindNames(ctx context.Context, pool *pgxpool.Pool) ([]string, error) {
	_, known, err := jobs.NewEnqueuer(pool, nil).Kinds(ctx)
	if err != nil {
		return nil, err
	}
	section, err := cronstore.New(pool).SectionInForce(ctx, "jobs")
	if err != nil {
		return nil, err
	}
	defined := map[string]json.RawMessage{}
	if len(section) > 0 {
		var sections struct {
			Jobs map[string]json.RawMessage `json:"jobs"`
		}
		if err := json.Unmarshal(section, &sections); err != nil {
			return nil, fmt.Errorf("read the jobs of the configuration in force: %w", err)
		}
		defined = sections.Jobs
	}
	for _, kind := range slices.Sorted(maps.Keys(defined)) {
		if !slices.Contains(known, kind) {
			known = append(known, kind)
		}
	}
	return known, nil
}

func queueNames(ctx context.Context, pool *pgxpool.Pool) ([]string, error) {
	queues, err := jobstore.New(pool).Queues(ctx)
	return names(queues, func(q jobstore.Queue) string { return q.Name }), err
}

func alertNames(ctx context.Context, pool *pgxpool.Pool) ([]string, error) {
	all, err := alerts.New(pool).List(ctx)
	return names(all, func(s alerts.Status) string { return s.Name + "\t" + string(s.State) }), err
}

func tokenNames(ctx context.Context, pool *pgxpool.Pool) ([]string, error) {
	tokens, err := access.NewTokens(pool).List(ctx)
	return names(tokens, func(t access.Token) string { return t.Name + "\t" + string(t.Scope) }), err
}
