// Package eventstore owns forge_events, the cluster's diary.
package eventstore

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Types of events.
const (
	LeaderElected    = "leader_elected"
	LeaderLost       = "leader_lost"
	ElectionStarted  = "election_started"
	LeaderDrilled    = "leader_drilled"
	LeaseRenewed     = "lease_renewed"
	NodeJoined       = "node_joined"
	NodeLeft         = "node_left"
	NodeDead         = "node_dead"
	ClusterDegraded  = "cluster_degraded"
	ClusterRecovered = "cluster_recovered"
	ConfigApplied    = "config_applied"
	ConfigReloaded   = "config_reloaded"
	ConfigRejected   = "config_rejected"
	CronPaused       = "cron_paused"
	CronResumed      = "cron_resumed"
	CronTriggered    = "cron_triggered"
	CronBackfilled   = "cron_backfilled"
	JobEnqueued      = "job_enqueued"
	JobCancelled     = "job_cancelled"
	JobRetried       = "job_retried"
	JobDiscarded     = "job_discarded"
	QueuePaused      = "queue_paused"
	QueueResumed     = "queue_resumed"
	// HandOverAsked says that somebody asked a leader to hand its role over.
	HandOverAsked = "hand_over_asked"
	NodeDrained   = "node_drained"
	NodeUndrained = "node_undrained"
	// AlertSilenced says that receivers are not told of an alert until an instant.
	AlertSilenced   = "alert_silenced"
	AlertUnsilenced = "alert_unsilenced"
	// AlertTried says that somebody had an alert's receivers told, to try them.
	AlertTried = "alert_tried"
	// SecondRoundsGiven says that dead letters are tried again, DeadLettersDiscarded
	// that somebody has no more use for some.
	SecondRoundsGiven    = "second_rounds_given"
	DeadLettersDiscarded = "dead_letters_discarded"
	// NotificationDelivered and NotificationFailed say that a receiver was told
	// of something, or could not be.
	NotificationDelivered = "notification_delivered"
	NotificationFailed    = "notification_failed"
	// IndexRebuilt says that the log compactor's leader gave back what an index did
	// not use.
	IndexRebuilt = "index_rebuilt"
)

// Event is one entry of the diary. NodeID, Role and Term are zero where they do
// not apply.
type Event struct {
	ID     int64           `json:"id"`
	At     time.Time       `json:"at"`
	Type   string          `json:"type"`
	NodeID string          `json:"node_id,omitempty"`
	Role   string          `json:"role,omitempty"`
	Term   int64           `json:"term,omitempty"`
	Data   json.RawMessage `json:"data,omitempty"`
}

// Execer is what Append writes through: a pool, a connection or a transaction.
type Execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// Queryer is what events are read through.
type Queryer interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

const appendSQL = `
INSERT INTO forge_events (type, node_id, role, term, data)
VALUES ($1, nullif($2, ''), nullif($3, ''), nullif($4::bigint, 0), coalesce($5::jsonb, '{}'))`

const selectSQL = `
SELECT id, at, type, coalesce(node_id, ''), coalesce(role, ''), coalesce(term, 0), data
FROM forge_events`

const pruneSQL = `
DELETE FROM forge_events
WHERE id = ANY (ARRAY (SELECT id FROM forge_events WHERE at < $1 ORDER BY at LIMIT $2))`

// Append writes an event with the database's clock. data is marshalled to JSON;
// nil means none.
func Append(ctx context.Context, db Execer, event Event, data any) error {
	var body []byte
	if data != nil {
		var err error
		if body, err = json.Marshal(data); err != nil {
			return fmt.Errorf("encode %s event: %w", event.Type, err)
		}
	}
	if _, err := db.Exec(ctx, appendSQL, event.Type, event.NodeID, event.Role, event.Term, body); err != nil {
		return fmt.Errorf("append %s event: %w", event.Type, err)
	}
	return nil
}

func collect[T any](ctx context.Context, db Queryer, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scan)
}

// Prune deletes at most limit events from before an instant, the oldest first,
// and returns their number.
func Prune(ctx context.Context, db Execer, before time.Time, limit int) (int64, error) {
	tag, err := db.Exec(ctx, pruneSQL, before, limit)
	if err != nil {
		return 0, fmt.Errorf("prune events: %w", err)
	}
	return tag.RowsAffected(), nil
}
