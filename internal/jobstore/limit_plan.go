package jobstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/forge-scheduler/forge/internal/limitkey"
)

// Backlog is how many waiting jobs a limit of running jobs would hold back now.
type Backlog struct {
	// Jobs is the number of waiting jobs without a place, among the first CountLimit of the queue, or
	// for a kind of at most 100 queues together. Values is the number of values of the limit's key
	// that they have.
	Jobs   int64
	Values int64
}

// backlogQueues bounds the queues in which a backlog of a kind is read.
const backlogQueues = 100

// waitQueuesSQL are the CTEs open_queues and wait_queues. wait_queues has the queues in which jobs of a
// limit may wait, and how many to read of each: CountLimit in all. $1 is the limit's scope, $2 its name.
var waitQueuesSQL = strings.NewReplacer("@limit", strconv.Itoa(CountLimit), "@queues", strconv.Itoa(backlogQueues)).Replace(
	openQueuesSQL + `, wait_queues (name, most) AS MATERIALIZED (
    SELECT $2::text, @limit WHERE $1 = 'queue'
    UNION ALL
    SELECT name, @limit / count(*) OVER ()
    FROM (SELECT name FROM open_queues WHERE $1 <> 'queue' AND name IS NOT NULL LIMIT @queues) AS q
)`)

// backlogSQL reads the running jobs and the first waiting ones. $1 is the scope of the limit, $6 the
// clients of the nodes that each have a limit of their own, null for one of the whole cluster.
var backlogSQL = `
WITH RECURSIVE ` + waitQueuesSQL + `, jobs AS (
    SELECT forge_limit_key($4, $5::text[], j.args, j.metadata, j.tags) AS key, CASE WHEN $6::text[] IS NOT NULL THEN ` + lastClientOfJ + ` END AS client,
           1 AS running, 0 AS waiting
    FROM (SELECT * FROM river_job WHERE ` + isRunning + `) AS j
    WHERE CASE $1 WHEN 'queue' THEN j.queue ELSE j.kind END = $2
    UNION ALL
    SELECT forge_limit_key($4, $5::text[], j.args, j.metadata, j.tags), NULL, 0, 1
    FROM wait_queues AS q, LATERAL (
        SELECT * FROM river_job
        WHERE ` + isAvailable + ` AND queue = q.name
        ORDER BY priority, scheduled_at, id LIMIT q.most) AS j
    WHERE CASE $1 WHEN 'queue' THEN j.queue ELSE j.kind END = $2
), used AS (
    SELECT key, CASE WHEN $6 IS NULL OR client = ANY ($6) THEN least(sum(running), $3::integer) ELSE 0 END AS places, sum(waiting) AS waiting
    FROM jobs GROUP BY key, client
), held AS (
    SELECT greatest(0, sum(waiting) - ($3::bigint * coalesce(cardinality($6), 1) - sum(places))) AS jobs FROM used GROUP BY key
)
SELECT coalesce(sum(jobs), 0)::bigint, count(*) FILTER (WHERE jobs > 0) FROM held`

// Backlog returns how many waiting jobs a limit of running jobs would hold back if it were in
// force now. For a rate, it is zero. A limit per node is that of each of the clients.
func (s *Store) Backlog(ctx context.Context, l Limit, clients []string) (b Backlog, err error) {
	if l.Class() == ClassRate {
		return b, nil
	}
	source, path := limitkey.Constant, []string{""}
	if l.Key != "" {
		key, err := limitkey.Parse(l.Key)
		if err != nil {
			return b, fmt.Errorf("the key of the limit of %s: %w", l.Name, err)
		}
		source, path = keyColumns(key)
	}
	if !l.PerNode {
		clients = nil
	}
	err = s.db.QueryRow(ctx, backlogSQL, l.Scope, l.Name, l.Most, source, path, clients).Scan(&b.Jobs, &b.Values)
	if err != nil {
		return b, fmt.Errorf("read what the limit of %s would hold back: %w", l.Name, err)
	}
	return b, nil
}
