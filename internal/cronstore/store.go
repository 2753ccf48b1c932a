package cronstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// ErrNotFound means that the cron or configuration does not exist.
var ErrNotFound = errors.New("not found")

// Store reads and changes the crons of one database.
type Store struct{ db postgres.DB }

// New returns the store of a database, or of a transaction.
func New(db postgres.DB) *Store { return &Store{db} }

const cronColumns = `
c.name, c.spec, c.spec_hash, c.created_at, c.updated_at, c.removed_at, c.paused_at, c.watermark, c.next_tick,
coalesce(c.blocked_by, 0), c.blocked_since`

const tickColumns = `
t.cron, t.tick, t.verdict, t.reason, coalesce(t.job_id, 0), t.term, t.node_id, t.recorded_at, t.lateness_ms,
t.last_tick, t.tick_count`

const listColumns = cronColumns + `, coalesce(l.verdict, ''), l.tick, l.last_tick, coalesce(l.reason, ''),
       coalesce(l.job_id, 0), coalesce(l.term, 0), coalesce(l.node_id, ''), l.recorded_at,
       coalesce(l.lateness_ms, 0), coalesce(l.tick_count, 0)`

// The newest row of each cron is one lookup in the ledger's primary key.
const newestRowSQL = `
LEFT JOIN LATERAL (
    SELECT * FROM forge_cron_ticks AS t WHERE t.cron = c.name ORDER BY t.tick DESC LIMIT 1
) AS l ON true`

// Names are ordered by their bytes, as Go compares them: the database's order may
// be that of a language.
const listSQL = `
SELECT ` + listColumns + `
FROM forge_crons AS c` + newestRowSQL + `
WHERE CASE WHEN $1 = '' THEN c.removed_at IS NULL ELSE c.name = $1 END
  AND ($2::text[] IS NULL OR c.name = ANY ($2))
ORDER BY c.name COLLATE "C"`

const ticksSQL = `
SELECT ` + tickColumns + `
FROM forge_cron_ticks AS t
WHERE t.cron = $1 AND t.tick < coalesce($2::timestamptz, 'infinity')
ORDER BY t.tick DESC
LIMIT $3`

const namesSQL = `SELECT name FROM forge_crons WHERE removed_at IS NULL ORDER BY name COLLATE "C"`

const newestTicksSQL = `
SELECT ` + tickColumns + `
FROM unnest($1::text[]) AS wanted (name),
     LATERAL (SELECT * FROM forge_cron_ticks WHERE cron = wanted.name ORDER BY tick DESC LIMIT $2) AS t
ORDER BY t.cron, t.tick DESC`

// List returns the configured crons, ordered by the bytes of their names, each with
// the newest row of its ledger.
func (s *Store) List(ctx context.Context) ([]Cron, error) {
	return s.some(ctx, nil)
}

// Names returns the names of the configured crons, ordered by their bytes.
func (s *Store) Names(ctx context.Context) ([]string, error) {
	names, err := postgres.Collect(ctx, s.db, pgx.RowTo[string], namesSQL)
	if err != nil {
		return nil, fmt.Errorf("list the names of crons: %w", err)
	}
	return names, nil
}

// Some returns the configured crons among these, with the same fields as List.
func (s *Store) Some(ctx context.Context, names []string) ([]Cron, error) {
	if len(names) == 0 {
		return nil, nil
	}
	return s.some(ctx, names)
}

// some returns all configured crons if names is nil.
func (s *Store) some(ctx context.Context, names []string) ([]Cron, error) {
	crons, err := postgres.Collect(ctx, s.db, scanListed, listSQL, "", names)
	if err != nil {
		return nil, fmt.Errorf("list crons: %w", err)
	}
	return crons, nil
}

// Get returns one cron, even if it was removed, or ErrNotFound.
func (s *Store) Get(ctx context.Context, name string) (Cron, error) {
	if name == "" {
		return Cron{}, fmt.Errorf("cron without a name: %w", ErrNotFound)
	}
	crons, err := postgres.Collect(ctx, s.db, scanListed, listSQL, name, nil)
	if err != nil {
		return Cron{}, fmt.Errorf("get cron %s: %w", name, err)
	}
	if len(crons) == 0 {
		return Cron{}, fmt.Errorf("cron %s: %w", name, ErrNotFound)
	}
	return crons[0], nil
}

// Ticks returns at most limit ledger rows of a cron with ticks before an instant
// (zero: the newest), newest first.
func (s *Store) Ticks(ctx context.Context, cron string, before time.Time, limit int) ([]Tick, error) {
	ticks, err := postgres.Collect(ctx, s.db, scanTick, ticksSQL, cron, nullable(before), limit)
	if err != nil {
		return nil, fmt.Errorf("list ticks of %s: %w", cron, err)
	}
	return ticks, nil
}

// NewestTicks returns at most limit of the newest ledger rows of each of these
// crons, newest first.
func (s *Store) NewestTicks(ctx context.Context, crons []string, limit int) (map[string][]Tick, error) {
	ticks, err := postgres.Collect(ctx, s.db, scanTick, newestTicksSQL, crons, limit)
	if err != nil {
		return nil, fmt.Errorf("list the newest ticks: %w", err)
	}
	byCron := make(map[string][]Tick, len(crons))
	for _, tick := range ticks {
		byCron[tick.Cron] = append(byCron[tick.Cron], tick)
	}
	return byCron, nil
}

// document is the content of the column spec: the definition, and beside its keys
// the eras that may have unsettled ticks.
type document struct {
	Spec
	Earlier []Era `json:"earlier,omitempty"`
}

// rawCron scans a row of forge_crons.
type rawCron struct {
	cron                       Cron
	spec                       []byte
	removedAt, pausedAt, nextT *time.Time
	blockedSince               *time.Time
}

func (r *rawCron) targets() []any {
	return []any{
		&r.cron.Name, &r.spec, &r.cron.SpecHash, &r.cron.CreatedAt, &r.cron.UpdatedAt,
		&r.removedAt, &r.pausedAt, &r.cron.Watermark, &r.nextT, &r.cron.Blocked.By, &r.blockedSince,
	}
}

func (r *rawCron) decode() (Cron, error) {
	var doc document
	if err := json.Unmarshal(r.spec, &doc); err != nil {
		return Cron{}, fmt.Errorf("decode the definition of cron %s: %w", r.cron.Name, err)
	}
	r.cron.Spec, r.cron.Earlier = doc.Spec, doc.Earlier
	r.cron.RemovedAt, r.cron.PausedAt, r.cron.NextTick = instant(r.removedAt), instant(r.pausedAt), instant(r.nextT)
	r.cron.Blocked.Since = instant(r.blockedSince)
	return r.cron, nil
}

func scanCron(row pgx.CollectableRow) (Cron, error) {
	var raw rawCron
	if err := row.Scan(raw.targets()...); err != nil {
		return Cron{}, err
	}
	return raw.decode()
}

func scanListed(row pgx.CollectableRow) (Cron, error) {
	var (
		raw                        rawCron
		last                       Tick
		tick, lastTick, recordedAt *time.Time
	)
	if err := row.Scan(append(raw.targets(), &last.Verdict, &tick, &lastTick, &last.Reason, &last.JobID,
		&last.Term, &last.NodeID, &recordedAt, &last.LatenessMS, &last.Count)...); err != nil {
		return Cron{}, err
	}
	cron, err := raw.decode()
	if tick != nil {
		last.Cron, last.Tick, last.LastTick, last.RecordedAt = cron.Name, *tick, instant(lastTick), instant(recordedAt)
		last.BlockedBy = blockerOf(last.Reason)
		cron.Last = &last
	}
	return cron, err
}

// rawTick scans a row of forge_cron_ticks.
type rawTick struct {
	tick     Tick
	lastTick *time.Time
}

func (r *rawTick) targets() []any {
	return []any{
		&r.tick.Cron, &r.tick.Tick, &r.tick.Verdict, &r.tick.Reason, &r.tick.JobID, &r.tick.Term, &r.tick.NodeID,
		&r.tick.RecordedAt, &r.tick.LatenessMS, &r.lastTick, &r.tick.Count,
	}
}

func (r *rawTick) decode() Tick {
	r.tick.LastTick, r.tick.BlockedBy = instant(r.lastTick), blockerOf(r.tick.Reason)
	return r.tick
}

func scanTick(row pgx.CollectableRow) (Tick, error) {
	var raw rawTick
	err := row.Scan(raw.targets()...)
	return raw.decode(), err
}

// instant converts SQL's null to the zero time.
func instant(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

// nullable converts the zero time to SQL's null.
func nullable(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
