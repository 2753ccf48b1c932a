package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/leaderstore"
)

const (
	// watchInterval is how often the history is read without a notification.
	watchInterval = time.Second
	// watchDepth is how many tenures one read returns at most.
	watchDepth = 200
)

func (a *app) leaderWatchCommand() *cobra.Command {
	var role string
	cmd := &cobra.Command{
		Use: "watch", Short: "Follow changes of leadership, one line each, until interrupted", Args: cobra.NoArgs,
		Example: "  forge leader watch --role scheduler",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if a.format == "yaml" {
				return usageError(errNoYAMLStream)
			}
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				return a.watchLeaders(ctx, pool, role)
			})
		},
	}
	cmd.Flags().StringVar(&role, "role", "", "only this role")
	return cmd
}

// leaderChange is one line of forge leader watch.
type leaderChange struct {
	At     time.Time `json:"at"`
	Change string    `json:"change"` // leads (at the start of the watch), elected or lost
	Role   string    `json:"role"`
	NodeID string    `json:"node_id"`
	Term   int64     `json:"term"`
	Reason string    `json:"reason,omitempty"`
	GapMS  *float64  `json:"gap_ms,omitempty"`
}

func (a *app) watchLeaders(ctx context.Context, pool *pgxpool.Pool, role string) error {
	var changes <-chan struct{}
	replay, err := postgres.ReadReplay(ctx, pool)
	if err != nil {
		return err
	}
	if !replay.Replica { // a replica does not support LISTEN
		var unsubscribe func()
		changes, unsubscribe = a.leaderChanges(pool)
		defer unsubscribe()
	}
	poll := time.NewTicker(watchInterval)
	defer poll.Stop()
	var seen *tenuresSeen
	for {
		tenures, err := leaderstore.New(pool).History(ctx, role, watchDepth)
		if err != nil {
			return err
		}
		var news []leaderChange
		if seen == nil {
			seen, news = beginTenures(tenures)
		} else {
			news = seen.update(tenures)
		}
		for _, change := range news {
			if err := a.printChange(change); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changes:
		case <-poll.C:
		}
	}
}

func (a *app) printChange(c leaderChange) error {
	if a.format == "json" {
		return json.NewEncoder(a.out).Encode(c)
	}
	line := fmt.Sprintf("%s  %-18s  %-7s  %s (term %d", stamp(c.At), c.Role, c.Change, c.NodeID, c.Term)
	if c.Reason != "" {
		line += ", " + c.Reason
	}
	if c.GapMS != nil {
		line += ", gap " + milliseconds(*c.GapMS)
	}
	_, err := fmt.Fprintln(a.out, line+")")
	return err
}

type tenureKey struct {
	role string
	term int64
}

// tenuresSeen records the tenures seen so far, and whether each had ended.
type tenuresSeen struct{ ended map[tenureKey]bool }

// beginTenures returns the state after the first read, and a line for each current leader.
func beginTenures(newestFirst []leaderstore.Tenure) (*tenuresSeen, []leaderChange) {
	seen := &tenuresSeen{ended: map[tenureKey]bool{}}
	var leads []leaderChange
	for _, t := range slices.Backward(newestFirst) {
		over := !t.EndedAt.IsZero()
		seen.ended[tenureKey{t.Role, t.Term}] = over
		if !over {
			leads = append(leads, leaderChange{At: t.AcquiredAt, Change: "leads", Role: t.Role, NodeID: t.NodeID, Term: t.Term})
		}
	}
	return seen, leads
}

// update returns the changes since the last read, in chronological order.
func (s *tenuresSeen) update(newestFirst []leaderstore.Tenure) []leaderChange {
	var news []leaderChange
	for _, t := range slices.Backward(newestFirst) {
		key := tenureKey{t.Role, t.Term}
		ended, known := s.ended[key]
		if !known {
			change := leaderChange{At: t.AcquiredAt, Change: "elected", Role: t.Role, NodeID: t.NodeID, Term: t.Term}
			if t.HasGap {
				ms := float64(t.Gap.Microseconds()) / 1000
				change.GapMS = &ms
			}
			news = append(news, change)
		}
		over := !t.EndedAt.IsZero()
		if over && !ended {
			news = append(news, leaderChange{
				At: t.EndedAt, Change: "lost", Role: t.Role, NodeID: t.NodeID, Term: t.Term, Reason: t.EndReason,
			})
		}
		s.ended[key] = over
	}
	slices.SortStableFunc(news, func(a, b leaderChange) int { return a.At.Compare(b.At) })
	return news
}
