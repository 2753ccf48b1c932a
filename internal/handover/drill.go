package handover

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/leaderstore"
)

// DrillResult is a measured hand-over. The times are from the database's clock.
type DrillResult struct {
	Role string `json:"role"`
	// From led the term that was handed over, To led the next term.
	From     string `json:"from"`
	FromTerm int64  `json:"from_term"`
	To       string `json:"to"`
	ToTerm   int64  `json:"to_term"`
	// AskedAt is just before the request.
	AskedAt time.Time `json:"asked_at"`
	// StoppedMS is the time from the request to the end of the old leader's work,
	// GapMS the time without a leader after that, TookMS the time from the request
	// to the new leader.
	StoppedMS float64 `json:"stopped_ms"`
	GapMS     float64 `json:"gap_ms"`
	TookMS    float64 `json:"took_ms"`
	// EndReason is stepped_down, unless the term ended for another reason
	// meanwhile.
	EndReason string `json:"end_reason"`
}

// Drill requests a hand-over of a role to any other node, measures it and appends
// the result to the event log. It returns the errors of RequestAndWait.
func (o *Ops) Drill(ctx context.Context, p Params) (DrillResult, error) {
	leader, successor, err := o.RequestAndWait(ctx, p)
	if err != nil {
		return DrillResult{}, err
	}
	done, err := o.measure(ctx, leader, successor)
	if err != nil {
		return DrillResult{}, err
	}
	err = eventstore.New(o.db).Append(ctx, eventstore.Event{
		Type: eventstore.LeaderDrilled, NodeID: leader.NodeID, Role: p.Role, Term: leader.Term,
	}, map[string]any{
		"to": done.To, "to_term": done.ToTerm, "by": p.By, "reason": done.EndReason,
		"stopped_ms": done.StoppedMS, "gap_ms": done.GapMS, "took_ms": done.TookMS,
	})
	return done, err
}

// measure computes the result from the two tenures in the history.
func (o *Ops) measure(ctx context.Context, leader, successor leaderstore.Leader) (DrillResult, error) {
	done := DrillResult{
		Role: leader.Role, From: leader.NodeID, FromTerm: leader.Term, To: successor.NodeID, ToTerm: successor.Term,
		AskedAt: leader.Now, TookMS: milliseconds(successor.AcquiredAt.Sub(leader.Now)),
	}
	const recent = 100 // number of tenures read: others may follow meanwhile
	tenures, err := leaderstore.New(o.db).History(ctx, leader.Role, recent)
	if err != nil {
		return DrillResult{}, err
	}
	at := slices.IndexFunc(tenures, func(t leaderstore.Tenure) bool { return t.Term == leader.Term })
	if at < 0 || tenures[at].EndedAt.IsZero() {
		return DrillResult{}, fmt.Errorf("the history of %s has no end of term %d", leader.Role, leader.Term)
	}
	ended := tenures[at]
	done.StoppedMS, done.EndReason = milliseconds(ended.EndedAt.Sub(leader.Now)), ended.EndReason
	done.GapMS = milliseconds(successor.AcquiredAt.Sub(ended.EndedAt))
	return done, nil
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
