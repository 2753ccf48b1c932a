package jobstore

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/wire"
)

const notifyAvailableSQL = `SELECT pg_notify(current_schema() || '.' || $1, payload) FROM unnest($2::text[]) AS payload`

const defaultQueue = "default"

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
		name, _ := json.Marshal(queue) // a string can be encoded
		if payload := `{"queue": ` + string(name) + `}`; !slices.Contains(payloads, payload) {
			payloads = append(payloads, payload)
		}
	}
	return payloads
}
