package jobstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// FairIndex is an index by which a fair queue is read.
type FairIndex struct {
	Name string
	// Ready is false while the index is built, or if its building was interrupted.
	Ready bool
	// Building is whether a session builds an index of the table now.
	Building bool
}

const fairIndexesSQL = `
SELECT c.relname, i.indisvalid AND i.indisready, EXISTS (SELECT FROM pg_stat_progress_create_index AS p WHERE p.relid = i.indrelid)
FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
WHERE i.indrelid = 'river_job'::regclass AND starts_with(c.relname, '` + fairIndexPrefix + `')
ORDER BY c.relname`

// FairIndexes returns the indexes of fair queues, also those that no queue needs any more.
func (s *Store) FairIndexes(ctx context.Context) ([]FairIndex, error) {
	indexes, err := postgres.Collect(ctx, s.db, pgx.RowToStructByPos[FairIndex], fairIndexesSQL)
	if err != nil {
		return nil, fmt.Errorf("read the indexes of fair queues: %w", err)
	}
	return indexes, nil
}

// FairIndexReady reports whether the index of a queue is ready.
func (s *Store) FairIndexReady(ctx context.Context, q FairQueue) (bool, error) {
	indexes, err := s.FairIndexes(ctx)
	return slices.ContainsFunc(indexes, func(index FairIndex) bool { return index.Ready && index.Name == q.IndexName() }), err
}

// CreateFairIndex builds the index of a queue without blocking reads and writes. It waits for
// every transaction that is older. If it is interrupted, an index remains that is not ready.
func (s *Store) CreateFairIndex(ctx context.Context, q FairQueue) error {
	_, err := s.db.Exec(ctx, "CREATE INDEX CONCURRENTLY "+q.IndexName()+
		" ON river_job ("+q.keySQL()+", priority, scheduled_at, id) WHERE "+q.whereSQL())
	if err != nil {
		return fmt.Errorf("build the index of fair queue %s: %w", q.Queue, err)
	}
	return nil
}

// DropFairIndex removes an index without blocking reads and writes.
func (s *Store) DropFairIndex(ctx context.Context, name string) error {
	if _, err := s.db.Exec(ctx, "DROP INDEX CONCURRENTLY IF EXISTS "+pgx.Identifier{name}.Sanitize()); err != nil {
		return fmt.Errorf("drop index %s: %w", name, err)
	}
	return nil
}
