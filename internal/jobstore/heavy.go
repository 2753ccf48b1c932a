package jobstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// heavySQL reads the first due jobs of each of wait_queues.
var heavySQL = `
WITH RECURSIVE ` + waitQueuesSQL + `, limits AS MATERIALIZED (` + limitsInForceSQL + `
)
SELECT j.id, j.kind, j.queue, j.priority, ` + boundTime + `j.scheduled_at` + inYears + `, coalesce(j.metadata ->> 'forge:capability', ''), j.metadata -> 'forge:tags'
FROM limits AS l
CROSS JOIN wait_queues AS q
CROSS JOIN LATERAL (
    SELECT * FROM river_job
    WHERE ` + isAvailable + ` AND queue = q.name AND scheduled_at <= now()
    ORDER BY priority, scheduled_at, id LIMIT q.most) AS j
LEFT JOIN limits AS kind ON kind.base = 'weight' AND kind.name = j.kind
WHERE l.base = $1 AND l.name = $2 AND l.class = 'rate' AND (l.base = 'queue' OR j.kind = l.name)
  AND forge_job_weight(j.metadata, kind.most) > 1 AND ` + keySQL + ` = $3
  AND NOT EXISTS (SELECT FROM river_queue AS paused WHERE paused.name = j.queue AND paused.paused_at IS NOT NULL)
ORDER BY j.priority, j.scheduled_at, j.id
LIMIT $4`

// HeavyJobs returns the first waiting jobs of several units of a rate and value of its key, among
// as many jobs of as many queues as Backlog reads.
func (s *Store) HeavyJobs(ctx context.Context, of Places, limit int) ([]AvailableJob, error) {
	jobs, err := postgres.Collect(ctx, s.db, func(row pgx.CollectableRow) (j AvailableJob, err error) {
		err = row.Scan(&j.ID, &j.Kind, &j.Queue, &j.Priority, &j.ScheduledAt, &j.Capability, &j.Tags)
		return j, err
	}, heavySQL, of.Scope, of.Name, of.Key, limit)
	if err != nil {
		return nil, fmt.Errorf("read the jobs of several units of a rate: %w", err)
	}
	return jobs, nil
}

// FairKeys returns the values of the key of a fair queue that those of the jobs have which are in it.
func (s *Store) FairKeys(ctx context.Context, q FairQueue, ids []int64) (map[int64]string, error) {
	source, path := keyColumns(q.Key)
	keys := map[int64]string{}
	rows, _ := s.db.Query(ctx, `SELECT id, forge_limit_key($1, $2::text[], args, metadata, tags) FROM river_job WHERE queue = $3 AND id = ANY ($4::bigint[])`,
		source, path, q.Queue, ids)
	var id int64
	var key string
	if _, err := pgx.ForEachRow(rows, []any{&id, &key}, func() error { keys[id] = key; return nil }); err != nil {
		return nil, fmt.Errorf("read the keys of fair queue %s: %w", q.Queue, err)
	}
	return keys, nil
}
