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

	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/doctor"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/roles"
)

func (a *app) leaderCommand() *cobra.Command {
	return group("leader", "Show current and past leaders, and hand roles over",
		a.watchable(a.leaderStatusCommand()), a.watchable(a.leaderHistoryCommand()), a.watchable(a.leaderIncidentCommand()), a.leaderWatchCommand(),
		a.leaderStepDownCommand(), a.leaderTransferCommand())
}

func (a *app) leaderStatusCommand() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show the leader of each role", Args: cobra.NoArgs,
		Example: "  forge leader status\n  forge leader status -o wide   # also success rates of renewals and heartbeats",
		RunE: listed(a, leaderLineColumns(), func(ctx context.Context, pool *pgxpool.Pool, _ []string) ([]leaderLine, error) {
			leaders, err := doctor.LeadersWithHolders(ctx, pool, a.cfg)
			if err != nil {
				return nil, err
			}
			return a.withRates(ctx, pool, leaders)
		}),
	}
}

// leaderLine is a role's leader with the success rates of its renewals and heartbeats, as in the API.
type leaderLine struct {
	leaderstore.Leader
	Leads          bool    `json:"leads"`
	LeaseRemaining float64 `json:"lease_remaining_seconds"`
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
		lines[i] = leaderLine{Leader: l, Leads: l.Leads(), LeaderRates: rates.Of(l.Role, l.NodeID)}
		if l.Leads() {
			lines[i].LeaseRemaining = l.LeaseUntil.Sub(l.Now).Seconds()
		}
	}
	return lines, nil
}

func leaderLineColumns() []column[leaderLine] {
	var columns []column[leaderLine]
	for _, c := range leaderColumns {
		columns = append(columns, column[leaderLine]{title: c.title, wide: c.wide, show: func(l leaderLine) string { return c.show(l.Leader) }})
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
	var role, at string
	var limit int
	var history, ledAt func(*cobra.Command, []string) error
	cmd := &cobra.Command{
		Use: "history", Short: "Show past tenures, why they ended and the gap before each", Args: cobra.NoArgs,
		Example: "  forge leader history --role scheduler -n 5\n  forge leader history --at 2026-11-20T12:00:00Z   # who led at that instant",
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("at") {
				return ledAt(cmd, args)
			}
			return history(cmd, args)
		},
	}
	history = listed(a, tenureColumns, func(ctx context.Context, pool *pgxpool.Pool, _ []string) ([]tenureRow, error) {
		tenures, err := leaderstore.New(pool).History(ctx, role, limit)
		if err != nil {
			return nil, err
		}
		if len(tenures) == 0 && role != "" && !slices.Contains(roles.All(), roles.Role(role)) {
			return nil, unknownRole(ctx, pool, role)
		}
		return withGapTicks(ctx, pool, tenures)
	})
	ledAt = listed(a, ledAtColumns, func(ctx context.Context, pool *pgxpool.Pool, _ []string) ([]leaderstore.LedAt, error) {
		return readLedAt(ctx, pool, role, at)
	})
	cmd.Flags().StringVar(&role, "role", "", "only this role")
	cmd.Flags().StringVar(&at, "at", "", "who led at this instant (RFC 3339), or that nobody did")
	cmd.Flags().IntVarP(&limit, "limit", "n", 30, "at most this many, newest first")
	cmd.MarkFlagsMutuallyExclusive("at", "limit")
	return cmd
}

// unknownRole returns the error for a role without history, with the role that was probably meant.
func unknownRole(ctx context.Context, pool *pgxpool.Pool, role string) error {
	known, err := roleNames(ctx, pool)
	if err != nil {
		return err
	}
	hint := ""
	if near := config.Nearest(role, known); near != "" && near != role {
		hint = fmt.Sprintf(" (did you mean %s?)", near)
	}
	return notFound("no role %q has ever been led%s; see forge leader status", role, hint)
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

// tenureRow is a tenure and, for the scheduler's, the verdicts of the ticks that fell due in the gap
// before it.
type tenureRow struct {
	leaderstore.Tenure
	ticks map[cronstore.Verdict]int64
}

// MarshalJSON adds the ticks to the tenure's own document.
func (r tenureRow) MarshalJSON() ([]byte, error) {
	tenure, err := json.Marshal(r.Tenure)
	if err != nil || len(r.ticks) == 0 {
		return tenure, err
	}
	ticks, err := json.Marshal(r.ticks)
	if err != nil {
		return nil, err
	}
	return slices.Concat(tenure[:len(tenure)-1], []byte(`,"gap_ticks":`), ticks, []byte("}")), nil
}

// gapTicks shows how many ticks fell due in the gap, by verdict.
func (r tenureRow) gapTicks() string {
	if r.Role != string(roles.Scheduler) || !r.HasGap {
		return "-"
	}
	if len(r.ticks) == 0 {
		return "none"
	}
	var parts []string
	for _, verdict := range slices.Sorted(maps.Keys(r.ticks)) {
		parts = append(parts, fmt.Sprintf("%d %s", r.ticks[verdict], verdict))
	}
	return strings.Join(parts, ", ")
}

// withGapTicks adds to each tenure of the scheduler the ticks of the gap before it.
func withGapTicks(ctx context.Context, pool *pgxpool.Pool, tenures []leaderstore.Tenure) ([]tenureRow, error) {
	rows := make([]tenureRow, len(tenures))
	var gaps []cronstore.Stretch
	var of []int
	for i, t := range tenures {
		rows[i].Tenure = t
		if t.Role == string(roles.Scheduler) && t.HasGap {
			gaps = append(gaps, cronstore.Stretch{After: t.AcquiredAt.Add(-t.Gap), Until: t.AcquiredAt})
			of = append(of, i)
		}
	}
	if len(gaps) == 0 {
		return rows, nil
	}
	counts, err := cronstore.New(pool).DueIn(ctx, gaps)
	if err != nil {
		return nil, err
	}
	for g, i := range of {
		rows[i].ticks = counts[g]
	}
	return rows, nil
}
