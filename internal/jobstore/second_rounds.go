package jobstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
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
SELECT id, kind, attempt, ` + endedAtSQL + `, coalesce(errors[array_upper(errors, 1)] ->> 'error', ''),
       metadata ? 'forge:second_round'` + newDeadSQL + `
LIMIT $1
FOR NO KEY UPDATE SKIP LOCKED`

const markDeadSQL = `
UPDATE river_job
SET metadata = metadata || d.mark
FROM unnest($1::bigint[], $2::jsonb[]) AS d (id, mark)
WHERE river_job.id = d.id`

// Whether the mark belongs to the last attempt, whether another job has the unique
// key, which would fail the whole batch, and whether the job has given up its own.
const lockDueRoundsSQL = `
SELECT id, kind, queue, attempt, coalesce(unique_key, ''),
       attempt >= max_attempts AND (metadata #>> '{forge:dead,attempt}') = attempt::text AND NOT metadata ? 'forge:second_round',
       unique_key IS NOT NULL AND EXISTS (
           SELECT FROM river_job AS other
           WHERE other.unique_key = river_job.unique_key AND other.id <> river_job.id
             AND other.unique_states IS NOT NULL AND river_job_state_in_bitmask(other.unique_states, other.state)),
       ` + takesKeySQL + waitingRoundsSQL + `
  AND (metadata #>> '{forge:dead,second_round}') COLLATE "C" <= $1` + waitingRoundsOrderSQL + `
LIMIT $2
FOR NO KEY UPDATE SKIP LOCKED`

// The trial of a second round takes the unique keys of the jobs. A wait for a lock fails it.
const trialSQL = `UPDATE river_job SET state = 'available', finalized_at = NULL WHERE id = ANY ($1::bigint[])`

const postponeRoundsSQL = `
UPDATE river_job
SET metadata = jsonb_set(metadata, '{forge:dead,second_round}', to_jsonb(p.due))
FROM unnest($1::bigint[], $2::text[]) AS p (id, due)
WHERE river_job.id = p.id`

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
	// TakesKey reports whether the job has given up its unique key, and takes it in its round.
	TakesKey bool
}

// LockDueRounds returns at most limit dead letters whose second round is due, with their
// rows locked. It leaves those whose unique key a transaction has taken that is still open, and
// postpones their rounds by half a second, so that they delay no other.
func (s *Store) LockDueRounds(ctx context.Context, now time.Time, limit int) ([]DueRound, error) {
	found, err := postgres.Collect(ctx, s.db, pgx.RowToStructByPos[DueRound], lockDueRoundsSQL, MarkInstant(now), limit)
	if err != nil {
		return nil, fmt.Errorf("find due second rounds: %w", err)
	}
	return s.leaveBusyKeys(ctx, now, found)
}

// leaveBusyKeys returns the rounds whose unique keys are free, and postpones the others. If a key
// is busy, it tries the jobs one by one for a short time, and postpones those that remain, too.
func (s *Store) leaveBusyKeys(ctx context.Context, now time.Time, found []DueRound) ([]DueRound, error) {
	var taking, firsts []int64 // firsts has one job of each key
	known := map[string]bool{}
	for _, f := range found {
		if !f.Valid || !f.TakesKey || f.UniqueKeyTaken {
			continue
		}
		taking = append(taking, f.ID)
		if key := string(f.UniqueKey); !known[key] {
			known[key], firsts = true, append(firsts, f.ID)
		}
	}
	if len(firsts) == 0 {
		return found, nil
	}
	if err := s.tryRounds(ctx, allKeysTimeout, firsts); !IsKeyBusy(err) {
		return found, err
	}
	left, err := tryKeys(taking, takingKeys, func(id int64) error { return s.tryRounds(ctx, oneKeyTimeout, []int64{id}) })
	if err != nil {
		return nil, err
	}
	due := make([]string, len(left))
	for i := range left {
		due[i] = MarkInstant(now.Add(keyWait + time.Duration(i)*time.Microsecond))
	}
	if _, err := s.db.Exec(ctx, postponeRoundsSQL, left, due); err != nil {
		return nil, fmt.Errorf("postpone second rounds: %w", err)
	}
	return slices.DeleteFunc(found, func(f DueRound) bool { return slices.Contains(left, f.ID) }), nil
}

// errTried undoes a trial.
var errTried = errors.New("tried")

// tryRounds makes jobs available, and undoes that. The error is IsKeyBusy if that has to wait for
// another transaction for longer than a timeout.
func (s *Store) tryRounds(ctx context.Context, timeout string, ids []int64) error {
	err := pgx.BeginFunc(ctx, s.db, func(savepoint pgx.Tx) error {
		if _, err := savepoint.Exec(ctx, lockTimeoutSQL, timeout); err != nil {
			return err
		}
		if _, err := savepoint.Exec(ctx, trialSQL, ids); err != nil {
			return err
		}
		return errTried
	})
	if errors.Is(err, errTried) {
		return nil
	}
	return fmt.Errorf("try second rounds: %w", err)
}

// GrantedRound is the second round of one job.
type GrantedRound struct {
	DueRound
	// Attempts is how many attempts the round has.
	Attempts int
	Mark     SecondRound
}

// GrantRounds makes the jobs available and notifies the leader of them. It fails if a unique key
// that was free for LockDueRounds is busy now.
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
	if _, err := s.db.Exec(ctx, lockTimeoutSQL, allKeysTimeout); err != nil {
		return fmt.Errorf("set the lock timeout: %w", err)
	}
	if _, err := s.db.Exec(ctx, grantRoundsSQL, ids, attempts, marks, now); err != nil {
		return fmt.Errorf("give second rounds: %w", err)
	}
	if _, err := s.db.Exec(ctx, noLockTimeoutSQL); err != nil {
		return fmt.Errorf("end the lock timeout: %w", err)
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
