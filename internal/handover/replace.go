package handover

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/forge-scheduler/forge/leaderstore"
)

// look is how often a successor is looked for when nothing tells of one.
const look = 250 * time.Millisecond

// Changes wakes those who wait for a change of leadership.
type Changes interface {
	// Wait returns when something changed, after atMost at the latest, or with the
	// error of a context that ended.
	Wait(ctx context.Context, atMost time.Duration) error
}

// NotTakenError says that nobody took a role over in time.
type NotTakenError struct{ Role string }

func (e *NotTakenError) Error() string { return "nobody has taken " + e.Role + " over in time" }

// Order is a hand-over that somebody waits for.
type Order struct {
	Role string
	// Target is the node that shall lead; empty: any other.
	Target string
	// By names who wants it.
	By string
	// Within is how long to wait for the successor.
	Within time.Duration
}

// Replace has the leader of a role hand it over, and returns it and the one that
// takes the role: itself, if it is the target. Where nobody does so in time it
// withdraws the request and returns a [NotTakenError].
func Replace(ctx context.Context, db DB, changes Changes, o Order) (leader, successor leaderstore.Leader, err error) {
	leader, asked, err := Ask(ctx, db, o.Role, o.Target, o.By)
	if err != nil || !asked {
		return leader, leader, err
	}
	waiting, cancel := context.WithTimeout(ctx, o.Within)
	defer cancel()
	if successor, err = awaitSuccessor(waiting, db, changes, leader); err != nil {
		err = gaveUp(ctx, err, o.Role)
		withdrawing, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawTimeout)
		defer cancel()
		err = errors.Join(err, leaderstore.Withdraw(withdrawing, db, o.Role, leader.Term))
	}
	return leader, successor, err
}

// withdrawTimeout bounds what a request that came to nothing still asks of the
// database.
const withdrawTimeout = 5 * time.Second

// AwaitAll waits for the successors of leaders that were asked to hand over, at most
// for within, and then returns a [NotTakenError].
func AwaitAll(ctx context.Context, db leaderstore.Queryer, changes Changes, asked []leaderstore.Leader, within time.Duration) error {
	waiting, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for _, leader := range asked {
		if _, err := awaitSuccessor(waiting, db, changes, leader); err != nil {
			return gaveUp(ctx, err, leader.Role)
		}
	}
	return nil
}

// gaveUp tells a wait that took too long from one that was interrupted.
func gaveUp(ctx context.Context, err error, role string) error {
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return &NotTakenError{role}
	}
	return err
}

// awaitSuccessor waits for a later term of another process.
func awaitSuccessor(ctx context.Context, db leaderstore.Queryer, changes Changes, old leaderstore.Leader) (leaderstore.Leader, error) {
	for {
		leaders, err := leaderstore.Leaders(ctx, db)
		if err != nil {
			return leaderstore.Leader{}, err
		}
		for _, now := range leaders {
			if now.Role == old.Role && now.Term > old.Term && now.Leads() && now.Incarnation != old.Incarnation {
				return now, nil
			}
		}
		if err := changes.Wait(ctx, look); err != nil {
			return leaderstore.Leader{}, fmt.Errorf("wait for the next leader of %s: %w", old.Role, err)
		}
	}
}
