package cronstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/internal/wire"
)

// PauseChange is the last pause or resumption of a cron by hand.
type PauseChange struct {
	Paused bool      `json:"paused"`
	At     time.Time `json:"at"`
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
	// Operation identifies a change of many crons, which can be undone.
	Operation string `json:"operation,omitempty"`
}

// String describes who made the change and why, as the end of a sentence.
func (p *PauseChange) String() string {
	if p == nil {
		return ""
	}
	var said string
	if p.By != "" {
		said = " by " + p.By
	}
	if p.Reason != "" {
		said += ": " + p.Reason
	}
	return said
}

// PauseOrder is a request to pause or resume crons. Only the methods for many crons read the
// fields from AsOf on.
type PauseOrder struct {
	// By is who requests it, Reason why.
	By, Reason string
	// AsOf leaves crons alone that were created later; zero: none.
	AsOf time.Time
	// Progress is called with the number of crons that were read so far; may be nil.
	Progress func(done int)

	operation string
	// undoes limits the change to crons that this operation was the last to change; empty: all.
	undoes string
	// matched is how many crons an operation selected, before how many events it has written.
	matched, before int
}

// PausedMany is the result of a change of many crons.
type PausedMany struct {
	// Operation identifies the change; empty if nothing was changed.
	Operation string `json:"operation,omitempty"`
	Changed   int    `json:"changed"`
}

// pauseBatch is how many crons a transaction pauses or resumes. Meanwhile the leader cannot
// record their ticks.
const pauseBatch = 200

const operationSQL = `
SELECT name, (pause_change -> 'paused')::boolean
FROM forge_crons
WHERE pause_change ->> 'operation' = $1 AND removed_at IS NULL
ORDER BY name COLLATE "C"`

// Pause pauses a cron: its later ticks are recorded as skipped_paused until Resume. Pause
// returns the cron and whether the call changed anything, and ErrNotFound for a cron that is
// not configured.
func (s *Store) Pause(ctx context.Context, name string, order PauseOrder) (Cron, bool, error) {
	return s.changePause(ctx, name, true, order)
}

// Resume lets a paused cron fire again from now on, even if the file pauses it. It
// returns the same values as Pause.
func (s *Store) Resume(ctx context.Context, name string, order PauseOrder) (Cron, bool, error) {
	return s.changePause(ctx, name, false, order)
}

// PauseMany pauses or resumes the configured crons among these, in transactions of bounded
// size. Crons that are in that state already do not change. After an error it returns what it
// has done so far.
func (s *Store) PauseMany(ctx context.Context, names []string, paused bool, order PauseOrder) (done PausedMany, err error) {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	order.operation, order.matched = rand.Text(), len(names)
	for batch := range slices.Chunk(names, pauseBatch) {
		order.before = done.Changed
		changed, err := s.changePauses(ctx, batch, paused, order)
		if err != nil {
			return done, fmt.Errorf("%s crons: %w", verbOf(paused), err)
		}
		if done.Changed += changed; changed > 0 {
			done.Operation = order.operation
		}
	}
	return done, nil
}

// UndoPauses undoes a change of many crons, for those that nobody has paused or resumed since.
// It returns ErrNotFound if there are none.
func (s *Store) UndoPauses(ctx context.Context, operation string, order PauseOrder) (done PausedMany, paused bool, err error) {
	var names []string
	var name string
	err = postgres.ForEach(ctx, s.db, "read the crons of an operation", []any{&name, &paused}, func() error {
		names = append(names, name)
		return nil
	}, operationSQL, operation)
	switch {
	case err != nil:
		return done, false, err
	case len(names) == 0:
		return done, false, fmt.Errorf("operation %q: %w", operation, ErrNotFound)
	}
	order.Reason, order.undoes = cmp.Or(order.Reason, "undo"), operation
	done, err = s.PauseMany(ctx, names, !paused, order)
	return done, !paused, err
}

// changePause pauses or resumes one cron.
func (s *Store) changePause(ctx context.Context, name string, paused bool, order PauseOrder) (cron Cron, changed bool, err error) {
	err = s.pausing(ctx, order, func(s *Store) error {
		var now time.Time
		if cron, now, err = s.LockConfigured(ctx, name); err != nil {
			return err
		}
		if changed = cron.Paused() != paused; !changed {
			return nil
		}
		cron = cron.holdAt(now, paused, order)
		return s.storePauses(ctx, []Cron{cron}, now, order)
	})
	if err != nil {
		return Cron{}, false, fmt.Errorf("%s cron: %w", verbOf(paused), err)
	}
	return cron, changed, nil
}

// changePauses pauses or resumes the configured crons among these, and returns how many
// changed.
func (s *Store) changePauses(ctx context.Context, names []string, paused bool, order PauseOrder) (changed int, err error) {
	err = s.pausing(ctx, order, func(s *Store) error {
		found, now, err := s.lockCrons(ctx, names)
		if err != nil {
			return err
		}
		var crons []Cron
		for _, name := range names {
			cron, ok := found[name]
			later := !order.AsOf.IsZero() && cron.CreatedAt.After(order.AsOf)
			if ok && cron.RemovedAt.IsZero() && !later && cron.Paused() != paused && order.appliesTo(cron) {
				crons = append(crons, cron.holdAt(now, paused, order))
			}
		}
		changed = len(crons)
		return s.storePauses(ctx, crons, now, order)
	})
	if err == nil && order.Progress != nil {
		order.Progress(len(names))
	}
	return changed, err
}

// appliesTo reports whether nobody has changed the cron since the operation to undo.
func (o PauseOrder) appliesTo(cron Cron) bool {
	return o.undoes == "" || cron.PauseChange != nil && cron.PauseChange.Operation == o.undoes
}

// pausing calls change in a transaction that holds the lock on the definitions.
func (s *Store) pausing(ctx context.Context, order PauseOrder, change func(*Store) error) error {
	if err := eventstore.CheckReason(order.Reason); err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lockDefinitionsSQL); err != nil {
			return fmt.Errorf("lock the definitions: %w", err)
		}
		return change(New(tx))
	})
}

// holdAt returns the cron paused or resumed.
func (c Cron) holdAt(now time.Time, paused bool, order PauseOrder) Cron {
	if paused {
		c = pause(c, now)
	} else {
		c = resume(c, now)
	}
	c.PauseChange = &PauseChange{Paused: paused, At: now, By: order.By, Reason: order.Reason, Operation: order.operation}
	return c
}

// storePauses writes crons that were paused or resumed, with an event for each, and notifies
// the leader.
func (s *Store) storePauses(ctx context.Context, crons []Cron, now time.Time, order PauseOrder) error {
	if len(crons) == 0 {
		return nil
	}
	if err := s.upsert(ctx, crons, now); err != nil {
		return err
	}
	if _, err := s.db.Exec(ctx, notifySQL, wire.CronChannel); err != nil {
		return fmt.Errorf("notify the leader: %w", err)
	}
	event := eventstore.CronResumed
	if crons[0].PauseChange.Paused {
		event = eventstore.CronPaused
	}
	facts := make([]any, len(crons))
	for i, cron := range crons {
		about := map[string]any{"cron": cron.Name, "by": cron.PauseChange.By}
		if reason := cron.PauseChange.Reason; reason != "" {
			about["reason"] = reason
		}
		switch part := order.before + i + 1; {
		case part > 1:
			about[eventstore.PartKey] = part
		case order.matched > 1:
			about[eventstore.MatchedKey] = order.matched
		}
		facts[i] = about
	}
	return eventstore.New(s.db).AppendEach(ctx, event, facts)
}

func verbOf(paused bool) string {
	if paused {
		return "pause"
	}
	return "resume"
}
