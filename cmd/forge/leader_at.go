package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/leaderstore"
)

// readLedAt returns the state of a role, or of all roles, at an instant.
func readLedAt(ctx context.Context, pool *pgxpool.Pool, role, text string) ([]leaderstore.LedAt, error) {
	at, err := parseInstant("--at", text)
	if err != nil {
		return nil, err
	}
	if at.After(time.Now().Add(time.Minute)) {
		return nil, usageError(fmt.Errorf("--at: found %s, want an instant that is not after now", text))
	}
	found, err := leaderstore.New(pool).LedAt(ctx, at)
	if role == "" || err != nil {
		return found, err
	}
	found = slices.DeleteFunc(found, func(l leaderstore.LedAt) bool { return l.Role != role })
	if len(found) == 0 {
		return nil, unknownRole(ctx, pool, role)
	}
	return found, nil
}

var ledAtColumns = []column[leaderstore.LedAt]{
	{title: "role", show: func(l leaderstore.LedAt) string { return l.Role }},
	{title: "leader", show: func(l leaderstore.LedAt) string {
		switch l.State {
		case leaderstore.Led:
			return l.NodeID
		case leaderstore.Gap:
			return "(none)"
		default:
			return "(not recorded)"
		}
	}},
	{title: "term", show: func(l leaderstore.LedAt) string {
		if l.Term == 0 {
			return "-"
		}
		return strconv.FormatInt(l.Term, 10)
	}},
	{title: "from", show: func(l leaderstore.LedAt) string { return stamp(l.From) }},
	{title: "until", show: func(l leaderstore.LedAt) string { return stamp(l.Until) }},
	{title: "then", show: func(l leaderstore.LedAt) string {
		switch {
		case l.NextTerm != 0:
			return fmt.Sprintf("%s, term %d", l.NextNodeID, l.NextTerm)
		default:
			return dash(l.EndReason)
		}
	}},
}
