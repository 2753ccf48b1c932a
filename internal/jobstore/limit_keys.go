package jobstore

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/limitkey"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// Places is how many jobs hold a place of a limit, for one value of its key.
type Places struct {
	Scope string
	Name  string
	Class string
	// Key is the value of the limit's key, empty without one.
	Key string
	// Client is the name under which the node of a limit per node claims jobs, otherwise empty.
	Client string
	Jobs   int
}

var placesSQL = `
WITH limits AS MATERIALIZED (` + limitsInForceSQL + ` AND l.per IS NULL
), wanted AS MATERIALIZED (
    SELECT g.base, g.name, g.class, k.key, g.client, ` + keyLockSQL("g.client") + ` AS lock
    FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[]) AS g (base, name, class, key, client)
    JOIN limits AS l ON l.base = g.base AND l.name = g.name AND l.class = g.class
    CROSS JOIN LATERAL (SELECT g.key AS key) AS k
), ` + underLimitsSQL + `
SELECT max(c.base), max(c.name), max(c.class), max(c.key), max(c.client), sum(c.jobs)::bigint
FROM (
    SELECT lock, base, name, class, key, client, 0 AS jobs FROM wanted
    UNION ALL
    SELECT lock, NULL, NULL, NULL, NULL, NULL, jobs FROM running) AS c
GROUP BY c.lock
HAVING max(c.base) IS NOT NULL`

// PlacesTaken counts the running jobs for each of these limits and values of its key. A rate, or
// a limit that is not in force, has no result.
func (s *Store) PlacesTaken(ctx context.Context, of []Places) ([]Places, error) {
	n := len(of)
	scopes, names, classes, keys, clients := make([]string, n), make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	for i, p := range of {
		scopes[i], names[i], classes[i], keys[i], clients[i] = p.Scope, p.Name, p.Class, p.Key, p.Client
	}
	places, err := postgres.Collect(ctx, s.db, pgx.RowToStructByPos[Places], withProtections(placesSQL), scopes, names, classes, keys, clients)
	if err != nil {
		return nil, fmt.Errorf("count the places taken: %w", err)
	}
	return places, nil
}

var runningUnderSQL = `
WITH limits AS MATERIALIZED (` + limitsInForceSQL + ` AND l.per IS NULL
), wanted AS MATERIALIZED (
    SELECT unnest($1::bigint[]) AS lock
), ` + underLimitsSQL + `
SELECT lock, jobs FROM running`

// RunningUnder counts the running jobs for each of these locks of limits, and maybe for others. Locks
// without running jobs have no result.
func (s *Store) RunningUnder(ctx context.Context, locks []int64) (running map[int64]int, err error) {
	running = map[int64]int{}
	var lock int64
	var jobs int
	rows, err := s.db.Query(ctx, withProtections(runningUnderSQL), ids(locks))
	if err == nil {
		_, err = pgx.ForEachRow(rows, []any{&lock, &jobs}, func() error { running[lock] = jobs; return nil })
	}
	if err != nil {
		return nil, fmt.Errorf("count the running jobs under limits: %w", err)
	}
	return running, nil
}

// writerOfJ is the transaction that wrote the row of the job j.
const writerOfJ = `j.xmin::text::bigint`

// StillAvailable returns for those of the jobs that are available the transaction that wrote the
// row.
func (s *Store) StillAvailable(ctx context.Context, ids []int64) (rows map[int64]int64, err error) {
	rows = map[int64]int64{}
	if len(ids) == 0 {
		return rows, nil
	}
	var id, row int64
	found, err := s.db.Query(ctx, `SELECT j.id, `+writerOfJ+` FROM river_job AS j WHERE j.id = ANY ($1::bigint[]) AND j.state::text = 'available'`, ids)
	if err == nil {
		_, err = pgx.ForEachRow(found, []any{&id, &row}, func() error { rows[id] = row; return nil })
	}
	if err != nil {
		return nil, fmt.Errorf("read which jobs are still available: %w", err)
	}
	return rows, nil
}

// JobKey is the value of a job's key in a limit of its queue or kind.
type JobKey struct {
	ID    int64
	Scope string
	Class string
	// Key is empty for a limit without a key.
	Key string
	// Units is 1, or for a rate the job's weight.
	Units int
	// Lock is the number of the lock of the limit with this value; 0 for a rate and for a limit of
	// each node.
	Lock int64
	// Row is the transaction that wrote the row with this value.
	Row int64
}

const limitVersionSQL = `SELECT version FROM forge_limit_version`

var jobKeysSQL = `
WITH limits AS MATERIALIZED (` + limitsInForceSQL + `
)
SELECT (` + limitVersionSQL + `), j.id, l.base, l.class, k.key, ` + unitsSQL + `,
       CASE WHEN l.class IN ('all', 'key') THEN ` + keyLockSQL("''") + ` ELSE 0 END, ` + writerOfJ + `
FROM river_job AS j
CROSS JOIN LATERAL (VALUES ('queue', j.queue), ('job', j.kind)) AS o (base, name)
JOIN limits AS l ON l.base = o.base AND l.name = o.name
LEFT JOIN limits AS kind ON kind.base = 'weight' AND kind.name = j.kind
CROSS JOIN LATERAL (SELECT ` + keySQL + ` AS key) AS k
WHERE j.id = ANY ($1::bigint[])`

// JobKeys returns the values of the keys of jobs in their limits, and the version of the limits;
// 0 if none of the jobs has a limit.
func (s *Store) JobKeys(ctx context.Context, of []int64) (keys []JobKey, version int64, err error) {
	var k JobKey
	rows, err := s.db.Query(ctx, jobKeysSQL, of)
	if err == nil {
		_, err = pgx.ForEachRow(rows, []any{&version, &k.ID, &k.Scope, &k.Class, &k.Key, &k.Units, &k.Lock, &k.Row}, func() error {
			keys = append(keys, k)
			return nil
		})
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read the keys of jobs: %w", err)
	}
	return keys, version, nil
}

// LimitVersion returns the version of the limits, and whether there are any.
func (s *Store) LimitVersion(ctx context.Context) (version int64, limited bool, err error) {
	if err := s.db.QueryRow(ctx, `SELECT version, EXISTS (SELECT FROM forge_limits) FROM forge_limit_version`).Scan(&version, &limited); err != nil {
		return 0, false, fmt.Errorf("read the version of the limits: %w", err)
	}
	return version, limited, nil
}

const holdersSQL = `
SELECT j.id
FROM (SELECT * FROM river_job WHERE ` + isRunning + `) AS j
JOIN (` + limitsInForceSQL + `
) AS l ON l.base = $1 AND l.name = $2 AND l.class = $3
WHERE CASE l.base WHEN 'queue' THEN j.queue ELSE j.kind END = l.name
  AND ` + keySQL + ` = $4
  AND (l.class <> 'node' OR ` + lastClientOfJ + ` = $5)
ORDER BY j.attempted_at, j.id
LIMIT $6`

// Holders returns the running jobs that hold the places of a limit, the oldest attempts
// first.
func (s *Store) Holders(ctx context.Context, of Places, limit int) ([]int64, error) {
	ids, err := postgres.Collect(ctx, s.db, pgx.RowTo[int64], holdersSQL, of.Scope, of.Name, of.Class, of.Key, of.Client, limit)
	if err != nil {
		return nil, fmt.Errorf("read which jobs hold the places of a limit: %w", err)
	}
	return ids, nil
}

// KeyUse is how many jobs of a queue have one value of a key.
type KeyUse struct {
	Key     string `json:"key"`
	Running int64  `json:"running"`
	// Waiting and OldestAt are about the first CountLimit available jobs of the queue.
	Waiting  int64     `json:"waiting"`
	OldestAt time.Time `json:"oldest_at,omitzero"`
	// RateLeft is how many units the queue's rate by this key lets start now; nil without one.
	RateLeft *int `json:"rate_left,omitempty"`
}

var keyUseSQL = strings.ReplaceAll(`
WITH uses AS (
    SELECT forge_limit_key($2, $3::text[], j.args, j.metadata, j.tags) AS key, 1 AS running, 0 AS waiting, NULL::timestamptz AS at
    FROM (SELECT * FROM river_job WHERE `+isRunning+` AND queue = $1) AS j
    UNION ALL
    SELECT forge_limit_key($2, $3::text[], j.args, j.metadata, j.tags), 0, 1, `+boundTime+`j.scheduled_at`+inYears+`
    FROM (
        SELECT * FROM river_job
        WHERE `+isAvailable+` AND queue = $1
        ORDER BY priority, scheduled_at, id LIMIT @limit) AS j
)
SELECT key, sum(running), sum(waiting), min(at)
FROM uses
WHERE $5 = '' OR strpos(lower(key), lower($5)) > 0
GROUP BY key
ORDER BY CASE $6 WHEN 'running' THEN sum(running) END DESC NULLS LAST, CASE $6 WHEN 'oldest' THEN min(at) END, sum(waiting) DESC, key
LIMIT $4`, "@limit", strconv.Itoa(CountLimit))

// KeySearch selects values of a key. The zero value selects all.
type KeySearch struct {
	// Text is a part of the value, in any case.
	Text string
	// Sort is one of KeySorts; empty: the first.
	Sort string
}

// KeySorts are the orders of values: by the most running jobs, by the most waiting ones, or by the
// longest wait.
var KeySorts = []string{"running", "waiting", "oldest"}

// KeyUses returns at most limit values of a key in a queue with their jobs.
func (s *Store) KeyUses(ctx context.Context, queue string, key limitkey.Key, of KeySearch, limit int) ([]KeyUse, error) {
	source, path := keyColumns(key)
	uses, err := postgres.Collect(ctx, s.db, func(row pgx.CollectableRow) (u KeyUse, err error) {
		var oldest *time.Time
		err = row.Scan(&u.Key, &u.Running, &u.Waiting, &oldest)
		u.OldestAt = postgres.TimeOrZero(oldest)
		return u, err
	}, keyUseSQL, queue, source, path, limit, of.Text, cmp.Or(of.Sort, KeySorts[0]))
	if err != nil {
		return nil, fmt.Errorf("read the keys of queue %s: %w", queue, err)
	}
	return uses, nil
}

// keyColumns returns a key as forge_limit_key reads it. The name of a cron is in the metadata.
func keyColumns(key limitkey.Key) (source string, path []string) {
	if key.Source == limitkey.Cron {
		return limitkey.Metadata, []string{KeyCron}
	}
	return key.Source, key.Path
}
