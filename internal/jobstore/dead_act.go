package jobstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/eventstore"
)

const countDeadSQL = `
SELECT count(*), coalesce(max(id), 0)` + deadSQL

const lockDeadSQL = lockColumnsSQL + deadSQL + `
  AND id > $8 AND id <= $9
ORDER BY id
LIMIT $10
FOR NO KEY UPDATE`

// A discarded dead letter gets no second round. The mark is only valid for this
// final failure: if the job is retried and fails for good again, it is listed
// again.
const discardDeadSQL = `
UPDATE river_job
SET metadata = metadata || jsonb_build_object('forge:dead',
    CASE WHEN ` + markedSQL + ` THEN (metadata -> 'forge:dead') - 'second_round' ELSE '{}' END
    || jsonb_build_object('attempt', attempt, 'discarded_at', now(), 'discarded_by', $2::text))
WHERE id = ANY ($1::bigint[])`

// DeadMatching identifies the dead letters that ActOnDead changes.
type DeadMatching struct {
	Jobs int64
	// upTo is the newest id: later jobs are not included.
	upTo int64
}

// CountDead counts the dead letters that match a filter.
func CountDead(ctx context.Context, db Queryer, filter DeadFilter) (m DeadMatching, err error) {
	args, err := filter.resolve(ctx, db)
	if err != nil {
		return m, err
	}
	rows, err := db.Query(ctx, countDeadSQL, args...)
	if err != nil {
		return m, fmt.Errorf("count dead letters: %w", err)
	}
	m, err = pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (m DeadMatching, err error) {
		return m, row.Scan(&m.Jobs, &m.upTo)
	})
	if err != nil {
		return m, fmt.Errorf("count dead letters: %w", err)
	}
	return m, nil
}

// ActOnDead retries or discards the counted dead letters, which are no longer
// listed then. It starts with the oldest and uses many transactions. It returns how
// many it changed, and calls progress with the number processed. A dead letter
// whose unique key is held by another job does not change.
func ActOnDead(ctx context.Context, db Pool, order Order, filter DeadFilter, counted DeadMatching, progress func(done int)) (int, error) {
	if order.Action != Retry && order.Action != Discard {
		return 0, fmt.Errorf("%s dead letters: they can be retried or discarded", order.Action)
	}
	args, err := filter.resolve(ctx, db)
	if err != nil {
		return 0, err
	}
	changed, err := inBatches(progress, func(after int64) ([]Change, error) {
		return actOnDeadBatch(ctx, db, order, append(slices.Clip(args), after, counted.upTo, batchSize))
	})
	if err != nil {
		return changed, fmt.Errorf("%s dead letters: %w", order.Action, err)
	}
	return changed, nil
}

// Pool runs queries and starts transactions.
type Pool interface {
	Queryer
	Beginner
}

// resolve returns the filter's arguments, including the dead letters of its group
// that are not recorded yet.
func (f DeadFilter) resolve(ctx context.Context, db Queryer) ([]any, error) {
	if f.Group == "" {
		return f.args(nil), nil
	}
	fresh, err := unrecorded(ctx, db)
	return f.args(fresh), err
}

func actOnDeadBatch(ctx context.Context, db Beginner, order Order, args []any) (changes []Change, err error) {
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		found, err := lockJobs(ctx, tx, lockDeadSQL, args...)
		if err != nil {
			return err
		}
		if order.Action == Retry {
			changes, err = carryOut(ctx, tx, order, nil, found)
			return err
		}
		changes, err = discardDead(ctx, tx, order, found)
		return err
	})
	return changes, err
}

func discardDead(ctx context.Context, tx pgx.Tx, order Order, found []locked) ([]Change, error) {
	if len(found) == 0 {
		return nil, nil
	}
	changes, ids := make([]Change, len(found)), make([]int64, len(found))
	for i, l := range found {
		changes[i], ids[i] = l.Change, l.ID
	}
	if _, err := tx.Exec(ctx, discardDeadSQL, ids, order.By); err != nil {
		return nil, err
	}
	return changes, eventstore.Append(ctx, tx, eventstore.Event{Type: eventstore.DeadLettersDiscarded}, entry(order, nil, ids))
}
