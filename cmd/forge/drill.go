package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge/internal/handover"
	"github.com/forge-scheduler/forge/leaderstore"
)

func (a *app) drillCommand() *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "drill [leader] ROLE", Short: "Hand a role over on the running cluster, and measure and record it",
		Long: "Asks the leader to stop its work and to hand the role over, as forge leader step-down does.\n" +
			"The times are printed and recorded in the event log as leader_drilled; forge leader history\n" +
			"marks the tenure.",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 || len(args) == 2 && args[0] == "leader" {
				return nil
			}
			return errors.New("want the role to hand over: forge drill leader ROLE")
		},
		Example: "  forge drill scheduler",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				return a.drill(ctx, pool, args[len(args)-1], timeout)
			})
		},
	}
	timeoutFlag(cmd, &timeout)
	return cmd
}

func (a *app) drill(ctx context.Context, pool *pgxpool.Pool, role string, timeout time.Duration) error {
	changes, err := leaderstore.Follow(ctx, pool)
	if err != nil {
		return err
	}
	defer changes.Close()
	done, err := handover.Drill(ctx, pool, changes, handover.Params{Role: role, By: whoAmI(), Within: timeout})
	if err != nil {
		return refused(err)
	}
	return one(a, done, drillColumns)
}

func fromMilliseconds(ms float64) string { return span(time.Duration(ms * float64(time.Millisecond))) }

var drillColumns = []column[handover.DrillResult]{
	{title: "role", show: func(d handover.DrillResult) string { return d.Role }},
	{title: "from", show: func(d handover.DrillResult) string { return d.From }},
	{title: "to", show: func(d handover.DrillResult) string { return d.To }},
	{title: "term", show: func(d handover.DrillResult) string { return strconv.FormatInt(d.ToTerm, 10) }},
	{title: "stopped after", show: func(d handover.DrillResult) string { return fromMilliseconds(d.StoppedMS) }},
	{title: "gap", show: func(d handover.DrillResult) string { return fromMilliseconds(d.GapMS) }},
	{title: "took", show: func(d handover.DrillResult) string { return fromMilliseconds(d.TookMS) }},
	{title: "ended", show: func(d handover.DrillResult) string { return d.EndReason }},
	{title: "requested", wide: true, show: func(d handover.DrillResult) string { return stamp(d.AskedAt) }},
}
