package alerts

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/forge-scheduler/forge/internal/filter"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// Store reads and writes occurrences, silences and notifications.
type Store struct{ db postgres.DB }

// New returns the store of a database.
func New(db postgres.DB) *Store { return &Store{db} }

// State is the state of an occurrence or alert.
type State string

// The states of an occurrence.
const (
	// Pending: the condition holds, but not yet for the alert's for.
	Pending State = "pending"
	Firing  State = "firing"
	// Resolved: it was firing, and the condition no longer holds.
	Resolved State = "resolved"
)

const occurrenceColumns = `id, alert, labels, annotations, severity, notify, state, value, active_at, fired_at, resolved_at, term, muted, kept_since`

const openSQL = `
SELECT ` + occurrenceColumns + ` FROM forge_alerts WHERE state <> 'resolved' ORDER BY alert, active_at, id`

const historySQL = `
SELECT ` + occurrenceColumns + `
FROM forge_alerts
WHERE state = 'resolved' AND ($1::text[] IS NULL OR alert LIKE ANY ($1))
  AND ($3::bigint = 0 OR (resolved_at, id) < (SELECT resolved_at, id FROM forge_alerts WHERE id = $3))
ORDER BY resolved_at DESC, id DESC
LIMIT $2`

const insertOccurrenceSQL = `
INSERT INTO forge_alerts (alert, labels, annotations, severity, notify, state, value, active_at, fired_at, term, muted)
VALUES ($1, $2, $3, $4, coalesce($5::text[], '{}'), $6, $7, $8, $9, $10, $11)
RETURNING id`

const updateOccurrenceSQL = `
UPDATE forge_alerts
SET annotations = $2, severity = $3, notify = coalesce($4::text[], '{}'), state = $5, value = $6, fired_at = $7, resolved_at = $8, term = $9, muted = $10,
    kept_since = $11
WHERE id = $1`

const refreshOccurrenceSQL = `
UPDATE forge_alerts
SET annotations = $2, severity = $3, notify = coalesce($4::text[], '{}'), value = $5, term = $6, kept_since = $7
WHERE id = $1`

const deleteOccurrenceSQL = `DELETE FROM forge_alerts WHERE id = $1`

const pruneOccurrencesSQL = `
DELETE FROM forge_alerts
WHERE id = ANY (ARRAY (
    SELECT id FROM forge_alerts WHERE state = 'resolved' AND resolved_at < $1 ORDER BY resolved_at LIMIT $2))`

// Occurrence is a row of forge_alerts.
type Occurrence struct {
	ID    int64  `json:"id"`
	Alert string `json:"alert"`
	// Labels are the labels of the series for which the condition holds, and the alert's
	// own.
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	Severity    string            `json:"severity"`
	// Notify are the targets to notify.
	Notify []string `json:"notify"`
	State  State    `json:"state"`
	// Value is the value of the condition when it last held.
	Value float64 `json:"value"`
	// ActiveAt is when the condition began to hold.
	ActiveAt   time.Time `json:"active_at"`
	FiredAt    time.Time `json:"fired_at,omitzero"`
	ResolvedAt time.Time `json:"resolved_at,omitzero"`
	// KeptSince is when the condition ceased to hold while keep_firing_for keeps the
	// occurrence firing; zero while the condition holds.
	KeptSince time.Time `json:"kept_since,omitzero"`
	Term      int64     `json:"term"`
	// Muted is true when it fired while its alert was silenced, and receivers have not
	// been notified of it.
	Muted bool `json:"muted,omitempty"`
}

// Key returns a key that the occurrences of one alert and label set share.
func (i Occurrence) Key() string {
	labels, _ := json.Marshal(i.Labels) // sorted; strings cannot fail
	return i.Alert + "\x00" + string(labels)
}

// Open returns the pending and firing occurrences.
func (s *Store) Open(ctx context.Context) ([]Occurrence, error) {
	return s.occurrences(ctx, openSQL)
}

// History returns at most limit past occurrences, of the alerts whose names one of the patterns
// matches or, without patterns, of all, newest first: those after the one with the id before, or
// from the newest when it is 0.
func (s *Store) History(ctx context.Context, names []filter.Pattern, before int64, limit int) ([]Occurrence, error) {
	return s.occurrences(ctx, historySQL, likes(names), limit, before)
}

// likes returns patterns for LIKE; nil for none.
func likes(patterns []filter.Pattern) (all []string) {
	for _, p := range patterns {
		all = append(all, p.Like())
	}
	return all
}

func (s *Store) occurrences(ctx context.Context, sql string, args ...any) ([]Occurrence, error) {
	return postgres.Select(ctx, s.db, "read alerts", func(row pgx.CollectableRow) (i Occurrence, err error) {
		var fired, resolved, kept *time.Time
		err = row.Scan(&i.ID, &i.Alert, &i.Labels, &i.Annotations, &i.Severity, &i.Notify, &i.State, &i.Value,
			&i.ActiveAt, &fired, &resolved, &i.Term, &i.Muted, &kept)
		i.FiredAt, i.ResolvedAt, i.KeptSince = postgres.TimeOrZero(fired), postgres.TimeOrZero(resolved), postgres.TimeOrZero(kept)
		return i, err
	}, sql, args...)
}

// Save writes an occurrence, and sets the id of a new one.
func (s *Store) Save(ctx context.Context, i *Occurrence) error {
	var err error
	if i.ID == 0 {
		err = s.db.QueryRow(ctx, insertOccurrenceSQL, i.Alert, i.Labels, i.Annotations, i.Severity, i.Notify, string(i.State), i.Value,
			i.ActiveAt, null(i.FiredAt), i.Term, i.Muted).Scan(&i.ID)
	} else {
		_, err = s.db.Exec(ctx, updateOccurrenceSQL, i.ID, i.Annotations, i.Severity, i.Notify, string(i.State), i.Value,
			null(i.FiredAt), null(i.ResolvedAt), i.Term, i.Muted, null(i.KeptSince))
	}
	if err != nil {
		return fmt.Errorf("save alert %s: %w", i.Alert, err)
	}
	return nil
}

// Refresh writes the values and texts of occurrences whose state does not change.
func (s *Store) Refresh(ctx context.Context, occurrences []Occurrence) error {
	if len(occurrences) == 0 {
		return nil
	}
	var batch pgx.Batch
	for _, i := range occurrences {
		batch.Queue(refreshOccurrenceSQL, i.ID, i.Annotations, i.Severity, i.Notify, i.Value, i.Term, null(i.KeptSince))
	}
	err := pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error { return tx.SendBatch(ctx, &batch).Close() })
	if err != nil {
		return fmt.Errorf("refresh alerts: %w", err)
	}
	return nil
}

// null is NULL for the zero time.
type null = zeronull.Timestamptz

// Forget deletes an occurrence that never fired.
func (s *Store) Forget(ctx context.Context, id int64) error {
	return postgres.Exec(ctx, s.db, fmt.Sprintf("forget alert %d", id), deleteOccurrenceSQL, id)
}

// Prune deletes at most limit occurrences that ended before an instant.
func (s *Store) Prune(ctx context.Context, before time.Time, limit int) (int64, error) {
	return postgres.Affected(ctx, s.db, "prune alerts", pruneOccurrencesSQL, before, limit)
}
