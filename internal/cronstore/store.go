package cronstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

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

// targets are the variables for cronColumns; decode reads spec.
func (c *Cron) targets(spec *[]byte) []any {
	return []any{
		&c.Name, spec, &c.SpecHash, &c.CreatedAt, &c.UpdatedAt, (*timeOrZero)(&c.RemovedAt), (*timeOrZero)(&c.PausedAt),
		&c.Watermark, (*timeOrZero)(&c.NextTick), &c.Blocked.By, (*timeOrZero)(&c.Blocked.Since),
	}
}

// encode returns the column spec: the definition, and beside its keys the earlier ones.
func (c *Cron) encode() ([]byte, error) {
	return json.Marshal(struct {
		Spec
		Earlier []Era `json:"earlier,omitempty"`
	}{c.Spec, c.Earlier})
}

func (c *Cron) decode(spec []byte) error {
	document := struct {
		*Spec
		Earlier *[]Era `json:"earlier"`
	}{&c.Spec, &c.Earlier}
	if err := json.Unmarshal(spec, &document); err != nil {
		c.Spec, c.Earlier = Spec{}, nil
		c.unreadable = fmt.Errorf("decode the definition of cron %s: %w", c.Name, err)
	}
	return c.unreadable
}

func scanCron(row pgx.CollectableRow) (c Cron, err error) {
	var spec []byte
	if err := row.Scan(c.targets(&spec)...); err != nil {
		return c, err
	}
	return c, c.decode(spec)
}

func scanListed(row pgx.CollectableRow) (c Cron, err error) {
	var (
		spec []byte
		last Tick
	)
	if err := row.Scan(append(c.targets(&spec), &last.Verdict, (*timeOrZero)(&last.Tick), (*timeOrZero)(&last.LastTick), &last.Reason,
		&last.JobID, &last.Term, &last.NodeID, (*timeOrZero)(&last.RecordedAt), &last.LatenessMS, &last.Count)...); err != nil {
		return c, err
	}
	if !last.Tick.IsZero() {
		last.Cron, last.BlockedBy = c.Name, blockerOf(last.Reason)
		c.Last = &last
	}
	return c, c.decode(spec)
}

// targets are the variables for tickColumns.
func (t *Tick) targets() []any {
	return []any{
		&t.Cron, &t.Tick, &t.Verdict, &t.Reason, &t.JobID, &t.Term, &t.NodeID,
		&t.RecordedAt, &t.LatenessMS, (*timeOrZero)(&t.LastTick), &t.Count,
	}
}

func scanTick(row pgx.CollectableRow) (t Tick, err error) {
	err = row.Scan(t.targets()...)
	t.BlockedBy = blockerOf(t.Reason)
	return t, err
}

// timeOrZero scans NULL as the zero time.
type timeOrZero time.Time

// ScanTimestamptz implements pgtype.TimestamptzScanner.
func (t *timeOrZero) ScanTimestamptz(v pgtype.Timestamptz) error {
	*t = timeOrZero(v.Time)
	return nil
}

// nullable converts the zero time to SQL's null.
func nullable(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
