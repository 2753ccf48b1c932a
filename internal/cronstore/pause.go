package cronstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/wire"
)

// Change is a request to pause or resume a cron.
type Change struct {
	Name string
	// By is who requests it, for the event log.
	By string
	// Schema prefixes the notification's channel; empty means the connection's
	// current schema.
	Schema string
}

// Pause pauses a cron: its later ticks are recorded as skipped_paused until Resume.
// It returns the cron and whether the call changed anything, and ErrNotFound for a
// cron that is not configured.
func Pause(ctx context.Context, db Beginner, change Change) (Cron, bool, error) {
	return changePause(ctx, db, change, eventstore.CronPaused, func(c Cron, now time.Time) (Cron, bool) {
		if c.Paused() {
			return c, false
		}
		return pause(c, now), true
	})
}

// Resume lets a paused cron fire again from now on, even if the file pauses it. It
// returns the same values as Pause.
func Resume(ctx context.Context, db Beginner, change Change) (Cron, bool, error) {
	return changePause(ctx, db, change, eventstore.CronResumed, func(c Cron, now time.Time) (Cron, bool) {
		if !c.Paused() {
			return c, false
		}
		return resume(c, now), true
	})
}

// changePause pauses or resumes one cron, in a transaction that notifies the
// leader.
func changePause(ctx context.Context, db Beginner, change Change, event string, how func(Cron, time.Time) (Cron, bool)) (cron Cron, changed bool, err error) {
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lockDefinitionsSQL); err != nil {
			return fmt.Errorf("lock the definitions: %w", err)
		}
		var now time.Time
		if cron, now, err = LockConfigured(ctx, tx, change.Name); err != nil {
			return err
		}
		if cron, changed = how(cron, now); !changed {
			return nil
		}
		if err := upsert(ctx, tx, []Cron{cron}, now); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, notifySQL, change.Schema, wire.CronChannel); err != nil {
			return fmt.Errorf("notify the leader: %w", err)
		}
		return eventstore.Append(ctx, tx, eventstore.Event{Type: event}, map[string]any{"cron": change.Name, "by": change.By})
	})
	if err != nil {
		return Cron{}, false, fmt.Errorf("%s: %w", event, err)
	}
	return cron, changed, nil
}

// LockConfigured locks the row of a configured cron, so that no leader records its
// ticks before the transaction ends, and returns it with the database's clock.
func LockConfigured(ctx context.Context, tx pgx.Tx, name string) (Cron, time.Time, error) {
	found, now, err := lockCrons(ctx, tx, []string{name})
	if err != nil {
		return Cron{}, now, err
	}
	cron, ok := found[name]
	if !ok || !cron.RemovedAt.IsZero() {
		return Cron{}, now, fmt.Errorf("cron %s: %w", name, ErrNotFound)
	}
	return cron, now, nil
}

// Paused reports whether the cron is paused, by hand or by the file.
func (c *Cron) Paused() bool { return c.Spec.Paused || !c.PausedAt.IsZero() }
