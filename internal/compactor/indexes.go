package compactor

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/internal/watchdog"
)

// bloat is the ratio of an index's size to the size that its entries need from
// which it is rebuilt. An index in normal use is half to two thirds full.
const bloat = 4

// B-trees of the schema's tables that this user may rebuild, with their size and
// the size that their entries need: some 20 bytes each, plus their columns by the
// statistics of ANALYZE. A partial index has its own number of entries, as the last
// VACUUM counted them. A full index has the table's number of rows, if that is
// greater.
const bloatedSQL = `
WITH sized AS (
    SELECT i.indexrelid::regclass::text AS name, pg_relation_size(i.indexrelid) AS bytes,
        (CASE WHEN i.indpred IS NULL THEN greatest(c.reltuples, s.n_live_tup, 0) ELSE greatest(c.reltuples, 0) END
            * (20 + w.width))::bigint AS need
    FROM pg_index i
    JOIN pg_class c ON c.oid = i.indexrelid
    JOIN pg_class t ON t.oid = i.indrelid
    JOIN pg_namespace n ON n.oid = t.relnamespace
    JOIN pg_am a ON a.oid = c.relam AND a.amname = 'btree'
    JOIN pg_stat_user_tables s ON s.relid = t.oid
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(coalesce(k.avg_width, 16)), 0) AS width
        FROM unnest(i.indkey) AS key (number)
        LEFT JOIN pg_attribute f ON f.attrelid = t.oid AND f.attnum = key.number
        LEFT JOIN pg_stats k ON k.schemaname = n.nspname AND k.tablename = t.relname AND k.attname = f.attname) AS w
    WHERE t.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'forge_compactions'::regclass)
      AND (t.relname LIKE 'forge\_%' OR t.relname LIKE 'river\_%')
      AND i.indisvalid AND pg_has_role(t.relowner, 'USAGE'))
SELECT name, bytes, need
FROM sized
WHERE bytes >= $1 AND bytes > $2 * need
ORDER BY bytes - need DESC`

// Remains of interrupted rebuilds, by the names that PostgreSQL gives them, except
// those of rebuilds that are still running.
const leftoversSQL = `
SELECT i.indexrelid::regclass::text
FROM pg_index i
JOIN pg_class c ON c.oid = i.indexrelid
JOIN pg_class t ON t.oid = i.indrelid
WHERE t.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'forge_compactions'::regclass)
  AND (t.relname LIKE 'forge\_%' OR t.relname LIKE 'river\_%')
  AND NOT i.indisvalid AND c.relname ~ '_cc(new|old)[0-9]*$' AND pg_has_role(t.relowner, 'USAGE')
  AND NOT EXISTS (SELECT FROM pg_stat_progress_create_index WHERE relid = t.oid)`

// Index is an index that takes much more space than its entries need. Its name is a
// quoted SQL identifier, with its schema if needed.
type Index struct {
	Name  string
	Bytes int64
	Need  int64 // estimate
}

// Bloated returns the indexes of at least least bytes that are mostly unused, the
// worst first. PostgreSQL reuses the space of deleted rows in an index, but does
// not return it.
func (s *Store) Bloated(ctx context.Context, least int64) ([]Index, error) {
	return postgres.Select(ctx, s.db, "look for indexes that have grown", pgx.RowToStructByPos[Index], bloatedSQL, least, bloat)
}

// Rebuild rebuilds an index without blocking reads and writes, and returns its new
// size. It first removes the remains of an interrupted rebuild.
func (s *Store) Rebuild(ctx context.Context, index Index) (bytes int64, err error) {
	if err := s.dropLeftovers(ctx); err != nil {
		return 0, fmt.Errorf("drop what an interrupted rebuilding left: %w", err)
	}
	if _, err := s.db.Exec(ctx, "REINDEX INDEX CONCURRENTLY "+index.Name); err != nil {
		return 0, fmt.Errorf("rebuild index %s: %w", index.Name, err)
	}
	if err := s.db.QueryRow(ctx, `SELECT pg_relation_size($1::text::regclass)`, index.Name).Scan(&bytes); err != nil {
		return 0, fmt.Errorf("weigh index %s: %w", index.Name, err)
	}
	return bytes, nil
}

func (s *Store) dropLeftovers(ctx context.Context) error {
	names, err := postgres.Collect(ctx, s.db, pgx.RowTo[string], leftoversSQL)
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, err := s.db.Exec(ctx, "DROP INDEX CONCURRENTLY IF EXISTS "+name); err != nil {
			return err
		}
	}
	return nil
}

const (
	// longRebuild is the timeout for rebuilding one index, which waits for every
	// older transaction.
	longRebuild = 5 * time.Minute
	// rebuildAgain is the minimum time between two rebuilds of an index: if it
	// grows again that soon, another rebuild does not help.
	rebuildAgain = 24 * time.Hour
)

// rebuild rebuilds at most one index that has grown far beyond its content, for
// example after a large backlog. It runs outside any transaction, so it is neither
// fenced nor batched; it does not matter which process does it, nor whether it
// completes.
func (p *pass) rebuild(ctx context.Context) error {
	var grown []Index
	err := p.do(ctx, func(tx pgx.Tx, _ time.Time) (err error) {
		grown, err = NewStore(tx).Bloated(ctx, p.opts.LeastIndex)
		return err
	})
	if err != nil {
		return err
	}
	for _, index := range grown {
		if last, done := p.rebuilt[index.Name]; done && time.Since(last) < rebuildAgain {
			continue
		}
		p.rebuilt[index.Name] = time.Now()
		return p.rebuildOne(ctx, index)
	}
	return nil
}

func (p *pass) rebuildOne(ctx context.Context, index Index) error {
	watchdog.Extend(ctx, longRebuild+longBatch)
	bounded, cancel := context.WithTimeout(ctx, longRebuild)
	defer cancel()
	bytes, err := NewStore(p.db).Rebuild(bounded, index)
	if err != nil {
		return err
	}
	return p.do(ctx, func(tx pgx.Tx, _ time.Time) error {
		return eventstore.New(tx).Append(ctx, eventstore.Event{
			Type: eventstore.IndexRebuilt, NodeID: p.fence.NodeID, Role: p.fence.Role, Term: p.fence.Term,
		}, map[string]any{"index": index.Name, "bytes_before": index.Bytes, "bytes": bytes})
	})
}
