package cronstore

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// QueueCron is a configured cron whose jobs are of a queue.
type QueueCron struct {
	Name string `json:"name"`
	Job  string `json:"job"`
	// Paused is whether the cron is paused, by its definition or by hand.
	Paused   bool      `json:"paused"`
	NextTick time.Time `json:"next_tick,omitzero"`
}

// The expression is that of the index forge_crons_queue.
const queueCronsSQL = `
SELECT ` + namedColumns + `, next_tick
FROM forge_crons
WHERE removed_at IS NULL AND spec ->> 'queue' = $1
ORDER BY name
LIMIT $2`

// OfQueue returns at most limit crons whose jobs are of a queue, by name.
func (s *Store) OfQueue(ctx context.Context, queue string, limit int) ([]QueueCron, error) {
	return postgres.Select(ctx, s.db, "read the crons of queue "+queue, func(row pgx.CollectableRow) (c QueueCron, err error) {
		var next *time.Time
		err = row.Scan(&c.Name, &c.Job, &c.Paused, &next)
		c.NextTick = postgres.TimeOrZero(next)
		return c, err
	}, queueCronsSQL, queue, limit)
}

// QueueConfig is what the configuration in force says about a queue.
type QueueConfig struct {
	// MaxWorkers is the most jobs of the queue that one node runs at once; 0: as many as it has
	// slots. GlobalLimit is the most that the cluster runs at once; 0: no limit.
	MaxWorkers  int `json:"max_workers,omitempty"`
	GlobalLimit int `json:"global_limit,omitempty"`
	// Priority is the default of the queue's jobs, from 1 (first) to 4; 0: none.
	Priority int `json:"priority,omitempty"`
}

// The name may have any character, so it is no path.
const queueConfigSQL = `
SELECT body -> 'queues' -> $1::text,
       ARRAY (SELECT j.key FROM jsonb_each(coalesce(body -> 'jobs', '{}')) AS j
              WHERE coalesce(j.value ->> 'queue', 'default') = $1 ORDER BY j.key LIMIT $2)
FROM forge_config
ORDER BY applied_at DESC
LIMIT 1`

// Queue returns what the configuration in force says about a queue, nil if nothing, and at most
// limit kinds whose jobs it puts into the queue.
func (s *Store) Queue(ctx context.Context, name string, limit int) (configured *QueueConfig, kinds []string, err error) {
	type row struct {
		Body  json.RawMessage
		Kinds []string
	}
	inForce, _, err := postgres.First(ctx, s.db, "read the configuration of queue "+name, pgx.RowToStructByPos[row], queueConfigSQL, name, limit)
	if err != nil || inForce.Body == nil {
		return nil, inForce.Kinds, err
	}
	if err := json.Unmarshal(inForce.Body, &configured); err != nil {
		return nil, nil, fmt.Errorf("read the configuration of queue %s: %w", name, err)
	}
	return configured, inForce.Kinds, nil
}
