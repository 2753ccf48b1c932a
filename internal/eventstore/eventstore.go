// Package eventstore owns forge_events, the cluster's event log.
package eventstore

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/forge-scheduler/forge/internal/postgres"
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
	JobsRescued      = "jobs_rescued"
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
	// HandOverAsked is appended when a leader is asked to hand over its role.
	HandOverAsked = "hand_over_asked"
	NodeDrained   = "node_drained"
	NodeUndrained = "node_undrained"
	// AlertSilenced is appended when an alert is silenced until an instant.
	AlertSilenced   = "alert_silenced"
	AlertUnsilenced = "alert_unsilenced"
	// AlertTried is appended when an alert is sent to its receivers as a test.
	AlertTried = "alert_tried"
	// SecondRoundsGiven is appended when dead letters are retried, DeadLettersDiscarded
	// when they are discarded.
	SecondRoundsGiven    = "second_rounds_given"
	DeadLettersDiscarded = "dead_letters_discarded"
	// NotificationDelivered and NotificationFailed record whether a notification was
	// delivered to a receiver.
	NotificationDelivered = "notification_delivered"
	NotificationFailed    = "notification_failed"
	// IndexRebuilt is appended when the log compactor rebuilt an index to free its unused
	// space.
	IndexRebuilt = "index_rebuilt"
	// LimitStarving is appended when a limit has held a job back for long, LimitRecovered when
	// it no longer does. Their data is a LimitWait.
	LimitStarving  = "limit_starving"
	LimitRecovered = "limit_recovered"
	// HazardFound is appended when a snapshot becomes old or a replication slot begins to lag.
	HazardFound = "hazard_found"
)

// Event is one entry of the event log. NodeID, Role and Term are zero if they do
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

const appendSQL = `
INSERT INTO forge_events (type, node_id, role, term, data)
VALUES ($1, nullif($2, ''), nullif($3, ''), nullif($4::bigint, 0), coalesce($5::jsonb, '{}'))`

const appendOnceSQL = `
INSERT INTO forge_events (type, node_id, role, term, data)
SELECT $1, nullif($2, ''), nullif($3, ''), nullif($4::bigint, 0), $5::jsonb
WHERE NOT EXISTS (
    SELECT FROM forge_events
    WHERE type = $1 AND at >= $6
      AND (SELECT bool_and(data ->> k IS NOT DISTINCT FROM $5::jsonb ->> k) FROM unnest($7::text[]) AS k))`

const appendEachSQL = `INSERT INTO forge_events (type, data) SELECT $1, unnest($2::jsonb[])`

const selectSQL = `
SELECT id, at, type, coalesce(node_id, ''), coalesce(role, ''), coalesce(term, 0), data
FROM forge_events`

const pruneSQL = `
DELETE FROM forge_events
WHERE id = ANY (ARRAY (SELECT id FROM forge_events WHERE at < $1 ORDER BY at LIMIT $2))`

// Store writes, reads and prunes the event log, and reads the cluster's health.
type Store struct{ db postgres.DB }

// New returns the store of a database.
func New(db postgres.DB) *Store { return &Store{db} }

// Append writes an event with the time of the database's clock. data is marshalled
// to JSON; nil means none.
func (s *Store) Append(ctx context.Context, event Event, data any) error {
	var body []byte
	if data != nil {
		var err error
		if body, err = json.Marshal(data); err != nil {
			return fmt.Errorf("encode %s event: %w", event.Type, err)
		}
	}
	if _, err := s.db.Exec(ctx, appendSQL, event.Type, event.NodeID, event.Role, event.Term, body); err != nil {
		return fmt.Errorf("append %s event: %w", event.Type, err)
	}
	return nil
}

// AppendOnce writes an event unless one of its type with the same values at the keys of data
// was appended since an instant.
func (s *Store) AppendOnce(ctx context.Context, event Event, data map[string]any, keys []string, since time.Time) error {
	body, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("encode %s event: %w", event.Type, err)
	}
	if _, err := s.db.Exec(ctx, appendOnceSQL, event.Type, event.NodeID, event.Role, event.Term, body, since, keys); err != nil {
		return fmt.Errorf("append %s event: %w", event.Type, err)
	}
	return nil
}

// AppendEach writes an event of the type for each of the data, in one statement.
func (s *Store) AppendEach(ctx context.Context, kind string, data []any) error {
	if _, err := s.db.Exec(ctx, appendEachSQL, kind, data); err != nil {
		return fmt.Errorf("append %s events: %w", kind, err)
	}
	return nil
}

// Prune deletes at most limit events that are older than before, the oldest first,
// and returns their number.
func (s *Store) Prune(ctx context.Context, before time.Time, limit int) (int64, error) {
	return postgres.Affected(ctx, s.db, "prune events", pruneSQL, before, limit)
}
