package alerts

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/filter"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/internal/wire"
)

// NotificationState is the state of a notification.
type NotificationState string

// The states of a notification.
const (
	NotificationPending   NotificationState = "pending"
	NotificationDelivered NotificationState = "delivered"
	NotificationFailed    NotificationState = "failed"
	// NotificationSuperseded: a newer message about the same alert was enqueued before this one was
	// sent.
	NotificationSuperseded NotificationState = "superseded"
)

const notificationColumns = `
n.id, coalesce(n.cron, ''), n.tick, coalesce(n.alert, ''), n.target, n.facts, n.state, n.attempts, n.created_at, n.next_at,
n.done_at, n.error, n.node_id, n.term`

const ofTicksSQL = `
SELECT ` + notificationColumns + `
FROM forge_notifications AS n
WHERE n.cron = $1 AND n.tick = ANY($2)
ORDER BY n.tick, n.id`

const ofAlertsSQL = `
SELECT ` + notificationColumns + `
FROM forge_notifications AS n
WHERE n.alert IS NOT NULL AND ($1::text[] IS NULL OR n.alert LIKE ANY ($1)) AND ($3::bigint = 0 OR n.id < $3)
ORDER BY n.id DESC
LIMIT $2`

// Messages about one alert are sent to a target in order.
const oldestOfAlert = `NOT EXISTS (
    SELECT FROM forge_notifications AS earlier
    WHERE earlier.alert = n.alert AND earlier.target = n.target AND earlier.id < n.id AND earlier.state = 'pending')`

// receiverSQL is the name of a target's receiver: slack of slack:#ops.
const receiverSQL = `split_part(n.target, ':', 1)`

const nextDueSQL = `
SELECT ` + receiverSQL + `, extract(epoch FROM n.next_at - clock_timestamp())::float8
FROM forge_notifications AS n
WHERE state = 'pending' AND (alert IS NULL OR ` + oldestOfAlert + `) AND ` + receiverSQL + ` <> ALL ($1)
ORDER BY next_at
LIMIT 1`

// A message that is being sent is not superseded.
const supersedeSQL = `
WITH superseded AS (
    UPDATE forge_notifications
    SET state = 'superseded', done_at = clock_timestamp()
    WHERE alert = $1 AND target = $2 AND state = 'pending' AND NOT sending
    RETURNING coalesce((facts ->> 'ended')::boolean, false) AS ended)
SELECT coalesce(bool_and(ended), true) FROM superseded`

const addSQL = `INSERT INTO forge_notifications (alert, target, facts) VALUES ($1, $2, $3)`

const newsSQL = `SELECT pg_notify(current_schema() || '.` + wire.FailureChannel + `', '')`

const claimSQL = `
UPDATE forge_notifications AS n
SET attempts = n.attempts + 1, sending = true, next_at = clock_timestamp() + $2, node_id = $3, term = $4
FROM (
    SELECT id FROM forge_notifications AS n
    WHERE state = 'pending' AND next_at <= clock_timestamp() AND (alert IS NULL OR ` + oldestOfAlert + `)
      AND ` + receiverSQL + ` = $5 AND id <> ALL ($6)
    ORDER BY next_at
    LIMIT $1
    FOR UPDATE SKIP LOCKED
) AS due
WHERE n.id = due.id
RETURNING ` + notificationColumns

// A later claim is not affected.
const settleSQL = `
UPDATE forge_notifications
SET state = $3, error = $4, sending = false, next_at = clock_timestamp() + $5,
    done_at = CASE WHEN $3 = 'pending' THEN NULL ELSE clock_timestamp() END
WHERE id = $1 AND attempts = $2 AND state = 'pending'`

const dropSQL = `DELETE FROM forge_notifications WHERE id = $1 AND attempts = $2 AND state = 'pending'`

const pruneNotificationsSQL = `
DELETE FROM forge_notifications
WHERE id = ANY (ARRAY (
    SELECT id FROM forge_notifications WHERE state <> 'pending' AND done_at < $1 ORDER BY done_at LIMIT $2))`

// Facts are the data of a message about a failed run. A tick whose job could not be
// inserted has only the error.
type Facts struct {
	JobID    int64  `json:"job_id,omitempty"`
	Job      string `json:"job,omitempty"`
	Attempts int    `json:"attempts,omitempty"`
	Error    string `json:"error,omitempty"`
	// Alerts are the occurrences of an alert that a message is about.
	Alerts []OccurrenceFacts `json:"alerts,omitempty"`
	// Ended says that occurrences have been resolved and none has begun to fire since the
	// last message that was sent.
	Ended bool `json:"ended,omitempty"`
}

// Notification is a row of forge_notifications.
type Notification struct {
	ID int64 `json:"id"`
	// Cron and Tick identify the failed run; they are zero for an alert.
	Cron string    `json:"cron,omitempty"`
	Tick time.Time `json:"tick,omitzero"`
	// Alert is the name of the alert.
	Alert  string            `json:"alert,omitempty"`
	Target string            `json:"target"`
	Facts  Facts             `json:"facts"`
	State  NotificationState `json:"state"`
	// Attempts is the number of attempts to deliver it.
	Attempts  int       `json:"attempts"`
	CreatedAt time.Time `json:"created_at"`
	NextAt    time.Time `json:"next_at"`
	DoneAt    time.Time `json:"done_at,omitzero"`
	// Error is the error of the last failed attempt.
	Error string `json:"error,omitempty"`
	// NodeID and Term are those of the leader that made the last attempt.
	NodeID string `json:"node_id,omitempty"`
	Term   int64  `json:"term,omitempty"`
}

// OfTicks returns the notifications about ticks of a cron, by tick.
func (s *Store) OfTicks(ctx context.Context, cron string, ticks []time.Time) ([]Notification, error) {
	return s.notifications(ctx, "read notifications of "+cron, ofTicksSQL, cron, ticks)
}

// Notifications returns at most limit messages about the alerts whose names one of the patterns
// matches or, without patterns, about all, newest first.
func (s *Store) Notifications(ctx context.Context, names []filter.Pattern, before int64, limit int) ([]Notification, error) {
	return s.notifications(ctx, "read notifications of alerts", ofAlertsSQL, likes(names), limit, before)
}

// EnqueueAlert enqueues, in a transaction of the leader, messages to targets about an
// alert's occurrences. They supersede earlier messages that have not been sent.
func (s *Store) EnqueueAlert(ctx context.Context, alert string, targets []string, occurrences []OccurrenceFacts, ended bool) error {
	for _, target := range targets {
		var before bool
		if err := s.db.QueryRow(ctx, supersedeSQL, alert, target).Scan(&before); err != nil {
			return fmt.Errorf("supersede notifications of %s: %w", alert, err)
		}
		if err := s.add(ctx, alert, target, Facts{Alerts: occurrences, Ended: ended && before}); err != nil {
			return err
		}
	}
	if len(targets) == 0 {
		return nil
	}
	return postgres.Exec(ctx, s.db, "announce notifications of "+alert, newsSQL)
}

func (s *Store) add(ctx context.Context, alert, target string, facts Facts) error {
	return postgres.Exec(ctx, s.db, "write a notification of "+alert, addSQL, alert, target, facts)
}

// TestPrefix begins the subject of a test message to an alert's receivers. Such messages
// neither wait for messages about the alert itself nor supersede them, and receivers
// treat them as a different alert.
const TestPrefix = "test "

// EnqueueTest enqueues, in a transaction, test messages to targets: that an occurrence
// fires and that it is resolved.
func (s *Store) EnqueueTest(ctx context.Context, alert string, targets []string, occurrence OccurrenceFacts) error {
	if err := s.EnqueueAlert(ctx, TestPrefix+alert, targets, []OccurrenceFacts{occurrence}, false); err != nil {
		return err
	}
	occurrence.EndsAt = occurrence.StartsAt
	for _, target := range targets {
		if err := s.add(ctx, TestPrefix+alert, target, Facts{Alerts: []OccurrenceFacts{occurrence}}); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) notifications(ctx context.Context, what, sql string, args ...any) ([]Notification, error) {
	return postgres.Select(ctx, s.db, what, func(row pgx.CollectableRow) (Notification, error) {
		var (
			n    Notification
			done *time.Time
			tick *time.Time
		)
		err := row.Scan(&n.ID, &n.Cron, &tick, &n.Alert, &n.Target, &n.Facts, &n.State, &n.Attempts, &n.CreatedAt,
			&n.NextAt, &done, &n.Error, &n.NodeID, &n.Term)
		n.DoneAt, n.Tick = postgres.TimeOrZero(done), postgres.TimeOrZero(tick)
		return n, err
	}, sql, args...)
}

// nextDue returns the receiver of the notification that is due next, and the time until then; false
// when none is pending. It leaves out receivers that are not available.
func (s *Store) nextDue(ctx context.Context, unavailable []string) (receiver string, wait time.Duration, found bool, err error) {
	var seconds float64
	err = s.db.QueryRow(ctx, nextDueSQL, unavailable).Scan(&receiver, &seconds)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return "", 0, false, nil
	case err != nil:
		return "", 0, false, fmt.Errorf("look for notifications: %w", err)
	}
	return receiver, time.Duration(seconds * float64(time.Second)), true, nil
}

// claim claims at most limit due notifications of a receiver for a time. It leaves out those that
// are being sent even if their claims have expired.
func (s *Store) claim(ctx context.Context, receiver string, limit int, sending []int64, lasts time.Duration, nodeID string, term int64) ([]Notification, error) {
	return s.notifications(ctx, "claim notifications", claimSQL, limit, lasts, nodeID, term, receiver, sending)
}

// settle records the result of an attempt. It reports whether the caller still held the
// claim.
func (s *Store) settle(ctx context.Context, n Notification, state NotificationState, text string, wait time.Duration) (bool, error) {
	settled, err := postgres.Affected(ctx, s.db, fmt.Sprintf("settle notification %d", n.ID), settleSQL, n.ID, n.Attempts, string(state), text, wait)
	return settled == 1, err
}

// drop deletes a notification that the receiver does not want.
func (s *Store) drop(ctx context.Context, n Notification) error {
	return postgres.Exec(ctx, s.db, fmt.Sprintf("drop notification %d", n.ID), dropSQL, n.ID, n.Attempts)
}

// PruneNotifications deletes at most limit notifications that were settled before an instant.
func (s *Store) PruneNotifications(ctx context.Context, before time.Time, limit int) (int64, error) {
	return postgres.Affected(ctx, s.db, "prune notifications", pruneNotificationsSQL, before, limit)
}
