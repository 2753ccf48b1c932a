package alertstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/eventstore"
)

const (
	// MaxSilence is for how long an alert can be silenced at once: what nobody
	// thinks of any more must not stay quiet for ever.
	MaxSilence = 366 * 24 * time.Hour
	// MaxReason is the most bytes of a reason.
	MaxReason = 500
)

// The errors of what was asked of a silence.
var (
	errNotAhead = errors.New("a silence has to end in the future")
	errTooLong  = errors.New("a silence lasts at most 366 days")
	errReason   = fmt.Errorf("a reason is a text of at most %d bytes", MaxReason)
)

// ErrInvalid is what every error is that the one who asks for a silence can mend,
// ErrNotFound says that the configuration in force has no such alert, ErrTellsNobody
// that an alert names no receiver.
var (
	ErrInvalid     = errors.New("invalid silence")
	ErrNotFound    = errors.New("no such alert")
	ErrTellsNobody = errors.New("the alert tells nobody")
)

// Silence keeps receivers from being told of an alert.
type Silence struct {
	Alert string `json:"alert"`
	// CreatedAt is since when, Until the instant at which it ends by itself.
	CreatedAt time.Time `json:"created_at"`
	Until     time.Time `json:"until"`
	CreatedBy string    `json:"created_by"`
	Reason    string    `json:"reason,omitempty"`
}

const silenceColumns = `alert, created_at, until, created_by, reason`

const silencesSQL = `SELECT ` + silenceColumns + ` FROM forge_silences WHERE until > clock_timestamp() ORDER BY alert`

const clockSQL = `SELECT clock_timestamp()`

const sweepSilencesSQL = `DELETE FROM forge_silences WHERE until <= clock_timestamp()`

// Whoever silences what is silenced replaces what was said before.
const silenceSQL = `
INSERT INTO forge_silences (alert, until, created_by, reason)
VALUES ($1, $2, $3, $4)
ON CONFLICT (alert) DO UPDATE
SET created_at = excluded.created_at, until = excluded.until, created_by = excluded.created_by, reason = excluded.reason
RETURNING ` + silenceColumns

const unsilenceSQL = `DELETE FROM forge_silences WHERE alert = $1`

// Silences returns those that last, by alert.
func Silences(ctx context.Context, db Queryer) ([]Silence, error) {
	rows, err := db.Query(ctx, silencesSQL)
	if err != nil {
		return nil, fmt.Errorf("read silences: %w", err)
	}
	silences, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Silence])
	if err != nil {
		return nil, fmt.Errorf("read silences: %w", err)
	}
	return silences, nil
}

// Span is how long a silence is to last: until an instant or, when that is zero,
// for a time from now on.
type Span struct {
	Until time.Time
	For   time.Duration
}

// Mute silences an alert, in a transaction. Of s it takes the alert, who asks for it
// and why. The error is an ErrInvalid for what cannot be.
func Mute(ctx context.Context, tx pgx.Tx, s Silence, lasts Span) (Silence, error) {
	var now time.Time
	if err := tx.QueryRow(ctx, clockSQL).Scan(&now); err != nil {
		return Silence{}, fmt.Errorf("read the clock: %w", err)
	}
	s.Until = lasts.Until
	if s.Until.IsZero() {
		s.Until = now.Add(lasts.For)
	}
	if err := s.check(now); err != nil {
		return Silence{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if _, err := tx.Exec(ctx, sweepSilencesSQL); err != nil {
		return Silence{}, fmt.Errorf("sweep silences: %w", err)
	}
	rows, err := tx.Query(ctx, silenceSQL, s.Alert, s.Until, s.CreatedBy, s.Reason)
	if err != nil {
		return Silence{}, fmt.Errorf("silence %s: %w", s.Alert, err)
	}
	silence, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Silence])
	if err != nil {
		return Silence{}, fmt.Errorf("silence %s: %w", s.Alert, err)
	}
	facts := map[string]any{"alert": s.Alert, "by": s.CreatedBy, "until": s.Until.UTC(), "reason": s.Reason}
	return silence, eventstore.Append(ctx, tx, eventstore.Event{Type: eventstore.AlertSilenced}, facts)
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

// Unmute ends the silence of an alert, in a transaction, and says whether there was
// one that lasted.
func Unmute(ctx context.Context, tx pgx.Tx, alert, by string) (bool, error) {
	if _, err := tx.Exec(ctx, sweepSilencesSQL); err != nil {
		return false, fmt.Errorf("sweep silences: %w", err)
	}
	tag, err := tx.Exec(ctx, unsilenceSQL, alert)
	if err != nil {
		return false, fmt.Errorf("unsilence %s: %w", alert, err)
	}
	if tag.RowsAffected() == 0 {
		return false, nil
	}
	return true, eventstore.Append(ctx, tx, eventstore.Event{Type: eventstore.AlertUnsilenced}, map[string]any{"alert": alert, "by": by})
}
