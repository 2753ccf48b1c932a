package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/leaderstore"
)

// drill is a hand-over that was measured. The times are the database's.
type drill struct {
	Role string `json:"role"`
	// From led the term that was handed over, To the one after it.
	From     string `json:"from"`
	FromTerm int64  `json:"from_term"`
	To       string `json:"to"`
	ToTerm   int64  `json:"to_term"`
	// AskedAt is just before the request.
	AskedAt time.Time `json:"asked_at"`
	// StoppedMS is from the request to the end of the old leader's work, GapMS how
	// long nobody led then, TookMS from the request to the new leader.
	StoppedMS float64 `json:"stopped_ms"`
	GapMS     float64 `json:"gap_ms"`
	TookMS    float64 `json:"took_ms"`
	// EndReason is stepped_down, unless something else ended the term meanwhile.
	EndReason string `json:"end_reason"`
}

func (a *app) drillCommand() *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "drill [leader] ROLE", Short: "Hand a role over on the living cluster, measure it and write it down",
		Long: "The leader is asked to stop its work and to hand the role over, as by forge leader step-down.\n" +
			"What it took is printed, and written to the cluster's diary as leader_drilled;\n" +
			"forge leader history marks the tenure.",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 || len(args) == 2 && args[0] == "leader" {
				return nil
			}
			return errors.New("want the role whose leader is to be replaced: forge drill leader ROLE")
		},
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
	leader, successor, err := a.replace(ctx, pool, role, "", timeout)
	if err != nil {
		return err
	}
	done, err := measured(ctx, pool, leader, successor)
	if err != nil {
		return err
	}
	err = eventstore.Append(ctx, pool, eventstore.Event{
		Type: eventstore.LeaderDrilled, NodeID: leader.NodeID, Role: role, Term: leader.Term,
	}, map[string]any{
		"to": done.To, "to_term": done.ToTerm, "by": whoAmI(), "reason": done.EndReason,
		"stopped_ms": done.StoppedMS, "gap_ms": done.GapMS, "took_ms": done.TookMS,
	})
	if err != nil {
		return err
	}
	return one(a, done, drillColumns)
}

// measured reads what the history says of the two tenures.
func measured(ctx context.Context, pool *pgxpool.Pool, leader, successor leaderstore.Leader) (drill, error) {
	done := drill{
		Role: leader.Role, From: leader.NodeID, FromTerm: leader.Term, To: successor.NodeID, ToTerm: successor.Term,
		AskedAt: leader.Now, TookMS: milliseconds(successor.AcquiredAt.Sub(leader.Now)),
	}
	const recent = 100 // tenures: others may follow while we look
	tenures, err := leaderstore.History(ctx, pool, leader.Role, recent)
	if err != nil {
		return drill{}, err
	}
	at := slices.IndexFunc(tenures, func(t leaderstore.Tenure) bool { return t.Term == leader.Term })
	if at < 0 || tenures[at].EndedAt.IsZero() {
		return drill{}, fmt.Errorf("the history of %s says nothing of the end of term %d", leader.Role, leader.Term)
	}
	ended := tenures[at]
	done.StoppedMS, done.EndReason = milliseconds(ended.EndedAt.Sub(leader.Now)), ended.EndReason
	done.GapMS = milliseconds(successor.AcquiredAt.Sub(ended.EndedAt))
	return done, nil
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func fromMilliseconds(ms float64) string { return span(time.Duration(ms * float64(time.Millisecond))) }

var drillColumns = []column[drill]{
	{title: "role", show: func(d drill) string { return d.Role }},
	{title: "from", show: func(d drill) string { return d.From }},
	{title: "to", show: func(d drill) string { return d.To }},
	{title: "term", show: func(d drill) string { return strconv.FormatInt(d.ToTerm, 10) }},
	{title: "stopped after", show: func(d drill) string { return fromMilliseconds(d.StoppedMS) }},
	{title: "nobody led", show: func(d drill) string { return fromMilliseconds(d.GapMS) }},
	{title: "took", show: func(d drill) string { return fromMilliseconds(d.TookMS) }},
	{title: "ended", show: func(d drill) string { return d.EndReason }},
	{title: "asked", wide: true, show: func(d drill) string { return stamp(d.AskedAt) }},
}
