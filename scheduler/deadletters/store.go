package deadletters

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/wire"
)

// The two sides of the duty, by the order of the partial indexes
// forge_river_job_dead_new and forge_river_job_second_round alone: whatever the
// planner believes of the table, nothing else gives that order.
const (
	newSQL = `
FROM river_job
WHERE state = 'discarded' AND attempt >= max_attempts AND jsonb_typeof(metadata) = 'object'
  AND (metadata #>> '{forge:dead,attempt}') IS DISTINCT FROM attempt::text
ORDER BY (metadata #>> '{forge:dead,attempt}'), id`

	waitingSQL = `
FROM river_job
WHERE state = 'discarded' AND (metadata #>> '{forge:dead,second_round}') IS NOT NULL`

	waitingOrderSQL = `
ORDER BY (metadata #>> '{forge:dead,second_round}') COLLATE "C"`
)

// What there is to do, by the database's clock. Not EXISTS, which drops the order
// and leaves the planner its choice.
const lookSQL = `
SELECT (SELECT true` + newSQL + ` LIMIT 1) IS NOT NULL,
       coalesce((SELECT metadata #>> '{forge:dead,second_round}'` + waitingSQL + waitingOrderSQL + ` LIMIT 1), ''),
       clock_timestamp()`

// A row that someone else holds is left for the next look.
const unrecordedSQL = `
SELECT id, kind, attempt, finalized_at, coalesce(errors[array_upper(errors, 1)] ->> 'error', ''),
       metadata ? 'forge:second_round'` + newSQL + `
LIMIT $1
FOR NO KEY UPDATE SKIP LOCKED`

const recordSQL = `
UPDATE river_job
SET metadata = metadata || d.mark
FROM unnest($1::bigint[], $2::jsonb[]) AS d (id, mark)
WHERE river_job.id = d.id`

// Whether the mark is of this death, and whether another job holds the unique key,
// which would fail the whole batch.
const dueSQL = `
SELECT id, kind, queue, attempt, coalesce(unique_key, ''),
       attempt >= max_attempts AND (metadata #>> '{forge:dead,attempt}') = attempt::text AND NOT metadata ? 'forge:second_round',
       unique_key IS NOT NULL AND EXISTS (
           SELECT FROM river_job AS other
           WHERE other.unique_key = river_job.unique_key AND other.id <> river_job.id
             AND other.unique_states IS NOT NULL AND river_job_state_in_bitmask(other.unique_states, other.state))` + waitingSQL + `
  AND (metadata #>> '{forge:dead,second_round}') COLLATE "C" <= $1` + waitingOrderSQL + `
LIMIT $2
FOR NO KEY UPDATE SKIP LOCKED`

// The condition on the state is what makes it one round whoever else is at it.
const giveSQL = `
UPDATE river_job
SET state = 'available',
    max_attempts = least(river_job.attempt + g.attempts, 32767),
    finalized_at = NULL,
    scheduled_at = $4,
    metadata = (river_job.metadata - 'forge:dead' - 'cancel_attempted_at') || g.mark
FROM unnest($1::bigint[], $2::int[], $3::jsonb[]) AS g (id, attempts, mark)
WHERE river_job.id = g.id AND river_job.state = 'discarded' AND NOT river_job.metadata ? 'forge:second_round'`

const forgoSQL = `
UPDATE river_job
SET metadata = metadata #- '{forge:dead,second_round}'
WHERE id = ANY ($1::bigint[])`

const notifySQL = `
SELECT pg_notify(current_schema() || '.' || $1, json_build_object('queue', queue)::text)
FROM unnest($2::text[]) AS queue`

// outlook is what a look found.
type outlook struct {
	unrecorded bool
	// next is when the next second round is due, zero: none waits for one.
	next, now time.Time
}

// isDue says whether a second round is due.
func (o outlook) isDue() bool { return !o.next.IsZero() && !o.next.After(o.now) }

func scanOutlook(row pgx.Row) (o outlook, err error) {
	var next string
	if err := row.Scan(&o.unrecorded, &next, &o.now); err != nil {
		return o, fmt.Errorf("look for dead letters: %w", err)
	}
	if next == "" {
		return o, nil
	}
	if o.next, err = jobstore.ParseMarkInstant(next); err != nil {
		o.next = o.now // whoever wrote that: due removes it
	}
	return o, nil
}

// letter is a dead letter that was not recorded yet.
type letter struct {
	id      int64
	kind    string
	attempt int
	diedAt  time.Time
	failure string
	// tried: it had its second round.
	tried bool
}

func unrecorded(ctx context.Context, tx pgx.Tx, limit int) ([]letter, error) {
	rows, err := tx.Query(ctx, unrecordedSQL, limit)
	if err != nil {
		return nil, fmt.Errorf("find new dead letters: %w", err)
	}
	letters, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (l letter, err error) {
		return l, row.Scan(&l.id, &l.kind, &l.attempt, &l.diedAt, &l.failure, &l.tried)
	})
	if err != nil {
		return nil, fmt.Errorf("find new dead letters: %w", err)
	}
	return letters, nil
}

func record(ctx context.Context, tx pgx.Tx, letters []letter, marks []jobstore.DeadMark) error {
	ids, bodies := make([]int64, len(letters)), make([][]byte, len(letters))
	for i, l := range letters {
		body, err := json.Marshal(map[string]jobstore.DeadMark{jobstore.KeyDead: marks[i]})
		if err != nil {
			return fmt.Errorf("encode the mark of job %d: %w", l.id, err)
		}
		ids[i], bodies[i] = l.id, body
	}
	if _, err := tx.Exec(ctx, recordSQL, ids, bodies); err != nil {
		return fmt.Errorf("record dead letters: %w", err)
	}
	return nil
}

// candidate is a dead letter whose second round is due.
type candidate struct {
	id        int64
	kind      string
	queue     string
	attempt   int
	uniqueKey []byte
	// valid: the mark is of this death, and there was no second round.
	valid bool
	// rival: another job holds its unique key.
	rival bool
}

func due(ctx context.Context, tx pgx.Tx, now time.Time, limit int) ([]candidate, error) {
	rows, err := tx.Query(ctx, dueSQL, jobstore.MarkInstant(now), limit)
	if err != nil {
		return nil, fmt.Errorf("find due second rounds: %w", err)
	}
	candidates, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c candidate, err error) {
		return c, row.Scan(&c.id, &c.kind, &c.queue, &c.attempt, &c.uniqueKey, &c.valid, &c.rival)
	})
	if err != nil {
		return nil, fmt.Errorf("find due second rounds: %w", err)
	}
	return candidates, nil
}

func give(ctx context.Context, tx pgx.Tx, now time.Time, granted []grant) error {
	ids, attempts, marks := make([]int64, len(granted)), make([]int, len(granted)), make([][]byte, len(granted))
	for i, g := range granted {
		body, err := json.Marshal(map[string]jobstore.SecondRound{jobstore.KeySecondRound: g.mark})
		if err != nil {
			return fmt.Errorf("encode the second round of job %d: %w", g.id, err)
		}
		ids[i], attempts[i], marks[i] = g.id, g.attempts, body
	}
	if _, err := tx.Exec(ctx, giveSQL, ids, attempts, marks, now); err != nil {
		return fmt.Errorf("give second rounds: %w", err)
	}
	return nil
}

func forgo(ctx context.Context, tx pgx.Tx, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	if _, err := tx.Exec(ctx, forgoSQL, ids); err != nil {
		return fmt.Errorf("forgo second rounds: %w", err)
	}
	return nil
}

func notifyQueues(ctx context.Context, tx pgx.Tx, queues []string) error {
	if _, err := tx.Exec(ctx, notifySQL, wire.RiverInsertChannel, queues); err != nil {
		return fmt.Errorf("notify of available jobs: %w", err)
	}
	return nil
}
