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
	// Reserve is how many slots of each node only jobs of the queue may use.
	Reserve int `json:"reserve,omitempty"`
	// LimitPerKey is the most jobs with the same value of a key that the cluster runs at once.
	LimitPerKey *KeyLimit `json:"limit_per_key,omitempty"`
	// MaxWorkersPerKey is the most jobs with the same value of a key that one node runs at once.
	MaxWorkersPerKey *KeyLimit `json:"max_workers_per_key,omitempty"`
	// RateLimit is the most jobs that start in a window.
	RateLimit *Rate `json:"rate_limit,omitempty"`
	// FairBy is the key by which waiting jobs take turns, and FairWeights how many jobs of a value
	// each turn has.
	FairBy      string         `json:"fair_by,omitempty"`
	FairWeights map[string]int `json:"fair_weights,omitempty"`
	// Priority is the default of the queue's jobs, from 1 (first) to 4; 0: none.
	Priority int `json:"priority,omitempty"`
}

// KeyLimit is a limit of the jobs with the same value of a key, such as args.tenant.
type KeyLimit struct {
	Key   string `json:"key"`
	Limit int    `json:"limit"`
}

// Rate is how many units start in any window of the length Per, and at most at once.
type Rate struct {
	Limit int    `json:"limit"`
	Per   string `json:"per"`
	Key   string `json:"key,omitempty"`
	Burst int    `json:"burst,omitempty"`
}

// String describes the rate.
func (r Rate) String() string {
	said := fmt.Sprintf("%d in %s", r.Limit, r.Per)
	if r.Burst > 0 {
		said += fmt.Sprintf(", %d at once", r.Burst)
	}
	if r.Key != "" {
		said += ", for each " + r.Key
	}
	return said
}

// The name may have any character, so it is no path.
const queueConfigSQL = `
SELECT settings -> 'queues' -> $1::text,
       ARRAY (SELECT j.key FROM jsonb_each(coalesce(settings -> 'jobs', '{}')) AS j
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
