package jobstore

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// The two queries use only the order of the partial indexes forge_river_job_dead_new and
// forge_river_job_second_round. No other plan gives that order, so the planner uses them
// with any statistics.
const (
	newDeadSQL = `
FROM river_job
WHERE forge_unrecorded
ORDER BY (metadata #>> '{forge:dead,attempt}'), id`

	waitingRoundsSQL = `
FROM river_job
WHERE forge_state = 'discarded' AND (metadata #>> '{forge:dead,second_round}') IS NOT NULL`

	waitingRoundsOrderSQL = `
ORDER BY (metadata #>> '{forge:dead,second_round}') COLLATE "C"`
)

// The pending work by the database's clock. EXISTS would drop the order, and then the
// planner could choose another plan.
const pendingDeadSQL = `
SELECT (SELECT true` + newDeadSQL + ` LIMIT 1) IS NOT NULL,
       coalesce((SELECT metadata #>> '{forge:dead,second_round}'` + waitingRoundsSQL + waitingRoundsOrderSQL + ` LIMIT 1), ''),
       clock_timestamp()`

// A row that another transaction has locked is left for the next check.
const lockNewDeadSQL = `
SELECT id, kind, attempt, finalized_at, coalesce(errors[array_upper(errors, 1)] ->> 'error', ''),
       metadata ? 'forge:second_round'` + newDeadSQL + `
LIMIT $1
FOR NO KEY UPDATE SKIP LOCKED`

const markDeadSQL = `
UPDATE river_job
SET metadata = metadata || d.mark
FROM unnest($1::bigint[], $2::jsonb[]) AS d (id, mark)
WHERE river_job.id = d.id`

// Whether the mark belongs to the last attempt, and whether another job has the unique
// key, which would fail the whole batch.
const lockDueRoundsSQL = `
SELECT id, kind, queue, attempt, coalesce(unique_key, ''),
       attempt >= max_attempts AND (metadata #>> '{forge:dead,attempt}') = attempt::text AND NOT metadata ? 'forge:second_round',
       unique_key IS NOT NULL AND EXISTS (
           SELECT FROM river_job AS other
           WHERE other.unique_key = river_job.unique_key AND other.id <> river_job.id
             AND other.unique_states IS NOT NULL AND river_job_state_in_bitmask(other.unique_states, other.state))` + waitingRoundsSQL + `
  AND (metadata #>> '{forge:dead,second_round}') COLLATE "C" <= $1` + waitingRoundsOrderSQL + `
LIMIT $2
FOR NO KEY UPDATE SKIP LOCKED`

// The condition on the state ensures a single round if others change the job at the same
// time.
const grantRoundsSQL = `
UPDATE river_job
SET state = 'available',
    max_attempts = least(river_job.attempt + g.attempts, 32767),
    finalized_at = NULL,
    scheduled_at = $4,
    metadata = (river_job.metadata - 'forge:dead' - 'cancel_attempted_at') || g.mark
FROM unnest($1::bigint[], $2::int[], $3::jsonb[]) AS g (id, attempts, mark)
WHERE river_job.id = g.id AND river_job.state = 'discarded' AND NOT river_job.metadata ? 'forge:second_round'`

const forgoRoundsSQL = `
UPDATE river_job
SET metadata = metadata #- '{forge:dead,second_round}'
WHERE id = ANY ($1::bigint[])`

// PendingDead is the work that dead letters need.
type PendingDead struct {
	// Unrecorded reports whether there is a dead letter without a mark.
	Unrecorded bool
	// Next is when the next second round is due; zero means none. Now is the time of the
	// database's clock.
	Next, Now time.Time
}

// RoundIsDue reports whether a second round is due.
func (p PendingDead) RoundIsDue() bool { return !p.Next.IsZero() && !p.Next.After(p.Now) }

// PendingDead reads which work dead letters need.
func (s *Store) PendingDead(ctx context.Context) (PendingDead, error) {
	return scanPendingDead(s.db.QueryRow(ctx, pendingDeadSQL))
}

// BatchPendingDead adds the statement of PendingDead to a batch.
func BatchPendingDead(batch *pgx.Batch, found func(PendingDead)) {
	batch.Queue(pendingDeadSQL).QueryRow(func(row pgx.Row) error {
		pending, err := scanPendingDead(row)
		if err == nil {
			found(pending)
		}
		return err
	})
}

func scanPendingDead(row pgx.Row) (p PendingDead, err error) {
	var next string
	if err := row.Scan(&p.Unrecorded, &next, &p.Now); err != nil {
		return p, fmt.Errorf("check for dead letters: %w", err)
	}
	if next == "" {
		return p, nil
	}
	if p.Next, err = ParseMarkInstant(next); err != nil {
		p.Next = p.Now // an invalid mark: its round is forgone
	}
	return p, nil
}

// NewDead is a dead letter without a mark.
type NewDead struct {
	ID      int64
	Kind    string
	Attempt int
	DiedAt  time.Time
	Failure string
	// HadSecondRound reports whether the job had its second round.
	HadSecondRound bool
}

// LockNewDead returns at most limit dead letters without a mark, with their rows locked.
func (s *Store) LockNewDead(ctx context.Context, limit int) ([]NewDead, error) {
	found, err := postgres.Collect(ctx, s.db, pgx.RowToStructByPos[NewDead], lockNewDeadSQL, limit)
	if err != nil {
		return nil, fmt.Errorf("find new dead letters: %w", err)
	}
	return found, nil
}

// MarkDead records the marks of dead letters by job id.
func (s *Store) MarkDead(ctx context.Context, marks map[int64]DeadMark) error {
	ids, bodies := make([]int64, 0, len(marks)), make([][]byte, 0, len(marks))
	for id, mark := range marks {
		body, err := json.Marshal(map[string]DeadMark{KeyDead: mark})
		if err != nil {
			return fmt.Errorf("encode the mark of job %d: %w", id, err)
		}
		ids, bodies = append(ids, id), append(bodies, body)
	}
	if _, err := s.db.Exec(ctx, markDeadSQL, ids, bodies); err != nil {
		return fmt.Errorf("record dead letters: %w", err)
	}
	return nil
}

// DueRound is a dead letter whose second round is due.
type DueRound struct {
	ID        int64
	Kind      string
	Queue     string
	Attempt   int
	UniqueKey []byte
	// Valid reports whether the mark belongs to the last attempt and the job had no
	// second round.
	Valid bool
	// UniqueKeyTaken reports whether another job has its unique key.
	UniqueKeyTaken bool
}

// LockDueRounds returns at most limit dead letters whose second round is due, with their
// rows locked.
func (s *Store) LockDueRounds(ctx context.Context, now time.Time, limit int) ([]DueRound, error) {
	found, err := postgres.Collect(ctx, s.db, pgx.RowToStructByPos[DueRound], lockDueRoundsSQL, MarkInstant(now), limit)
	if err != nil {
		return nil, fmt.Errorf("find due second rounds: %w", err)
	}
	return found, nil
}

// GrantedRound is the second round of one job.
type GrantedRound struct {
	DueRound
	// Attempts is how many attempts the round has.
	Attempts int
	Mark     SecondRound
}

// GrantRounds makes the jobs available and notifies the leader of them.
func (s *Store) GrantRounds(ctx context.Context, now time.Time, granted []GrantedRound) error {
	ids, attempts, marks := make([]int64, len(granted)), make([]int, len(granted)), make([][]byte, len(granted))
	queues := make([]string, len(granted))
	for i, g := range granted {
		body, err := json.Marshal(map[string]SecondRound{KeySecondRound: g.Mark})
		if err != nil {
			return fmt.Errorf("encode the second round of job %d: %w", g.ID, err)
		}
		ids[i], attempts[i], marks[i], queues[i] = g.ID, g.Attempts, body, g.Queue
	}
	if _, err := s.db.Exec(ctx, grantRoundsSQL, ids, attempts, marks, now); err != nil {
		return fmt.Errorf("give second rounds: %w", err)
	}
	return s.NotifyAvailable(ctx, queues)
}

// ForgoRounds removes the planned second rounds of dead letters.
func (s *Store) ForgoRounds(ctx context.Context, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	if _, err := s.db.Exec(ctx, forgoRoundsSQL, ids); err != nil {
		return fmt.Errorf("forgo second rounds: %w", err)
	}
	return nil
}
