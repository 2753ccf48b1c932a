package jobstore

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/wire"
)

const notifyAvailableSQL = `SELECT pg_notify(current_schema() || '.' || $1, payload) FROM unnest($2::text[]) AS payload`

const defaultQueue = "default"

// releasedLate is how long after its time a job may be released without telling the leader
// that time. It is shorter than the delay of the leader's marks.
const releasedLate = 100 * time.Millisecond

// NotifyAvailable notifies the leader, at commit, that the queues have available jobs.
// An empty queue is "default".
func (s *Store) NotifyAvailable(ctx context.Context, queues []string) error {
	if len(queues) == 0 {
		return nil
	}
	if _, err := s.db.Exec(ctx, notifyAvailableSQL, wire.RiverInsertChannel, insertPayloads(queues)); err != nil {
		return fmt.Errorf("notify the leader of available jobs: %w", err)
	}
	return nil
}

// BatchNotifyAvailable adds the statement of NotifyAvailable to a batch.
func BatchNotifyAvailable(batch *pgx.Batch, queues []string) {
	if len(queues) > 0 {
		batch.Queue(notifyAvailableSQL, wire.RiverInsertChannel, insertPayloads(queues))
	}
}

// insertPayloads returns the payload of each queue as River sends it: PostgreSQL delivers
// equal payloads of one transaction once.
func insertPayloads(queues []string) []string {
	payloads := make([]string, 0, len(queues))
	for _, queue := range queues {
		if queue == "" {
			queue = defaultQueue
		}
		if payload := insertPayload(queue, time.Time{}); !slices.Contains(payloads, payload) {
			payloads = append(payloads, payload)
		}
	}
	return payloads
}

// insertPayload returns the payload of a queue. from is when its earliest job was due, if the
// leader may have read past it; zero: it has not.
func insertPayload(queue string, from time.Time) string {
	name, _ := json.Marshal(queue) // a string can be encoded
	if from.IsZero() {
		return `{"queue": ` + string(name) + `}`
	}
	return `{"queue": ` + string(name) + `, "from": "` + from.UTC().Format(time.RFC3339Nano) + `"}`
}

// notifyReleased notifies the leader, at commit, that jobs of the queues are available that
// were due at these times.
func (s *Store) notifyReleased(ctx context.Context, dueAt map[string]time.Time, now time.Time) error {
	payloads := make([]string, 0, len(dueAt))
	for queue, from := range dueAt {
		if now.Sub(from) < releasedLate {
			from = time.Time{}
		}
		payloads = append(payloads, insertPayload(queue, from))
	}
	if len(payloads) == 0 {
		return nil
	}
	if _, err := s.db.Exec(ctx, notifyAvailableSQL, wire.RiverInsertChannel, payloads); err != nil {
		return fmt.Errorf("notify the leader of released jobs: %w", err)
	}
	return nil
}
