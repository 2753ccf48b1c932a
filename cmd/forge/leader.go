package main

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge/internal/lockholders"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/roles"
)

func (a *app) leaderCommand() *cobra.Command {
	return group("leader", "See who leads and who led before, and hand roles over",
		a.leaderStatusCommand(), a.leaderHistoryCommand(), a.leaderWatchCommand(),
		a.leaderStepDownCommand(), a.leaderTransferCommand())
}

func (a *app) leaderStatusCommand() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show the leader of each role", Args: cobra.NoArgs,
		Example: "  forge leader status",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.loadQuietly()
			if err != nil {
				return err
			}
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				leaders, err := lockholders.Leaders(ctx, pool, cfg)
				if err != nil {
					return err
				}
				return list(a, leaders, leaderColumns)
			})
		},
	}
}

var leaderColumns = []column[leaderstore.Leader]{
	{title: "role", show: func(l leaderstore.Leader) string { return l.Role }},
	{title: "leader", show: func(l leaderstore.Leader) string {
		switch {
		case l.Leads():
			return l.NodeID
		case l.LockHolder != nil:
			return "(none)\nlock held by " + l.LockHolder.String()
		}
		return "(none)"
	}},
	{title: "term", show: func(l leaderstore.Leader) string { return strconv.FormatInt(l.Term, 10) }},
	{title: "since", show: func(l leaderstore.Leader) string { return ago(l.AcquiredAt, l.Now) }},
	{title: "lease", show: func(l leaderstore.Leader) string {
		if !l.Leads() {
			return "-"
		}
		return span(l.LeaseUntil.Sub(l.Now).Round(10*time.Millisecond)) + " left"
	}},
	{title: "api", show: func(l leaderstore.Leader) string { return dash(l.APIURL) }},
	{title: "incarnation", wide: true, show: func(l leaderstore.Leader) string { return dash(l.Incarnation) }},
	{title: "backend", wide: true, show: func(l leaderstore.Leader) string { return strconv.Itoa(l.BackendPID) }},
	{title: "timeline", wide: true, show: func(l leaderstore.Leader) string { return dash(l.Timeline) }},
	{title: "metadata", wide: true, show: func(l leaderstore.Leader) string { return dash(string(l.Metadata)) }},
}

func (a *app) leaderHistoryCommand() *cobra.Command {
	var role string
	var limit int
	cmd := &cobra.Command{
		Use: "history", Short: "Show past tenures, why they ended and the gap before each", Args: cobra.NoArgs,
		Example: "  forge leader history --role scheduler -n 5",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				tenures, err := leaderstore.History(ctx, pool, role, limit)
				if err != nil {
					return err
				}
				if len(tenures) == 0 && role != "" && !slices.Contains(roles.All(), roles.Role(role)) {
					return notFound("no role %q has ever been led; see forge leader status", role)
				}
				rows, err := withGapTicks(ctx, pool, tenures)
				if err != nil {
					return err
				}
				return list(a, rows, tenureColumns)
			})
		},
	}
	cmd.Flags().StringVar(&role, "role", "", "only this role")
	cmd.Flags().IntVarP(&limit, "limit", "n", 30, "at most this many, newest first")
	return cmd
}

var tenureColumns = []column[tenureRow]{
	{title: "role", show: func(t tenureRow) string { return t.Role }},
	{title: "term", show: func(t tenureRow) string { return strconv.FormatInt(t.Term, 10) }},
	{title: "node", show: func(t tenureRow) string { return t.NodeID }},
	{title: "from", show: func(t tenureRow) string { return stamp(t.AcquiredAt) }},
	{title: "lasted", show: func(t tenureRow) string {
		if t.EndedAt.IsZero() {
			return "still leads"
		}
		return span(t.EndedAt.Sub(t.AcquiredAt))
	}},
	{title: "ended", show: func(t tenureRow) string {
		if t.Drill {
			return t.EndReason + " (drill)"
		}
		return dash(t.EndReason)
	}},
	{title: "gap before", show: func(t tenureRow) string {
		if !t.HasGap {
			return "-"
		}
		return span(t.Gap)
	}},
	{title: "ticks in gap", wide: true, show: tenureRow.gapTicks},
	{title: "until", wide: true, show: func(t tenureRow) string { return stamp(t.EndedAt) }},
	{title: "incarnation", wide: true, show: func(t tenureRow) string { return t.Incarnation }},
	{title: "timeline", wide: true, show: func(t tenureRow) string { return t.Timeline }},
}
