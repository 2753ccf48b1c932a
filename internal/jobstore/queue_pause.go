package jobstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/internal/wire"
)

// MaxPause is the longest time after which a pause ends by itself.
const MaxPause = 366 * 24 * time.Hour

// ErrPauseSpan means that a pause should last no time, or longer than MaxPause.
var ErrPauseSpan = errors.New("a pause lasts from a second to 366 days")

// QueuePause describes the pause of a queue. Of a pause by a River client of another program,
// only PausedAt is known.
type QueuePause struct {
	// PausedAt is zero while the queue is not paused.
	PausedAt time.Time `json:"paused_at,omitzero"`
	// PausedBy is who paused the queue, if that is known, and PauseReason why.
	PausedBy    string `json:"paused_by,omitempty"`
	PauseReason string `json:"pause_reason,omitempty"`
	// PausedUntil is when the leader resumes the queue; zero: nobody does so.
	PausedUntil time.Time `json:"paused_until,omitzero"`
}

// QueuePauseOrder is a request to pause or to resume a queue.
type QueuePauseOrder struct {
	// By is who requests it, Reason why.
	By, Reason string
	// For is how long a pause lasts; zero: until the queue is resumed.
	For time.Duration
	// Jobs is the part of the jobs that is paused or resumed; zero: the queue.
	Jobs JobSelection
}

// pauseEnded is the reason of a resumption by the leader.
const pauseEnded = "the pause ended"

// pauseSQL is the facts about the pause of a row r of river_queue, which are in its metadata.
// Those of an earlier pause do not count: a River client that resumes a queue leaves them there.
const pauseSQL = `CASE WHEN r.metadata #> '{forge:pause,at}' = to_jsonb(extract(epoch FROM r.paused_at)) THEN r.metadata -> 'forge:pause' END`

// pauseEndSQL is when the pause of a row r of river_queue ends, in seconds since 1970. Numbers
// that are no time end it at once, or never: other programs can write the metadata.
const pauseEndSQL = `CASE WHEN jsonb_typeof(` + pauseSQL + ` -> 'until') = 'number' THEN least(greatest((r.metadata #> '{forge:pause,until}')::numeric, 0), 1e12) END`

const knownQueueSQL = `
SELECT EXISTS (SELECT FROM river_queue WHERE name = $1)
    OR EXISTS (SELECT FROM forge_nodes WHERE queues ? $1)
    OR EXISTS (SELECT FROM forge_limits WHERE scope = 'queue' AND name = $1)`

// The planner does not know which queues have jobs, and could read all jobs of the others.
const (
	byIndexSQL    = `SET LOCAL enable_seqscan = off`
	queueOfJobSQL = `SELECT EXISTS (SELECT FROM river_job WHERE queue = $1)`
	byAnyPlanSQL  = `SET LOCAL enable_seqscan TO DEFAULT`
)

const pausedQueueSQL = `SELECT r.paused_at, ` + pauseSQL + ` FROM river_queue AS r WHERE r.name = $1`

// A queue that no node has worked yet has no row. The leader may not have resumed a queue whose
// pause has ended.
const pauseQueueSQL = `
INSERT INTO river_queue AS r (name, paused_at, updated_at, metadata)
SELECT $1, now, now, jsonb_build_object('forge:pause', jsonb_strip_nulls(jsonb_build_object(
           'at', extract(epoch FROM now), 'by', nullif($2, ''), 'reason', nullif($3, ''), 'until', extract(epoch FROM now + $4::interval))))
FROM clock_timestamp() AS now
ON CONFLICT (name) DO UPDATE
SET paused_at = excluded.paused_at, updated_at = excluded.updated_at, metadata = r.metadata || excluded.metadata
WHERE r.paused_at IS NULL OR ` + pauseEndSQL + ` <= extract(epoch FROM excluded.paused_at)`

const (
	unpauseSQL = `
UPDATE river_queue AS r
SET paused_at = NULL, updated_at = clock_timestamp(), metadata = r.metadata - 'forge:pause'
WHERE r.paused_at IS NOT NULL AND `

	resumeQueueSQL = unpauseSQL + `r.name = $1`
	// A queue that another transaction has locked, for example to replace its pause, is left for the
	// next call.
	endPausesSQL = unpauseSQL + `r.name = ANY (ARRAY (
    SELECT r.name
    FROM river_queue AS r
    WHERE r.paused_at IS NOT NULL AND ` + pauseEndSQL + ` <= extract(epoch FROM $1::timestamptz)
    LIMIT $2
    FOR UPDATE SKIP LOCKED))
RETURNING r.name`
)

// River's own notification: the leader and every node receive it.
const notifyQueueSQL = `
SELECT pg_notify(current_schema() || '.' || $1, json_build_object('action', $2::text, 'queue', $3::text)::text)`

// pauseRow holds the columns paused_at and pauseSQL.
type pauseRow struct {
	at    *time.Time
	facts []byte
}

func (r pauseRow) read() QueuePause {
	pause := QueuePause{PausedAt: postgres.TimeOrZero(r.at)}
	var facts struct {
		By, Reason string
		Until      float64
	}
	if pause.PausedAt.IsZero() || json.Unmarshal(r.facts, &facts) != nil { // not written by forge
		return pause
	}
	if pause.PausedBy, pause.PauseReason = facts.By, facts.Reason; facts.Until > 0 && facts.Until < math.MaxInt32*1000 {
		pause.PausedUntil = time.UnixMicro(int64(math.Round(facts.Until * 1e6))).UTC()
	}
	return pause
}

// PauseQueue prevents jobs of the queue, or a part of them, from starting until ResumeQueue, or
// for some time; running jobs continue. It replaces a pause that has ended, and does not change any
// other. It returns the pause and whether the call changed anything. It returns ErrNoQueue for an
// unknown queue, and ErrManyPauses.
func (s *Store) PauseQueue(ctx context.Context, queue string, order QueuePauseOrder) (pause QueuePause, changed bool, err error) {
	var lasts *time.Duration
	if order.For != 0 {
		lasts = &order.For
	}
	if err := eventstore.CheckReason(order.Reason); err != nil {
		return pause, false, err
	}
	if lasts != nil && (order.For < time.Second || order.For > MaxPause) {
		return pause, false, ErrPauseSpan
	}
	if !order.Jobs.All() {
		return s.pauseJobs(ctx, queue, order, lasts)
	}
	return s.setQueuePaused(ctx, queue, order, "pause", pauseQueueSQL, queue, order.By, order.Reason, lasts)
}

// ResumeQueue lets the jobs of a paused queue start again, or a part of them that was paused as
// such. It returns the same values as PauseQueue; the pause is zero.
func (s *Store) ResumeQueue(ctx context.Context, queue string, order QueuePauseOrder) (pause QueuePause, changed bool, err error) {
	if err := eventstore.CheckReason(order.Reason); err != nil {
		return pause, false, err
	}
	if !order.Jobs.All() {
		return s.resumeJobs(ctx, queue, order)
	}
	return s.setQueuePaused(ctx, queue, order, "resume", resumeQueueSQL, queue)
}

// EndPauses resumes at most limit queues whose pauses have ended at now, and returns their
// names, and at most limit parts of queues.
func (s *Store) EndPauses(ctx context.Context, now time.Time, limit int) ([]string, error) {
	if err := s.endJobPauses(ctx, now, limit); err != nil {
		return nil, err
	}
	names, err := postgres.Select(ctx, s.db, "end the pauses of queues", pgx.RowTo[string], endPausesSQL, now, limit)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if err := s.announcePause(ctx, name, QueuePauseOrder{Reason: pauseEnded}, "resume", QueuePause{}); err != nil {
			return nil, fmt.Errorf("end the pause of queue %s: %w", name, err)
		}
	}
	return names, nil
}

// setQueuePaused pauses or resumes one queue, in a transaction that notifies the leader and
// the nodes.
func (s *Store) setQueuePaused(ctx context.Context, queue string, order QueuePauseOrder, action, sql string, args ...any) (pause QueuePause, changed bool, err error) {
	err = pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		if known, err := New(tx).knows(ctx, queue); err != nil {
			return err
		} else if !known {
			return ErrNoQueue
		}
		tag, err := tx.Exec(ctx, sql, args...)
		if err != nil {
			return err
		}
		if pause, err = New(tx).pauseOf(ctx, queue); err != nil {
			return err
		}
		if changed = tag.RowsAffected() > 0; changed {
			return New(tx).announcePause(ctx, queue, order, action, pause)
		}
		return postgres.Confirm(ctx, tx)
	})
	if err != nil {
		return QueuePause{}, false, fmt.Errorf("%s queue %s: %w", action, queue, err)
	}
	return pause, changed, nil
}

// knows reports whether a row in river_queue, a node, a limit or a job names the queue. The
// caller has begun a transaction.
func (s *Store) knows(ctx context.Context, queue string) (known bool, err error) {
	if err := s.db.QueryRow(ctx, knownQueueSQL, queue).Scan(&known); err != nil || known {
		return known, err
	}
	if _, err := s.db.Exec(ctx, byIndexSQL); err != nil {
		return false, err
	}
	if err := s.db.QueryRow(ctx, queueOfJobSQL, queue).Scan(&known); err != nil {
		return false, err
	}
	_, err = s.db.Exec(ctx, byAnyPlanSQL)
	return known, err
}

// announcePause notifies the nodes of a pause or resumption and records its event.
func (s *Store) announcePause(ctx context.Context, queue string, order QueuePauseOrder, action string, pause QueuePause) error {
	if _, err := s.db.Exec(ctx, notifyQueueSQL, wire.RiverControlChannel, action, queue); err != nil {
		return fmt.Errorf("notify the nodes: %w", err)
	}
	return s.recordPause(ctx, queue, order, pause)
}

// recordPause records the event of a pause, or of a resumption if the pause is zero.
func (s *Store) recordPause(ctx context.Context, queue string, order QueuePauseOrder, pause QueuePause) error {
	event, about := eventstore.QueueResumed, map[string]any{"queue": queue, "by": order.By}
	if !pause.PausedAt.IsZero() {
		event = eventstore.QueuePaused
	}
	if order.Reason != "" {
		about["reason"] = order.Reason
	}
	if !pause.PausedUntil.IsZero() {
		about["until"] = pause.PausedUntil
	}
	if !order.Jobs.All() {
		about["jobs"] = order.Jobs.String()
	}
	return eventstore.New(s.db).Append(ctx, eventstore.Event{Type: event}, about)
}

func (s *Store) pauseOf(ctx context.Context, queue string) (QueuePause, error) {
	var row pauseRow
	err := s.db.QueryRow(ctx, pausedQueueSQL, queue).Scan(&row.at, &row.facts)
	if errors.Is(err, pgx.ErrNoRows) { // resumed before any node worked it
		return QueuePause{}, nil
	}
	return row.read(), err
}
