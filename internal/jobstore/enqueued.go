package jobstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
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

// TakeEnqueued returns and deletes the records of NoteEnqueued: the caller counts
// the jobs.
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
