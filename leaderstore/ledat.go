package leaderstore

import (
	"context"
	"fmt"
	"time"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// States of a role at an instant.
const (
	// Led means that a node led the role.
	Led = "led"
	// Gap means that no node led the role.
	Gap = "gap"
	// NotRecorded means that the role was never led before the instant, or that the history
	// does not reach back to it.
	NotRecorded = "not_recorded"
)

// LedAt is the state of a role at an instant.
type LedAt struct {
	Role  string `json:"role"`
	State string `json:"state"`
	// NodeID and Term are of the leader; zero in a gap.
	NodeID string `json:"node_id,omitempty"`
	Term   int64  `json:"term,omitempty"`
	// From and Until are the bounds of the term or of the gap; a zero Until means that it
	// lasts, or lasted until the newest known instant.
	From  time.Time `json:"from,omitzero"`
	Until time.Time `json:"until,omitzero"`
	// EndReason is why the term ended, or why the term before the gap did.
	EndReason string `json:"end_reason,omitempty"`
	// NextNodeID and NextTerm are of the leader after the gap.
	NextNodeID string `json:"next_node_id,omitempty"`
	NextTerm   int64  `json:"next_term,omitempty"`
}

// nearestSQL reads the newest term of each role that began until an instant, and the first
// one after it.
const nearestSQL = `
SELECT ` + tenureColumns + `
FROM (SELECT role AS name FROM forge_leaders) AS l
CROSS JOIN LATERAL (
    (SELECT * FROM forge_leader_history WHERE role = l.name AND acquired_at <= $1 ORDER BY acquired_at DESC, term DESC LIMIT 1)
    UNION ALL
    (SELECT * FROM forge_leader_history WHERE role = l.name AND acquired_at > $1 ORDER BY acquired_at, term LIMIT 1)
) AS h`

// LedAt returns the state of every role at an instant, beginning with the built-in roles.
func (s *Store) LedAt(ctx context.Context, at time.Time) ([]LedAt, error) {
	leaders, err := s.Leaders(ctx)
	if err != nil {
		return nil, err
	}
	tenures, err := postgres.Collect(ctx, s.db, scanTenure, nearestSQL, at)
	if err != nil {
		return nil, fmt.Errorf("read who led at %s: %w", at.UTC().Format(time.RFC3339Nano), err)
	}
	return FindLedAt(leaders, tenures, at), nil
}

// FindLedAt returns the state of each role at an instant. tenures has at least the newest
// tenure of each role that began until then, and the first one after it.
func FindLedAt(leaders []Leader, tenures []Tenure, at time.Time) []LedAt {
	found := make([]LedAt, len(leaders))
	for i, l := range leaders {
		var before, next Tenure
		for _, t := range tenures {
			switch {
			case t.Role != l.Role:
			case t.AcquiredAt.After(at):
				if next.Term == 0 || t.AcquiredAt.Before(next.AcquiredAt) {
					next = t
				}
			case before.Term == 0 || t.Term > before.Term:
				before = t
			}
		}
		found[i] = ledAt(l, before, next, at)
	}
	return found
}

func ledAt(l Leader, before, next Tenure, at time.Time) LedAt {
	end := before.EndedAt
	switch {
	case !end.IsZero() || before.Term == 0:
	case next.Term != 0:
		end = next.AcquiredAt.Add(-next.Gap)
	case before.Term == l.Term && !l.Leads():
		end = l.LeaseUntil
	}
	found := LedAt{Role: l.Role, State: Led, NodeID: before.NodeID, Term: before.Term, From: before.AcquiredAt, Until: end, EndReason: before.EndReason}
	switch {
	case before.Term != 0 && (end.IsZero() || at.Before(end)):
		return found
	case before.Term == 0 && (next.Term == 0 || !next.HasGap || at.Before(next.AcquiredAt.Add(-next.Gap))):
		return LedAt{Role: l.Role, State: NotRecorded, Until: next.AcquiredAt, NextNodeID: next.NodeID, NextTerm: next.Term}
	case before.Term == 0:
		end = next.AcquiredAt.Add(-next.Gap)
	}
	return LedAt{
		Role: l.Role, State: Gap, From: end, Until: next.AcquiredAt, EndReason: before.EndReason, NextNodeID: next.NodeID, NextTerm: next.Term,
	}
}
