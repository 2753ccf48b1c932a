package jobstore

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/wire"
)

// batchSize is the number of jobs that ActOnAll changes in one transaction: claims
// and results of the same jobs wait for it.
const batchSize = 500

// The query checks whether another job holds the unique key, so that one such job
// does not fail the whole batch.
const lockColumnsSQL = `
SELECT id, kind, queue, state::text, coalesce(unique_key, ''),
       unique_key IS NOT NULL AND EXISTS (
           SELECT FROM river_job AS other
           WHERE other.unique_key = river_job.unique_key AND other.id <> river_job.id
             AND other.unique_states IS NOT NULL AND river_job_state_in_bitmask(other.unique_states, other.state))`

const lockSQL = lockColumnsSQL + `
FROM river_job`

const lockByIDSQL = lockSQL + `
WHERE id = ANY ($1::bigint[])
ORDER BY id
FOR NO KEY UPDATE`

const countMatchesSQL = `
SELECT count(*), coalesce(max(id), 0), ` + boundTime + `greatest(now(), max(finalized_at))` + inYears + `
FROM (SELECT id, finalized_at FROM river_job
      WHERE @matches
      LIMIT nullif(@limit, 0)) AS counted`

const lockMatchesSQL = lockSQL + `
WHERE @matches
ORDER BY id
LIMIT @limit
FOR NO KEY UPDATE`

// A running job is only marked, as River does it: its node ends it, and the mark
// prevents that it runs again.
const cancelSQL = `
UPDATE river_job
SET state = CASE WHEN state = 'running' THEN state ELSE 'cancelled' END,
    finalized_at = CASE WHEN state = 'running' THEN finalized_at ELSE now() END,
    metadata = jsonb_set(metadata, '{cancel_attempted_at}', to_jsonb(now()), true)
WHERE id = ANY ($1::bigint[])
RETURNING id, state::text`

// The retry adds an attempt if all were used, and removes an earlier request to
// cancel, which was for an earlier attempt. A plain success is recorded before its
// row is reused for the next attempt. It replaces the record of an interrupted or
// snoozed run with the same number.
const retrySQL = `
UPDATE river_job
SET state = 'available',
    max_attempts = CASE WHEN attempt >= max_attempts THEN attempt + 1 ELSE max_attempts END,
    finalized_at = NULL,
    scheduled_at = now(),
    metadata = CASE WHEN state = 'completed' AND attempted_at IS NOT NULL
        THEN jsonb_build_object('forge:attempt:' || attempt, jsonb_build_object(
            'attempt', attempt, 'outcome', 'completed', 'started_at', ` + attemptedAtSQL + `,
            'node_id', regexp_replace(coalesce(attempted_by[array_upper(attempted_by, 1)], ''), '-[^-]*$', ''),
            'duration_ms', greatest(0, 1000 * extract(epoch FROM ` + finalizedAtSQL + ` - ` + attemptedAtSQL + `))))
        ELSE '{}' END || (metadata - 'cancel_attempted_at' - CASE
            WHEN metadata #>> ARRAY['forge:attempt:' || attempt, 'outcome'] IN ('interrupted', 'snoozed')
            THEN 'forge:attempt:' || attempt ELSE '' END)
WHERE id = ANY ($1::bigint[])
RETURNING id, state::text`

const discardSQL = `
UPDATE river_job
SET state = 'discarded', finalized_at = now()
WHERE id = ANY ($1::bigint[])
RETURNING id, state::text`

const notifyCancelledSQL = `
SELECT pg_notify(current_schema() || '.' || $1, json_build_object('action', 'cancel', 'job_id', id, 'queue', queue)::text)
FROM unnest($2::bigint[], $3::text[]) AS job (id, queue)`

// Matching identifies the jobs that ActOnAll changes.
type Matching struct {
	Jobs int64
	// UpTo is the newest id, and AsOf the time of the count: jobs that were added, or that
	// ended, later are not included.
	UpTo int64
	AsOf time.Time
}

// Among returns the jobs that were also counted before, if anything was.
func (m Matching) Among(before Matching) Matching {
	if before.UpTo != 0 {
		m.UpTo = min(m.UpTo, before.UpTo)
	}
	if !before.AsOf.IsZero() {
		m.AsOf = before.AsOf
	}
	return m
}

// addTo adds the conditions that a job was counted.
func (m Matching) addTo(c *conditions) {
	c.add("id <= $$", m.UpTo)
	if !m.AsOf.IsZero() {
		c.add("(finalized_at IS NULL OR "+finalizedAtSQL+" <= $$)", m.AsOf)
	}
}

func scanMatching(row pgx.CollectableRow) (m Matching, err error) {
	return m, row.Scan(&m.Jobs, &m.UpTo, &m.AsOf)
}

// CountMatching counts the jobs that match a filter and that an action can change, among those
// that were counted before, if anything was. It ignores the filter's BeforeID. With a Limit it
// stops counting at the limit, and UpTo is not usable.
func (s *Store) CountMatching(ctx context.Context, action Action, filter Filter, before Matching) (Matching, error) {
	c := matches(action, filter)
	if before.UpTo != 0 {
		before.addTo(c)
	}
	rows, err := s.db.Query(ctx, c.in(countMatchesSQL, filter.Limit), c.planned()...)
	if err != nil {
		return Matching{}, fmt.Errorf("count jobs to %s: %w", action, err)
	}
	matching, err := pgx.CollectExactlyOneRow(rows, scanMatching)
	if err != nil {
		return Matching{}, fmt.Errorf("count jobs to %s: %w", action, err)
	}
	return matching, nil
}

// Act carries out an order on the jobs with these ids, and returns the change of
// each, in order. Jobs that the action does not apply to do not change.
func (s *Store) Act(ctx context.Context, order Order, ids []int64) ([]Change, error) {
	byID := map[int64]Change{}
	err := pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		found, err := New(tx).lockJobs(ctx, lockByIDSQL, ids)
		if err != nil {
			return err
		}
		changes, err := New(tx).carryOut(ctx, order, nil, found)
		for _, change := range changes {
			byID[change.ID] = change
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s jobs: %w", order.Action, err)
	}
	changes := make([]Change, len(ids))
	for i, id := range ids {
		changes[i] = Change{ID: id, Missing: true}
		if change, ok := byID[id]; ok {
			changes[i] = change
		}
	}
	return changes, nil
}

// ActOnAll carries out an order on the counted jobs, the oldest first, in many
// transactions, and returns how many it changed.
func (s *Store) ActOnAll(ctx context.Context, order Order, filter Filter, counted Matching) (int, error) {
	order.matched = counted.Jobs
	changed, err := inBatches(order, func(order Order, after int64) ([]Change, error) {
		return s.actOnBatch(ctx, order, filter, after, counted)
	})
	if err != nil {
		return changed, fmt.Errorf("%s jobs: %w", order.Action, err)
	}
	return changed, nil
}

// inBatches calls act for one batch after another, each after the last id of the
// previous one, and counts the changed jobs.
func inBatches(order Order, act func(order Order, after int64) ([]Change, error)) (changed int, err error) {
	var after int64
	order.part = 1
	for seen := 0; ; {
		batch, err := act(order, after)
		if err != nil {
			return changed, err
		}
		before := changed
		for _, change := range batch {
			if change.Refused == "" {
				changed++
			}
			after = change.ID
		}
		if seen += len(batch); changed > before {
			order.part++
		}
		if order.Progress != nil {
			order.Progress(seen)
		}
		if len(batch) < batchSize {
			return changed, nil
		}
	}
}

// matches returns the conditions on the jobs that match a filter and that an action can
// change.
func matches(action Action, filter Filter) *conditions {
	c := &conditions{}
	c.add(amongStates(action.statesOf(filter)))
	filter.State = ""
	c.addExact(filter)
	c.addLossy(filter)
	c.addOthers(filter.Where)
	return c
}

func (s *Store) actOnBatch(ctx context.Context, order Order, filter Filter, after int64, counted Matching) (changes []Change, err error) {
	err = pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		c := matches(order.Action, filter)
		c.add("id > $$", after)
		counted.addTo(c)
		found, err := New(tx).lockJobs(ctx, c.in(lockMatchesSQL, batchSize), c.planned()...)
		if err != nil {
			return err
		}
		changes, err = New(tx).carryOut(ctx, order, &filter, found)
		return err
	})
	return changes, err
}

// locked is a job as it was read, with its row locked.
type locked struct {
	Change

	uniqueKey []byte
	// rival is whether another job holds its unique key.
	rival bool
}

func (s *Store) lockJobs(ctx context.Context, sql string, args ...any) ([]locked, error) {
	rows, err := s.db.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (l locked, err error) {
		err = row.Scan(&l.ID, &l.Kind, &l.Queue, &l.Was, &l.uniqueKey, &l.rival)
		l.State = l.Was
		return l, err
	})
}

// carryOut changes the jobs that can be changed and writes the event log.
func (s *Store) carryOut(ctx context.Context, order Order, filter *Filter, found []locked) ([]Change, error) {
	changes := decide(order.Action, found)
	ids := accepted(changes)
	if len(ids) == 0 {
		return changes, nil
	}
	change := s.update
	if order.Action == Retry {
		change = s.retry
	}
	states, err := change(ctx, order.Action, ids)
	if err != nil {
		return nil, err
	}
	for i := range changes {
		if state, ok := states[changes[i].ID]; ok {
			changes[i].State = state
		} else if changes[i].Refused == "" {
			changes[i].Refused = keyBusy
		}
	}
	if ids = accepted(changes); len(ids) == 0 {
		return changes, nil
	}
	if err := s.notify(ctx, order.Action, changes); err != nil {
		return nil, err
	}
	return changes, eventstore.New(s.db).Append(ctx, eventstore.Event{Type: order.Action.event()}, entry(order, filter, ids))
}

// accepted returns the jobs that the action is taken on.
func accepted(changes []Change) (ids []int64) {
	for _, change := range changes {
		if change.Refused == "" {
			ids = append(ids, change.ID)
		}
	}
	return ids
}

// keyBusy is why a job is not retried that retry leaves.
const keyBusy = "its unique key is not free: another transaction has inserted a job with it and has not ended, or has just ended"

// handKeysTimeout bounds the wait for the unique keys of jobs that are retried by hand, and
// takingKeysByHand is how long they are retried one by one after that.
const (
	handKeysTimeout  = "1s"
	takingKeysByHand = 5 * time.Second
)

// retry is update for retries in a transaction. It leaves the jobs whose unique keys another
// transaction has taken, and does not wait long for it. Their rows are locked.
func (s *Store) retry(ctx context.Context, action Action, ids []int64) (map[int64]string, error) {
	states, err := s.updateWithin(ctx, handKeysTimeout, action, ids)
	if !IsKeyBusy(err) {
		return states, err
	}
	states = make(map[int64]string, len(ids))
	_, err = tryKeys(ids, takingKeysByHand, func(id int64) error {
		one, err := s.updateWithin(ctx, oneKeyTimeout, action, []int64{id})
		maps.Copy(states, one)
		return err
	})
	return states, err
}

// updateWithin is update in a savepoint, with a limit on the wait for other transactions.
func (s *Store) updateWithin(ctx context.Context, timeout string, action Action, ids []int64) (states map[int64]string, err error) {
	err = pgx.BeginFunc(ctx, s.db, func(savepoint pgx.Tx) error {
		if _, err := savepoint.Exec(ctx, lockTimeoutSQL, timeout); err != nil {
			return err
		}
		if states, err = New(savepoint).update(ctx, action, ids); err != nil {
			return err
		}
		_, err = savepoint.Exec(ctx, noLockTimeoutSQL)
		return err
	})
	return states, err
}

func (s *Store) update(ctx context.Context, action Action, ids []int64) (map[int64]string, error) {
	rows, err := s.db.Query(ctx, map[Action]string{Cancel: cancelSQL, Retry: retrySQL, Discard: discardSQL}[action], ids)
	if err != nil {
		return nil, err
	}
	return collectStates(rows)
}

// notify notifies, at commit, the nodes that run cancelled jobs, and the leader
// that assigns jobs that are available again.
func (s *Store) notify(ctx context.Context, action Action, changes []Change) error {
	var ids []int64
	var queues, available []string
	for _, change := range changes {
		switch {
		case change.Refused != "":
		case action == Cancel && change.State == stateRunning:
			ids, queues = append(ids, change.ID), append(queues, change.Queue)
		case action == Retry:
			available = append(available, change.Queue)
		}
	}
	if len(ids) > 0 {
		if _, err := s.db.Exec(ctx, notifyCancelledSQL, wire.RiverControlChannel, ids, queues); err != nil {
			return fmt.Errorf("notify nodes: %w", err)
		}
	}
	return s.NotifyAvailable(ctx, available)
}
