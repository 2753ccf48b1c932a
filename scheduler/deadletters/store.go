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

// The two queries use only the order of the partial indexes forge_river_job_dead_new and
// forge_river_job_second_round. No other plan gives that order, so the planner uses them
// with any statistics.
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

// The pending work by the database's clock. EXISTS would drop the order, and then the
// planner could choose another plan.
const checkSQL = `
SELECT (SELECT true` + newSQL + ` LIMIT 1) IS NOT NULL,
       coalesce((SELECT metadata #>> '{forge:dead,second_round}'` + waitingSQL + waitingOrderSQL + ` LIMIT 1), ''),
       clock_timestamp()`

// A row that another transaction has locked is left for the next check.
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

// Whether the mark belongs to the last attempt, and whether another job has the unique
// key, which would fail the whole batch.
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

// The condition on the state ensures a single round if others change the job at the same
// time.
const grantSQL = `
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

// pendingWork is the result of a check.
type pendingWork struct {
	unrecorded bool
	// next is when the next second round is due; zero means none.
	next, now time.Time
}

// isDue reports whether a second round is due.
func (o pendingWork) isDue() bool { return !o.next.IsZero() && !o.next.After(o.now) }

func scanPendingWork(row pgx.Row) (o pendingWork, err error) {
	var next string
	if err := row.Scan(&o.unrecorded, &next, &o.now); err != nil {
		return o, fmt.Errorf("check for dead letters: %w", err)
	}
	if next == "" {
		return o, nil
	}
	if o.next, err = jobstore.ParseMarkInstant(next); err != nil {
		o.next = o.now // an invalid mark: grantRounds removes it
	}
	return o, nil
}

// deadLetter is a dead letter that is not recorded yet.
type deadLetter struct {
	id      int64
	kind    string
	attempt int
	diedAt  time.Time
	failure string
	// hadSecondRound reports whether the job had its second round.
	hadSecondRound bool
}

func unrecorded(ctx context.Context, tx pgx.Tx, limit int) ([]deadLetter, error) {
	rows, err := tx.Query(ctx, unrecordedSQL, limit)
	if err != nil {
		return nil, fmt.Errorf("find new dead letters: %w", err)
	}
	deadLetters, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (l deadLetter, err error) {
		return l, row.Scan(&l.id, &l.kind, &l.attempt, &l.diedAt, &l.failure, &l.hadSecondRound)
	})
	if err != nil {
		return nil, fmt.Errorf("find new dead letters: %w", err)
	}
	return deadLetters, nil
}

func record(ctx context.Context, tx pgx.Tx, deadLetters []deadLetter, marks []jobstore.DeadMark) error {
	ids, bodies := make([]int64, len(deadLetters)), make([][]byte, len(deadLetters))
	for i, l := range deadLetters {
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
	// valid reports whether the mark belongs to the last attempt and the job had no
	// second round.
	valid bool
	// uniqueKeyTaken reports whether another job has its unique key.
	uniqueKeyTaken bool
}

func dueCandidates(ctx context.Context, tx pgx.Tx, now time.Time, limit int) ([]candidate, error) {
	rows, err := tx.Query(ctx, dueSQL, jobstore.MarkInstant(now), limit)
	if err != nil {
		return nil, fmt.Errorf("find due second rounds: %w", err)
	}
	candidates, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c candidate, err error) {
		return c, row.Scan(&c.id, &c.kind, &c.queue, &c.attempt, &c.uniqueKey, &c.valid, &c.uniqueKeyTaken)
	})
	if err != nil {
		return nil, fmt.Errorf("find due second rounds: %w", err)
	}
	return candidates, nil
}

func grantRounds(ctx context.Context, tx pgx.Tx, now time.Time, granted []grant) error {
	ids, attempts, marks := make([]int64, len(granted)), make([]int, len(granted)), make([][]byte, len(granted))
	for i, g := range granted {
		body, err := json.Marshal(map[string]jobstore.SecondRound{jobstore.KeySecondRound: g.mark})
		if err != nil {
			return fmt.Errorf("encode the second round of job %d: %w", g.id, err)
		}
		ids[i], attempts[i], marks[i] = g.id, g.attempts, body
	}
	if _, err := tx.Exec(ctx, grantSQL, ids, attempts, marks, now); err != nil {
		return fmt.Errorf("give second rounds: %w", err)
	}
	return nil
}

func forgoRounds(ctx context.Context, tx pgx.Tx, ids []int64) error {
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
