package handover

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/postgres"
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

// drillTimeout is how long a drill waits for the successor.
const drillTimeout = 30 * time.Second

// Drill requests a hand-over of a role to any other node and measures it; see [Drill].
func (o *Ops) Drill(ctx context.Context, role, by string) (DrillResult, error) {
	changes, cancel := o.subscribe()
	defer cancel()
	return Drill(ctx, o.db, changeWaiter(changes), Params{Role: role, By: by, Within: drillTimeout})
}

// changeWaiter implements Changes with a subscription.
type changeWaiter <-chan struct{}

func (w changeWaiter) Wait(ctx context.Context, atMost time.Duration) error {
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-w:
	case <-timer.C:
	}
	return nil
}

// Drill requests a hand-over of a role to any other node, measures it and appends
// the result to the event log. It returns the errors of [RequestAndWait].
func Drill(ctx context.Context, db postgres.DB, changes Changes, o Params) (DrillResult, error) {
	leader, successor, err := RequestAndWait(ctx, db, changes, o)
	if err != nil {
		return DrillResult{}, err
	}
	done, err := measure(ctx, db, leader, successor)
	if err != nil {
		return DrillResult{}, err
	}
	err = eventstore.New(db).Append(ctx, eventstore.Event{
		Type: eventstore.LeaderDrilled, NodeID: leader.NodeID, Role: o.Role, Term: leader.Term,
	}, map[string]any{
		"to": done.To, "to_term": done.ToTerm, "by": o.By, "reason": done.EndReason,
		"stopped_ms": done.StoppedMS, "gap_ms": done.GapMS, "took_ms": done.TookMS,
	})
	return done, err
}

// measure computes the result from the two tenures in the history.
func measure(ctx context.Context, db postgres.DB, leader, successor leaderstore.Leader) (DrillResult, error) {
	done := DrillResult{
		Role: leader.Role, From: leader.NodeID, FromTerm: leader.Term, To: successor.NodeID, ToTerm: successor.Term,
		AskedAt: leader.Now, TookMS: milliseconds(successor.AcquiredAt.Sub(leader.Now)),
	}
	const recent = 100 // number of tenures read: others may follow meanwhile
	tenures, err := leaderstore.New(db).History(ctx, leader.Role, recent)
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
