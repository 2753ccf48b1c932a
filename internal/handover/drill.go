package handover

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/leaderstore"
)

// Drilled is a hand-over that was measured. The times are the database's.
type Drilled struct {
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

// Drill has a role handed over to any other node, measures it and writes it into the
// diary. Its errors are those of [Replace].
func Drill(ctx context.Context, db DB, changes Changes, o Order) (Drilled, error) {
	leader, successor, err := Replace(ctx, db, changes, o)
	if err != nil {
		return Drilled{}, err
	}
	done, err := measure(ctx, db, leader, successor)
	if err != nil {
		return Drilled{}, err
	}
	err = eventstore.Append(ctx, db, eventstore.Event{
		Type: eventstore.LeaderDrilled, NodeID: leader.NodeID, Role: o.Role, Term: leader.Term,
	}, map[string]any{
		"to": done.To, "to_term": done.ToTerm, "by": o.By, "reason": done.EndReason,
		"stopped_ms": done.StoppedMS, "gap_ms": done.GapMS, "took_ms": done.TookMS,
	})
	return done, err
}

// measure reads what the history says of the two tenures.
func measure(ctx context.Context, db leaderstore.Queryer, leader, successor leaderstore.Leader) (Drilled, error) {
	done := Drilled{
		Role: leader.Role, From: leader.NodeID, FromTerm: leader.Term, To: successor.NodeID, ToTerm: successor.Term,
		AskedAt: leader.Now, TookMS: milliseconds(successor.AcquiredAt.Sub(leader.Now)),
	}
	const recent = 100 // tenures: others may follow while we look
	tenures, err := leaderstore.History(ctx, db, leader.Role, recent)
	if err != nil {
		return Drilled{}, err
	}
	at := slices.IndexFunc(tenures, func(t leaderstore.Tenure) bool { return t.Term == leader.Term })
	if at < 0 || tenures[at].EndedAt.IsZero() {
		return Drilled{}, fmt.Errorf("the history of %s says nothing of the end of term %d", leader.Role, leader.Term)
	}
	ended := tenures[at]
	done.StoppedMS, done.EndReason = milliseconds(ended.EndedAt.Sub(leader.Now)), ended.EndReason
	done.GapMS = milliseconds(successor.AcquiredAt.Sub(ended.EndedAt))
	return done, nil
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
