package main

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/doctor"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/roles"
)

func (a *app) leaderCommand() *cobra.Command {
	return group("leader", "Show current and past leaders, and hand roles over",
		a.watchable(a.leaderStatusCommand()), a.watchable(a.leaderHistoryCommand()), a.leaderWatchCommand(),
		a.leaderStepDownCommand(), a.leaderTransferCommand())
}

func (a *app) leaderStatusCommand() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show the leader of each role", Args: cobra.NoArgs,
		Example: "  forge leader status\n  forge leader status -o wide   # also success rates of renewals and heartbeats",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.loadQuietly()
			if err != nil {
				return err
			}
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				leaders, err := doctor.LeadersWithHolders(ctx, pool, cfg)
				if err != nil {
					return err
				}
				lines, err := a.withRates(ctx, pool, leaders)
				if err != nil {
					return err
				}
				return list(a, lines, leaderLineColumns())
			})
		},
	}
}

// leaderLine is a role's leader with the success rates of its renewals and heartbeats.
type leaderLine struct {
	leaderstore.Leader
	aggregator.LeaderRates
}

// withRates adds the rates to leaders. It does not read them for -o table, which does not show them.
func (a *app) withRates(ctx context.Context, pool *pgxpool.Pool, leaders []leaderstore.Leader) ([]leaderLine, error) {
	var rates aggregator.Rates
	if a.format != "table" {
		var err error
		if rates, err = aggregator.NewStore(pool).Rates(ctx); err != nil {
			return nil, err
		}
	}
	lines := make([]leaderLine, len(leaders))
	for i, l := range leaders {
		lines[i] = leaderLine{l, rates.Of(l.Role, l.NodeID)}
	}
	return lines, nil
}

func leaderLineColumns() []column[leaderLine] {
	var columns []column[leaderLine]
	for _, c := range leaderColumns {
		columns = append(columns, column[leaderLine]{c.title, c.wide, func(l leaderLine) string { return c.show(l.Leader) }})
	}
	return append(columns,
		column[leaderLine]{title: "renewals", wide: true, show: func(l leaderLine) string {
			if l.Renewals == nil {
				return "-"
			}
			return l.Renewals.String() + " in the last hour"
		}},
		column[leaderLine]{title: "heartbeats", wide: true, show: func(l leaderLine) string {
			if l.Heartbeats == nil {
				return "-"
			}
			return l.Heartbeats.String() + " since " + stamp(l.Heartbeats.Since)
		}},
	)
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
				tenures, err := leaderstore.New(pool).History(ctx, role, limit)
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
