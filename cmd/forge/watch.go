package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
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
	// watchPage is how many tenures one statement returns at most.
	watchPage = 200
	// watchSpan is how much of the time before the last read each read includes again: a
	// tenure is recorded after its time.
	watchSpan = time.Minute
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
	watch := leaderWatch{store: leaderstore.New(pool), role: role}
	for {
		news, err := watch.news(ctx, pool)
		if err != nil {
			return err
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

// leaderWatch reads the changes of leadership.
type leaderWatch struct {
	store *leaderstore.Store
	role  string // empty: all
	seen  tenuresSeen
	// from is the database's time from which the next read includes ended tenures. It never goes
	// back, so that none is read again after it was forgotten.
	from time.Time
}

// news returns the changes since the last call, or the current leaders.
func (w *leaderWatch) news(ctx context.Context, db postgres.DB) ([]leaderChange, error) {
	now, err := postgres.Now(ctx, db)
	if err != nil {
		return nil, err
	}
	if from := now.Add(-watchSpan); from.After(w.from) {
		w.from = from
	}
	w.seen.forget(w.from)
	tenures, err := w.read(ctx)
	if err != nil {
		return nil, err
	}
	if w.seen == nil {
		var leads []leaderChange
		w.seen, leads = beginTenures(tenures)
		return leads, nil
	}
	return w.seen.update(tenures), nil
}

// read returns the tenures that have not ended, those that have ended since from, and those that
// had not ended before. Of a leader that is lost for long, the end is recorded late.
func (w *leaderWatch) read(ctx context.Context) ([]leaderstore.Tenure, error) {
	var tenures []leaderstore.Tenure
	missing := w.seen.open()
	filter := leaderstore.TenureFilter{Role: w.role, From: w.from, Limit: watchPage}
	for more := true; more; {
		page, err := w.store.Tenures(ctx, filter)
		if err != nil {
			return nil, err
		}
		tenures = append(tenures, page...)
		if more = len(page) == watchPage; more {
			last := page[len(page)-1]
			filter.After = leaderstore.Cursor{AcquiredAt: last.AcquiredAt, Role: last.Role}
		}
	}
	for _, t := range tenures {
		delete(missing, tenureKey{t.Role, t.Term})
	}
	for key, acquired := range missing {
		ended, err := w.store.Tenures(ctx, leaderstore.TenureFilter{
			Role: key.role, After: leaderstore.Cursor{AcquiredAt: acquired.Add(time.Microsecond)}, Limit: 1,
		})
		if err != nil {
			return nil, err
		}
		tenures = append(tenures, ended...)
	}
	return tenures, nil
}

// tenuresSeen has the tenures as they were last seen.
type tenuresSeen map[tenureKey]leaderstore.Tenure

// open returns when those began that had not ended.
func (s tenuresSeen) open() map[tenureKey]time.Time {
	open := map[tenureKey]time.Time{}
	for key, t := range s {
		if t.EndedAt.IsZero() {
			open[key] = t.AcquiredAt
		}
	}
	return open
}

// forget removes those that ended before an instant.
func (s tenuresSeen) forget(before time.Time) {
	maps.DeleteFunc(s, func(_ tenureKey, t leaderstore.Tenure) bool { return !t.EndedAt.IsZero() && t.EndedAt.Before(before) })
}

// beginTenures returns the state after the first read, and a line for each current leader.
func beginTenures(newestFirst []leaderstore.Tenure) (tenuresSeen, []leaderChange) {
	seen := tenuresSeen{}
	var leads []leaderChange
	for _, t := range slices.Backward(newestFirst) {
		seen[tenureKey{t.Role, t.Term}] = t
		if t.EndedAt.IsZero() {
			leads = append(leads, leaderChange{At: t.AcquiredAt, Change: "leads", Role: t.Role, NodeID: t.NodeID, Term: t.Term})
		}
	}
	return seen, leads
}

// update returns the changes since the last read, in chronological order.
func (s tenuresSeen) update(newestFirst []leaderstore.Tenure) []leaderChange {
	var news []leaderChange
	for _, t := range slices.Backward(newestFirst) {
		key := tenureKey{t.Role, t.Term}
		before, known := s[key]
		if !known {
			change := leaderChange{At: t.AcquiredAt, Change: "elected", Role: t.Role, NodeID: t.NodeID, Term: t.Term}
			if t.HasGap {
				ms := float64(t.Gap.Microseconds()) / 1000
				change.GapMS = &ms
			}
			news = append(news, change)
		}
		if !t.EndedAt.IsZero() && before.EndedAt.IsZero() {
			news = append(news, leaderChange{
				At: t.EndedAt, Change: "lost", Role: t.Role, NodeID: t.NodeID, Term: t.Term, Reason: t.EndReason,
			})
		}
		s[key] = t
	}
	slices.SortStableFunc(news, func(a, b leaderChange) int { return a.At.Compare(b.At) })
	return news
}
