package jobstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/eventstore"
)

const countDeadSQL = `
SELECT count(*), coalesce(max(id), 0), ` + boundTime + `greatest(now(), max(finalized_at))` + inYears + `
FROM river_job
WHERE @matches`

const lockDeadSQL = lockColumnsSQL + `
FROM river_job
WHERE @matches
ORDER BY id
LIMIT @limit
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

// CountDead counts the dead letters that match a filter, among those that were counted before, if
// anything was.
func (s *Store) CountDead(ctx context.Context, filter DeadFilter, before Matching) (m Matching, err error) {
	c, err := s.resolve(ctx, filter)
	if err != nil {
		return m, err
	}
	if before.UpTo != 0 {
		before.addTo(c)
	}
	rows, err := s.db.Query(ctx, c.in(countDeadSQL, 0), c.planned()...)
	if err != nil {
		return m, fmt.Errorf("count dead letters: %w", err)
	}
	m, err = pgx.CollectExactlyOneRow(rows, scanMatching)
	if err != nil {
		return m, fmt.Errorf("count dead letters: %w", err)
	}
	return m, nil
}

// ActOnDead retries or discards the counted dead letters, which are no longer
// listed then. It starts with the oldest and uses many transactions. It returns how
// many it changed. A dead letter whose unique key is held by another job does not
// change.
func (s *Store) ActOnDead(ctx context.Context, order Order, filter DeadFilter, counted Matching) (int, error) {
	if order.Action != Retry && order.Action != Discard {
		return 0, fmt.Errorf("%s dead letters: they can be retried or discarded", order.Action)
	}
	matches, err := s.resolve(ctx, filter)
	if err != nil {
		return 0, err
	}
	counted.addTo(matches)
	order.matched = counted.Jobs
	changed, err := inBatches(order, func(order Order, after int64) ([]Change, error) {
		c := conditions{sql: slices.Clip(matches.sql), args: slices.Clip(matches.args)}
		c.add("id > $$", after)
		return s.actOnDeadBatch(ctx, order, &c)
	})
	if err != nil {
		return changed, fmt.Errorf("%s dead letters: %w", order.Action, err)
	}
	return changed, nil
}

// resolve returns the filter's conditions, which select the dead letters of its group that
// are not recorded yet.
func (s *Store) resolve(ctx context.Context, f DeadFilter) (*conditions, error) {
	if f.Group == "" {
		return f.conditions(nil), nil
	}
	fresh, err := s.unrecorded(ctx)
	return f.conditions(fresh), err
}

func (s *Store) actOnDeadBatch(ctx context.Context, order Order, matches *conditions) (changes []Change, err error) {
	err = pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		found, err := New(tx).lockJobs(ctx, matches.in(lockDeadSQL, batchSize), matches.planned()...)
		if err != nil {
			return err
		}
		if order.Action == Retry {
			changes, err = New(tx).carryOut(ctx, order, nil, found)
			return err
		}
		changes, err = New(tx).discardDead(ctx, order, found)
		return err
	})
	return changes, err
}

func (s *Store) discardDead(ctx context.Context, order Order, found []locked) ([]Change, error) {
	if len(found) == 0 {
		return nil, nil
	}
	changes, ids := make([]Change, len(found)), make([]int64, len(found))
	for i, l := range found {
		changes[i], ids[i] = l.Change, l.ID
	}
	if _, err := s.db.Exec(ctx, discardDeadSQL, ids, order.By); err != nil {
		return nil, err
	}
	return changes, eventstore.New(s.db).Append(ctx, eventstore.Event{Type: eventstore.DeadLettersDiscarded}, entry(order, nil, ids))
}
