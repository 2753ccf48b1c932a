package cronstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/wire"
)

// Pause pauses a cron: its later ticks are recorded as skipped_paused until Resume.
// by is who requests it, for the event log. Pause returns the cron and whether the call
// changed anything, and ErrNotFound for a cron that is not configured.
func (s *Store) Pause(ctx context.Context, name, by string) (Cron, bool, error) {
	return s.changePause(ctx, name, by, eventstore.CronPaused, func(c Cron, now time.Time) (Cron, bool) {
		if c.Paused() {
			return c, false
		}
		return pause(c, now), true
	})
}

// Resume lets a paused cron fire again from now on, even if the file pauses it. It
// returns the same values as Pause.
func (s *Store) Resume(ctx context.Context, name, by string) (Cron, bool, error) {
	return s.changePause(ctx, name, by, eventstore.CronResumed, func(c Cron, now time.Time) (Cron, bool) {
		if !c.Paused() {
			return c, false
		}
		return resume(c, now), true
	})
}

// changePause pauses or resumes one cron, in a transaction that notifies the
// leader.
func (s *Store) changePause(ctx context.Context, name, by, event string, how func(Cron, time.Time) (Cron, bool)) (cron Cron, changed bool, err error) {
	err = pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		s := New(tx)
		if _, err := s.db.Exec(ctx, lockDefinitionsSQL); err != nil {
			return fmt.Errorf("lock the definitions: %w", err)
		}
		var now time.Time
		if cron, now, err = s.LockConfigured(ctx, name); err != nil {
			return err
		}
		if cron, changed = how(cron, now); !changed {
			return nil
		}
		if err := s.upsert(ctx, []Cron{cron}, now); err != nil {
			return err
		}
		if _, err := s.db.Exec(ctx, notifySQL, wire.CronChannel); err != nil {
			return fmt.Errorf("notify the leader: %w", err)
		}
		return eventstore.Append(ctx, s.db, eventstore.Event{Type: event}, map[string]any{"cron": name, "by": by})
	})
	if err != nil {
		return Cron{}, false, fmt.Errorf("%s: %w", event, err)
	}
	return cron, changed, nil
}

// LockConfigured locks the row of a configured cron, so that no leader records its
// ticks before the transaction ends, and returns it with the database's clock.
func (s *Store) LockConfigured(ctx context.Context, name string) (Cron, time.Time, error) {
	found, now, err := s.lockCrons(ctx, []string{name})
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
