package jobstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/limitkey"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/internal/wire"
)

// MaxJobPauses is how many pauses of jobs a queue may have. Each claim checks them all.
const MaxJobPauses = 100

// maxKindLength bounds the kind of a selection, in bytes.
const maxKindLength = 200

// ErrManyPauses means that a queue has MaxJobPauses.
var ErrManyPauses = fmt.Errorf("the queue has %d pauses of jobs already", MaxJobPauses)

// SelectionError is what is wrong with a JobSelection.
type SelectionError struct{ text string }

func (e *SelectionError) Error() string { return e.text }

// JobSelection is a part of the jobs of a queue. The zero value is all of them.
type JobSelection struct {
	// Kind is the kind of the jobs; empty: any.
	Kind string `json:"kind,omitempty"`
	// Key is a key of limits such as args.tenant, and Value the value that the jobs have of it,
	// empty for the jobs without the value; an empty Key: any jobs.
	Key   string `json:"key,omitempty"`
	Value string `json:"value,omitempty"`
}

// SelectJobs returns the jobs of a kind that have a value of a key. Both may be empty. keyed is
// a key, = and the value. A name alone is that of an argument: tenant=acme means args.tenant=acme.
// The error is a *SelectionError.
func SelectJobs(kind, keyed string) (JobSelection, error) {
	selection := JobSelection{Kind: kind}
	if len(kind) > maxKindLength {
		return selection, &SelectionError{fmt.Sprintf("a kind of %d bytes; want at most %d", len(kind), maxKindLength)}
	}
	if keyed == "" {
		return selection, nil
	}
	text, value, found := strings.Cut(keyed, "=")
	if !found {
		return selection, &SelectionError{fmt.Sprintf("no value in %q; want KEY=VALUE such as args.tenant=acme", keyed)}
	}
	if !strings.Contains(text, ".") && text != limitkey.Cron && text != "" {
		text = limitkey.Args + "." + text
	}
	key, err := limitkey.Parse(text)
	if err != nil || key.Source == limitkey.Constant {
		return selection, &SelectionError{fmt.Sprintf("%q is no key; want args.NAME, metadata.NAME, tags.NAME or cron, then = and the value", text)}
	}
	selection.Key, selection.Value = key.String(), value
	return selection, nil
}

// All reports whether the selection is of all jobs.
func (s JobSelection) All() bool { return s == JobSelection{} }

// Keyed is the key, = and the value, as SelectJobs reads them; empty without a key.
func (s JobSelection) Keyed() string {
	if s.Key == "" {
		return ""
	}
	return s.Key + "=" + s.Value
}

// Flags are the flags of forge queue pause and resume for the selection, with a space before each.
func (s JobSelection) Flags() string {
	flags := ""
	if s.Kind != "" {
		flags += " --kind " + s.Kind
	}
	if s.Key != "" {
		flags += " --key '" + strings.ReplaceAll(s.Keyed(), "'", `'\''`) + "'"
	}
	return flags
}

// String describes the selection.
func (s JobSelection) String() string {
	var parts []string
	if s.Kind != "" {
		parts = append(parts, "kind "+s.Kind)
	}
	if s.Key != "" {
		parts = append(parts, s.Keyed())
	}
	return strings.Join(parts, ", ")
}

// JobPause is a pause of a part of the jobs of a queue.
type JobPause struct {
	JobSelection
	QueuePause
}

const (
	// pauseLastsSQL is true for a pause p of jobs that has not ended.
	pauseLastsSQL = `(p.until IS NULL OR p.until > clock_timestamp())`

	// pauseHoldsSQL is true for a pause p of jobs that holds a row of river_job back.
	pauseHoldsSQL = `p.queue = river_job.queue AND ` + pauseLastsSQL + ` AND (p.kind = '' OR p.kind = river_job.kind)
      AND (p.key = '' OR p.value = forge_limit_key(p.key_source, p.key_path, river_job.args, river_job.metadata, river_job.tags))`

	// jobPausedSQL is true for a row of river_job that a pause of jobs holds back.
	jobPausedSQL = `EXISTS (SELECT FROM forge_pauses AS p WHERE ` + pauseHoldsSQL + `)`

	jobPauseColumns = `p.kind, p.key, p.value, p.paused_at, p.paused_by, p.reason, p.until`
)

const (
	// The leader may not have deleted the row of a pause that has ended.
	pauseJobsSQL = `
INSERT INTO forge_pauses AS p (queue, kind, key, key_source, key_path, value, paused_at, paused_by, reason, until)
SELECT $1, $2, $3, $4, $5, $6, now, $7, $8, now + $9::interval
FROM clock_timestamp() AS now
ON CONFLICT (queue, kind, key, value) DO UPDATE
SET paused_at = excluded.paused_at, paused_by = excluded.paused_by, reason = excluded.reason, until = excluded.until
WHERE NOT ` + pauseLastsSQL
	resumeJobsSQL = `
DELETE FROM forge_pauses WHERE queue = $1 AND kind = $2 AND key = $3 AND value = $4`
	jobPausesSQL = `
SELECT ` + jobPauseColumns + `
FROM forge_pauses AS p
WHERE p.queue = $1 AND ` + pauseLastsSQL + `
ORDER BY p.paused_at, p.kind, p.key, p.value
LIMIT $2`
	pausingQueuesSQL = `
SELECT DISTINCT p.queue FROM forge_pauses AS p WHERE ` + pauseLastsSQL
	pausedJobsSQL = `
SELECT id FROM river_job WHERE id = ANY ($1::bigint[]) AND ` + jobPausedSQL
	jobPauseSQL = `
SELECT ` + jobPauseColumns + `
FROM river_job JOIN forge_pauses AS p ON ` + pauseHoldsSQL + `
WHERE river_job.id = $1
ORDER BY p.paused_at
LIMIT 1`
	// A pause that another transaction has locked, for example to replace it, is left for the next
	// call.
	endJobPausesSQL = `
DELETE FROM forge_pauses
WHERE ctid = ANY (ARRAY (SELECT ctid FROM forge_pauses WHERE until <= $1 LIMIT $2 FOR UPDATE SKIP LOCKED))
RETURNING queue, kind, key, value`

	// The leader reads the pauses again.
	notifyLeaderSQL = `SELECT pg_notify(current_schema() || '.' || $1, '')`
	// The leader reads the queue from the beginning: it has read past the paused jobs.
	notifyFromTopSQL = `
SELECT pg_notify(current_schema() || '.' || $1, json_build_object('queue', $2::text, 'from', to_timestamp(0))::text)`
)

// pauseJobs pauses a part of the jobs of a queue.
func (s *Store) pauseJobs(ctx context.Context, queue string, order QueuePauseOrder, lasts *time.Duration) (pause QueuePause, changed bool, err error) {
	var source *string
	var path []string
	if order.Jobs.Key != "" {
		key, err := limitkey.Parse(order.Jobs.Key)
		if err != nil {
			return pause, false, &SelectionError{err.Error()}
		}
		read, names := keyColumns(key)
		source, path = &read, names
	}
	return s.changeJobPause(ctx, queue, order, "pause", func(tx pgx.Tx, of JobSelection) (bool, error) {
		pauses, err := New(tx).JobPauses(ctx, queue)
		if err != nil {
			return false, err
		}
		if len(pauses) >= MaxJobPauses {
			return false, ErrManyPauses
		}
		tag, err := tx.Exec(ctx, pauseJobsSQL, queue, of.Kind, of.Key, source, path, of.Value, order.By, order.Reason, lasts)
		return tag.RowsAffected() > 0, err
	})
}

// resumeJobs ends the pause of a part of the jobs of a queue.
func (s *Store) resumeJobs(ctx context.Context, queue string, order QueuePauseOrder) (pause QueuePause, changed bool, err error) {
	return s.changeJobPause(ctx, queue, order, "resume", func(tx pgx.Tx, of JobSelection) (bool, error) {
		tag, err := tx.Exec(ctx, resumeJobsSQL, queue, of.Kind, of.Key, of.Value)
		return tag.RowsAffected() > 0, err
	})
}

// changeJobPause pauses or resumes a part of the jobs of a queue, in a transaction that notifies
// the leader. change gets the selection with the value as it is stored.
func (s *Store) changeJobPause(ctx context.Context, queue string, order QueuePauseOrder, action string, change func(tx pgx.Tx, of JobSelection) (bool, error)) (pause QueuePause, changed bool, err error) {
	err = pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		if known, err := New(tx).knows(ctx, queue); err != nil {
			return err
		} else if !known {
			return ErrNoQueue
		}
		if err := tx.QueryRow(ctx, `SELECT forge_short_key($1)`, order.Jobs.Value).Scan(&order.Jobs.Value); err != nil {
			return err
		}
		if changed, err = change(tx, order.Jobs); err != nil {
			return err
		}
		pauses, err := New(tx).JobPauses(ctx, queue)
		if err != nil {
			return err
		}
		for _, p := range pauses {
			if p.JobSelection == order.Jobs {
				pause = p.QueuePause
			}
		}
		if !changed {
			return postgres.Confirm(ctx, tx)
		}
		return New(tx).announceJobPause(ctx, queue, order, pause)
	})
	if err != nil {
		return QueuePause{}, false, fmt.Errorf("%s jobs of queue %s: %w", action, queue, err)
	}
	return pause, changed, nil
}

// announceJobPause notifies the leader and records the event.
func (s *Store) announceJobPause(ctx context.Context, queue string, order QueuePauseOrder, pause QueuePause) error {
	if _, err := s.db.Exec(ctx, notifyLeaderSQL, wire.CronChannel); err != nil {
		return fmt.Errorf("notify the leader: %w", err)
	}
	if pause.PausedAt.IsZero() {
		if _, err := s.db.Exec(ctx, notifyFromTopSQL, wire.RiverInsertChannel, queue); err != nil {
			return fmt.Errorf("notify the leader: %w", err)
		}
	}
	return s.recordPause(ctx, queue, order, pause)
}

// JobPauses returns the pauses of a part of the jobs of a queue, oldest first.
func (s *Store) JobPauses(ctx context.Context, queue string) ([]JobPause, error) {
	return postgres.Select(ctx, s.db, "read the pauses of jobs", scanJobPause, jobPausesSQL, queue, MaxJobPauses)
}

func scanJobPause(row pgx.CollectableRow) (p JobPause, err error) {
	var until *time.Time
	err = row.Scan(&p.Kind, &p.Key, &p.Value, &p.PausedAt, &p.PausedBy, &p.PauseReason, &until)
	p.PausedAt, p.PausedUntil = p.PausedAt.UTC(), postgres.TimeOrZero(until)
	return p, err
}

// JobPause returns the oldest pause that holds a job back, or nil.
func (s *Store) JobPause(ctx context.Context, id int64) (*JobPause, error) {
	pauses, err := postgres.Select(ctx, s.db, "read the pause of a job", scanJobPause, jobPauseSQL, id)
	if err != nil || len(pauses) == 0 {
		return nil, err
	}
	return &pauses[0], nil
}

// PausingQueues returns the queues of which a part of the jobs is paused.
func (s *Store) PausingQueues(ctx context.Context) ([]string, error) {
	return postgres.Select(ctx, s.db, "read the queues with paused jobs", pgx.RowTo[string], pausingQueuesSQL)
}

// PausedJobs returns those of the jobs that a pause of jobs holds back.
func (s *Store) PausedJobs(ctx context.Context, ids []int64) ([]int64, error) {
	return postgres.Select(ctx, s.db, "read which jobs are paused", pgx.RowTo[int64], pausedJobsSQL, ids)
}

// endJobPauses resumes at most limit parts of queues whose pauses have ended at now.
func (s *Store) endJobPauses(ctx context.Context, now time.Time, limit int) error {
	type ended struct{ Queue, Kind, Key, Value string }
	parts, err := postgres.Select(ctx, s.db, "end the pauses of jobs", pgx.RowToStructByPos[ended], endJobPausesSQL, now, limit)
	if err != nil {
		return err
	}
	for _, p := range parts {
		order := QueuePauseOrder{Reason: pauseEnded, Jobs: JobSelection{Kind: p.Kind, Key: p.Key, Value: p.Value}}
		if err := s.announceJobPause(ctx, p.Queue, order, QueuePause{}); err != nil {
			return fmt.Errorf("end a pause of jobs of queue %s: %w", p.Queue, err)
		}
	}
	return nil
}
