package handover

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/forge-scheduler/forge/leaderstore"
)

// pollInterval is the interval of checks for a successor when no change is
// announced.
const pollInterval = 250 * time.Millisecond

// NotTakenError means that no node took over a role in time.
type NotTakenError struct{ Role string }

func (e *NotTakenError) Error() string { return "nobody has taken " + e.Role + " over in time" }

// Params describes a hand-over with a wait for its outcome.
type Params struct {
	Role string
	// Target is the node that is to lead; empty: any other node.
	Target string
	// By is who requests the hand-over.
	By string
	// Within is how long to wait for the successor.
	Within time.Duration
}

// RequestAndWait requests a hand-over from the leader of a role. It returns the
// leader and its successor, which is the leader itself if it is the target. If no
// node takes over in time, it withdraws the request and returns a [NotTakenError].
func (o *Ops) RequestAndWait(ctx context.Context, p Params) (leader, successor leaderstore.Leader, err error) {
	changes, unsubscribe := o.subscribe()
	defer unsubscribe()
	leader, requested, err := o.HandOver(ctx, p.Role, p.Target, p.By)
	if err != nil || !requested {
		return leader, leader, err
	}
	waiting, cancel := context.WithTimeout(ctx, p.Within)
	defer cancel()
	if successor, err = o.awaitSuccessor(waiting, changes, leader); err != nil {
		err = waitError(ctx, err, p.Role)
		withdrawing, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawTimeout)
		defer cancel()
		err = errors.Join(err, leaderstore.New(o.db).Withdraw(withdrawing, p.Role, leader.Term))
	}
	return leader, successor, err
}

// withdrawTimeout bounds the withdrawal of a request.
const withdrawTimeout = 5 * time.Second

// AwaitAll waits for the successors of leaders that were asked to hand over. After
// within it returns a [NotTakenError].
func (o *Ops) AwaitAll(ctx context.Context, requested []leaderstore.Leader, within time.Duration) error {
	changes, unsubscribe := o.subscribe()
	defer unsubscribe()
	waiting, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for _, leader := range requested {
		if _, err := o.awaitSuccessor(waiting, changes, leader); err != nil {
			return waitError(ctx, err, leader.Role)
		}
	}
	return nil
}

// waitError distinguishes a wait that timed out from one that was interrupted.
func waitError(ctx context.Context, err error, role string) error {
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return &NotTakenError{role}
	}
	return err
}

// awaitSuccessor waits for a later term of another process.
func (o *Ops) awaitSuccessor(ctx context.Context, changes <-chan struct{}, old leaderstore.Leader) (leaderstore.Leader, error) {
	for {
		leaders, err := leaderstore.New(o.db).Leaders(ctx)
		if err != nil {
			return leaderstore.Leader{}, err
		}
		for _, now := range leaders {
			if now.Role == old.Role && now.Term > old.Term && now.Leads() && now.Incarnation != old.Incarnation {
				return now, nil
			}
		}
		if err := awaitChange(ctx, changes); err != nil {
			return leaderstore.Leader{}, fmt.Errorf("wait for the next leader of %s: %w", old.Role, err)
		}
	}
}

// awaitChange returns after a change, and after pollInterval at the latest. It fails if ctx
// ends.
func awaitChange(ctx context.Context, changes <-chan struct{}) error {
	poll := time.NewTimer(pollInterval)
	defer poll.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-changes:
	case <-poll.C:
	}
	return nil
}
