package compactor

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/postgres"
)

const recordSQL = `
INSERT INTO forge_compactions (term, node_id, started_at, ended_at, next_at, removed, failed, chunks, packs, text_bytes, pack_bytes)
SELECT $1, $2, ended_at - $3::interval, ended_at, ended_at - $3::interval + $4::interval, $5, $6, $7, $8, $9, $10
FROM clock_timestamp() AS ended_at`

const pruneSQL = `
DELETE FROM forge_compactions
WHERE id IN (
    SELECT id FROM forge_compactions
    WHERE ended_at < $1 AND id < (SELECT max(id) FROM forge_compactions)
    ORDER BY id
    LIMIT $2)`

const passesSQL = `
SELECT term, node_id, started_at, ended_at, next_at, removed, failed, chunks, packs, text_bytes, pack_bytes
FROM forge_compactions
ORDER BY id DESC
LIMIT $1`

// The tables of a schema, by default that of forge_compactions. Partitions count as their
// table. Unlike a cast, to_regclass returns null if this user may not use the schema.
const tablesSQL = `
SELECT t.relname::text, sum(pg_total_relation_size(s.relid))::bigint AS bytes, sum(pg_indexes_size(s.relid))::bigint,
       sum(s.n_live_tup)::bigint, sum(s.n_dead_tup)::bigint, count(*) FILTER (WHERE s.relid <> t.oid)
FROM pg_stat_user_tables s
JOIN pg_class t ON t.oid = coalesce(pg_partition_root(s.relid), s.relid)
WHERE s.schemaname = coalesce(nullif($1, ''), (
      SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass('forge_compactions')))
  AND (t.relname LIKE 'forge\_%' OR t.relname LIKE 'river\_%')
GROUP BY t.relname
ORDER BY bytes DESC, t.relname`

// Pass is the result of one pass.
type Pass struct {
	Term      int64             `json:"term"`
	NodeID    string            `json:"node_id"`
	StartedAt time.Time         `json:"started_at"`
	EndedAt   time.Time         `json:"ended_at"`
	NextAt    time.Time         `json:"next_at"`
	Removed   map[string]int64  `json:"removed"`
	Failed    map[string]string `json:"failed"`
	Chunks    int64             `json:"merged_chunks"`
	Packs     int64             `json:"packs"`
	TextBytes int64             `json:"text_bytes"`
	PackBytes int64             `json:"pack_bytes"`
}

// Table is the size of a table; Bytes includes its indexes and TOAST.
type Table struct {
	Name       string `json:"name"`
	Bytes      int64  `json:"bytes"`
	IndexBytes int64  `json:"index_bytes"`
	Rows       int64  `json:"rows"` // estimate
	DeadRows   int64  `json:"dead_rows"`
	Partitions int64  `json:"partitions"` // 0: not partitioned
}

// Status holds the passes, newest first, and the tables, largest first.
type Status struct {
	Passes []Pass  `json:"passes"`
	Tables []Table `json:"tables"`
}

// Store reads and writes the record of passes, measures tables, changes partitions and
// rebuilds indexes.
type Store struct{ db postgres.DB }

// NewStore returns the store of a database.
func NewStore(db postgres.DB) *Store { return &Store{db} }

// Record adds a pass that took took and ends now, by the database's clock; the
// times in pass are ignored. The next pass begins interval after the start of this
// one.
func (s *Store) Record(ctx context.Context, pass Pass, took, interval time.Duration) error {
	return postgres.Exec(ctx, s.db, "record a pass of the compactor", recordSQL, pass.Term, pass.NodeID, took, interval, pass.Removed, pass.Failed,
		pass.Chunks, pass.Packs, pass.TextBytes, pass.PackBytes)
}

// Prune deletes at most limit passes that ended before an instant, but never the
// newest.
func (s *Store) Prune(ctx context.Context, before time.Time, limit int) (int64, error) {
	return postgres.Affected(ctx, s.db, "prune passes of the compactor", pruneSQL, before, limit)
}

// Status returns the newest passes, at most limit, and all tables.
func (s *Store) Status(ctx context.Context, limit int) (Status, error) {
	passes, err := s.Passes(ctx, limit)
	if err != nil {
		return Status{}, err
	}
	tables, err := s.Tables(ctx, "")
	if err != nil {
		return Status{}, err
	}
	return Status{Passes: passes, Tables: tables}, nil
}

// Passes returns at most limit passes, newest first.
func (s *Store) Passes(ctx context.Context, limit int) ([]Pass, error) {
	return postgres.Select(ctx, s.db, "read passes of the compactor", pgx.RowToStructByPos[Pass], passesSQL, limit)
}

// Tables measures forge's and River's tables in a schema, the largest first. The default
// of schema is that of the store's own table.
func (s *Store) Tables(ctx context.Context, schema string) ([]Table, error) {
	return postgres.Select(ctx, s.db, "weigh tables", pgx.RowToStructByPos[Table], tablesSQL, schema)
}

// removes returns the names of everything that a pass may remove.
func (c *Compactor) removes() []string {
	names := []string{strayLogs}
	keep := c.retention()
	for _, table := range parted(keep) {
		names = append(names, table.name)
	}
	for _, sweep := range sweeps(keep) {
		names = append(names, sweep.name)
	}
	return names
}

// measure updates the metrics after the pass was recorded: its results and the
// sizes of the tables.
func (p *pass) measure(took time.Duration, tables []Table) {
	m := p.opts.Metrics
	if m == nil {
		return
	}
	result := "complete"
	if len(p.record.Failed) > 0 {
		result = "incomplete"
	}
	m.CompactorPasses.WithLabelValues(result).Inc()
	for what, rows := range p.record.Removed {
		m.CompactorRemoved.WithLabelValues(what).Add(float64(rows))
	}
	m.CompactorChunks.Add(float64(p.record.Chunks))
	m.CompactorTextBytes.Add(float64(p.record.TextBytes))
	m.CompactorPackBytes.Add(float64(p.record.PackBytes))
	m.CompactorPassSeconds.WithLabelValues().Observe(took.Seconds())
	m.CompactorPassedAt.WithLabelValues().SetToCurrentTime()
	for _, table := range tables {
		m.TableBytes.WithLabelValues(table.Name).Set(float64(table.Bytes))
	}
}

// forgetMeasures removes the gauges, which the next leader sets.
func (c *Compactor) forgetMeasures() {
	if c.opts.Metrics != nil {
		c.opts.Metrics.CompactorPassedAt.Reset()
		c.opts.Metrics.TableBytes.Reset()
	}
}
