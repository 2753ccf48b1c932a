package jobstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// The order prevents deadlocks between two transactions.
const noteEnqueuedSQL = `
INSERT INTO forge_enqueued (kind, jobs)
SELECT kind, count(*) FROM unnest($1::text[]) AS kind GROUP BY kind ORDER BY kind
ON CONFLICT (kind) DO UPDATE SET jobs = forge_enqueued.jobs + excluded.jobs`

// A row of an uncommitted transaction is left for the next call.
const takeEnqueuedSQL = `
DELETE FROM forge_enqueued
WHERE kind = ANY (ARRAY (SELECT kind FROM forge_enqueued LIMIT 1000 FOR UPDATE SKIP LOCKED))
RETURNING kind, jobs`

// maxTaken bounds the records that a call takes of calls of forge_enqueue and
// forge_enqueue_many.
const maxTaken = 10_000

const takeSQLEnqueuedSQL = `
WITH taken AS (
    DELETE FROM forge_sql_enqueued
    WHERE id = ANY (ARRAY (SELECT id FROM forge_sql_enqueued ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED))
    RETURNING kind, jobs
)
SELECT kind, sum(jobs)::bigint, count(*) FROM taken GROUP BY kind`

// NoteEnqueued records that a process without metrics has inserted jobs of these
// kinds, for a node to count.
func (s *Store) NoteEnqueued(ctx context.Context, kinds []string) error {
	if _, err := s.db.Exec(ctx, noteEnqueuedSQL, kinds); err != nil {
		return fmt.Errorf("note enqueued jobs: %w", err)
	}
	return nil
}

// KindCount is a number of jobs of one kind.
type KindCount struct {
	Kind string
	Jobs int64
}

// TakeEnqueued returns and deletes the records of NoteEnqueued: the caller counts the jobs.
// The limit is a thousand kinds.
func (s *Store) TakeEnqueued(ctx context.Context) ([]KindCount, error) {
	rows, err := s.db.Query(ctx, takeEnqueuedSQL)
	if err != nil {
		return nil, fmt.Errorf("take enqueued jobs: %w", err)
	}
	counts, err := pgx.CollectRows(rows, pgx.RowToStructByPos[KindCount])
	if err != nil {
		return nil, fmt.Errorf("take enqueued jobs: %w", err)
	}
	return counts, nil
}

// TakeSQLEnqueued returns and deletes the records of forge_enqueue and forge_enqueue_many: the
// caller counts the jobs. more reports whether there may be further records.
func (s *Store) TakeSQLEnqueued(ctx context.Context) (counts []KindCount, more bool, err error) {
	var records int64
	counts, err = postgres.Collect(ctx, s.db, func(row pgx.CollectableRow) (c KindCount, err error) {
		var ofKind int64
		err = row.Scan(&c.Kind, &c.Jobs, &ofKind)
		records += ofKind
		return c, err
	}, takeSQLEnqueuedSQL, maxTaken)
	if err != nil {
		return nil, false, fmt.Errorf("take jobs enqueued with SQL: %w", err)
	}
	return counts, records == maxTaken, nil
}
