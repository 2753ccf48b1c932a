package alerts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/postgres"
)

const (
	// MaxSilence is the longest silence, so that a forgotten silence ends.
	MaxSilence = 366 * 24 * time.Hour
	// MaxReason is the most bytes of a reason.
	MaxReason = 500
)

// Errors of silences.
var (
	errNotAhead = errors.New("a silence has to end in the future")
	errTooLong  = errors.New("a silence lasts at most 366 days")
	errReason   = fmt.Errorf("a reason is a text of at most %d bytes", MaxReason)
)

// ErrInvalid is wrapped by every error about an invalid silence, ErrNotFound reports that
// the configuration in force has no such alert, ErrTellsNobody that the alert has no
// receiver.
var (
	ErrInvalid     = errors.New("invalid silence")
	ErrNotFound    = errors.New("no such alert")
	ErrTellsNobody = errors.New("the alert tells nobody")
)

// Silence keeps an alert from notifying its receivers.
type Silence struct {
	Alert string `json:"alert"`
	// CreatedAt is when the silence began, Until when it expires.
	CreatedAt time.Time `json:"created_at"`
	Until     time.Time `json:"until"`
	CreatedBy string    `json:"created_by"`
	Reason    string    `json:"reason,omitempty"`
}

const silenceColumns = `alert, created_at, until, created_by, reason`

const silencesSQL = `SELECT ` + silenceColumns + ` FROM forge_silences WHERE until > clock_timestamp() ORDER BY alert`

const sweepSilencesSQL = `DELETE FROM forge_silences WHERE until <= clock_timestamp()`

// A new silence replaces the current one of the same alert.
const silenceSQL = `
INSERT INTO forge_silences (alert, until, created_by, reason)
VALUES ($1, $2, $3, $4)
ON CONFLICT (alert) DO UPDATE
SET created_at = excluded.created_at, until = excluded.until, created_by = excluded.created_by, reason = excluded.reason
RETURNING ` + silenceColumns

const unsilenceSQL = `DELETE FROM forge_silences WHERE alert = $1`

// Silences returns the current silences, by alert.
func (s *Store) Silences(ctx context.Context) ([]Silence, error) {
	return postgres.Select(ctx, s.db, "read silences", pgx.RowToStructByPos[Silence], silencesSQL)
}

// Span is the duration of a silence: until an instant or, when that is zero, for a time
// from now on.
type Span struct {
	Until time.Time
	For   time.Duration
}

// Silence silences an alert in force. Of silence it uses the alert, the author and the
// reason. The leader of the metrics aggregator applies it from its next evaluation on. The
// error wraps ErrInvalid for invalid values.
func (s *Store) Silence(ctx context.Context, silence Silence, lasts Span) (made Silence, err error) {
	err = pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		if _, err := New(tx).ruleInForce(ctx, silence.Alert); err != nil {
			return err
		}
		made, err = mute(ctx, tx, silence, lasts)
		return err
	})
	return made, err
}

func mute(ctx context.Context, tx pgx.Tx, s Silence, lasts Span) (Silence, error) {
	now, err := postgres.Now(ctx, tx)
	if err != nil {
		return Silence{}, err
	}
	s.Until = lasts.Until
	if s.Until.IsZero() {
		s.Until = now.Add(lasts.For)
	}
	if err := s.check(now); err != nil {
		return Silence{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err := postgres.Exec(ctx, tx, "sweep silences", sweepSilencesSQL); err != nil {
		return Silence{}, err
	}
	silence, _, err := postgres.First(ctx, tx, "silence "+s.Alert, pgx.RowToStructByPos[Silence], silenceSQL, s.Alert, s.Until, s.CreatedBy, s.Reason)
	if err != nil {
		return Silence{}, err
	}
	facts := map[string]any{"alert": s.Alert, "by": s.CreatedBy, "until": s.Until.UTC(), "reason": s.Reason}
	return silence, eventstore.New(tx).Append(ctx, eventstore.Event{Type: eventstore.AlertSilenced}, facts)
}

func (s Silence) check(now time.Time) error {
	switch {
	case !s.Until.After(now):
		return errNotAhead
	case s.Until.Sub(now) > MaxSilence:
		return errTooLong
	case len(s.Reason) > MaxReason || !utf8.ValidString(s.Reason) || strings.ContainsRune(s.Reason, 0):
		return errReason
	default:
		return nil
	}
}

// Unsilence ends the silence of an alert, and reports whether it was silenced. It also
// accepts an alert that is no longer in the configuration.
func (s *Store) Unsilence(ctx context.Context, alert, by string) (changed bool, err error) {
	err = pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		if changed, err = unmute(ctx, tx, alert, by); err != nil || changed {
			return err
		}
		_, err = New(tx).ruleInForce(ctx, alert)
		return err
	})
	return changed, err
}

func unmute(ctx context.Context, tx pgx.Tx, alert, by string) (bool, error) {
	if err := postgres.Exec(ctx, tx, "sweep silences", sweepSilencesSQL); err != nil {
		return false, err
	}
	ended, err := postgres.Affected(ctx, tx, "unsilence "+alert, unsilenceSQL, alert)
	if err != nil || ended == 0 {
		return false, err
	}
	return true, eventstore.New(tx).Append(ctx, eventstore.Event{Type: eventstore.AlertUnsilenced}, map[string]any{"alert": alert, "by": by})
}

// Try notifies the receivers of an alert in force that it fires and that it is resolved,
// whichever node leads the metrics aggregator. It returns the targets that will be
// notified.
func (s *Store) Try(ctx context.Context, alert, by string) (targets []string, err error) {
	err = pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		store := New(tx)
		rule, err := store.ruleInForce(ctx, alert)
		if err != nil {
			return err
		}
		if targets = rule.Notify; len(targets) == 0 {
			return ErrTellsNobody
		}
		if err := store.EnqueueTest(ctx, alert, targets, TestOccurrence(rule, time.Now(), by)); err != nil {
			return err
		}
		return eventstore.New(tx).Append(ctx, eventstore.Event{Type: eventstore.AlertTried}, map[string]any{"alert": alert, "by": by})
	})
	return targets, err
}

func (s *Store) ruleInForce(ctx context.Context, alert string) (Rule, error) {
	rules, err := s.rulesInForce(ctx)
	if err != nil {
		return Rule{}, err
	}
	i := slices.IndexFunc(rules, func(r Rule) bool { return r.Name == alert })
	if i < 0 {
		return Rule{}, ErrNotFound
	}
	return rules[i], nil
}
