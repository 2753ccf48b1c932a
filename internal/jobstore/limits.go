package jobstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/limitkey"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// Scopes of a limit.
const (
	// ScopeQueue is the scope of all jobs of a queue.
	ScopeQueue = "queue"
	// ScopeJob is the scope of all jobs of a kind, in any queue.
	ScopeJob = "job"
	// ScopeWeight is the scope of no limit: its Most is the units of a job of a kind.
	ScopeWeight = "weight"
)

// Classes of a limit. Each scope has at most one limit of each class for a name.
const (
	// ClassAll limits the running jobs, all together.
	ClassAll = "all"
	// ClassKey limits the running jobs with the same value of a key.
	ClassKey = "key"
	// ClassNode limits the jobs with the same value of a key that run on one node.
	ClassNode = "node"
	// ClassRate limits the starts in a window, of all jobs or of those with the same value.
	ClassRate = "rate"
)

// Limit is the maximum number of jobs of a queue or of a kind that run at once, or the maximum
// number of units that start in a window.
type Limit struct {
	Scope string `json:"scope"`
	Name  string `json:"name"`
	Most  int    `json:"limit"`
	// Key is empty for a limit of all jobs together. Otherwise the jobs with the same value of
	// this key have a limit of their own.
	Key string `json:"key,omitempty"`
	// PerNode is whether each node has a limit of its own. Such a limit has a key.
	PerNode bool `json:"per_node,omitempty"`
	// Per is the length of the window of a rate; 0: the limit is of running jobs.
	Per time.Duration `json:"per,omitempty"`
	// Burst is the maximum of units in a window of the length BurstSpan; 0: none.
	Burst int `json:"burst,omitempty"`
}

// Class returns the class of the limit.
func (l Limit) Class() string {
	switch {
	case l.Per > 0:
		return ClassRate
	case l.PerNode:
		return ClassNode
	case l.Key != "":
		return ClassKey
	}
	return ClassAll
}

// Capacity returns the maximum number of units that can start at once.
func (l Limit) Capacity() int {
	if l.Burst > 0 {
		return min(l.Most, l.Burst)
	}
	return l.Most
}

// BurstSpan returns the length of the window of the burst.
func (l Limit) BurstSpan() time.Duration {
	return time.Duration(float64(l.Per)*float64(l.Burst)/float64(l.Most)) + time.Microsecond
}

// Usage is a limit with its current use.
type Usage struct {
	Limit
	// Window is the length of the window of a rate, such as 1m; empty for a limit of running jobs.
	Window string `json:"per,omitempty"`
	// Started is the number of units that started in the current window of a rate without a key;
	// nil for other limits.
	Started *int64 `json:"started,omitempty"`
	// Running is the number of places taken, Available the number of available jobs under the
	// limit, among the first CountLimit of the queue, or for a kind of all queues together. With a
	// key, they count the jobs of all keys.
	Running   int64 `json:"running"`
	Available int64 `json:"available"`
	// MoreAvailable is whether there may be more available jobs.
	MoreAvailable bool `json:"more_available,omitempty"`
}

// limitRow is a row of forge_limits. The migration 076_limit_keys.sql describes its scopes.
type limitRow struct {
	Scope  string   `json:"scope"`
	Name   string   `json:"name"`
	Most   int      `json:"most"`
	Source *string  `json:"key_source"`
	Path   []string `json:"key_path"`
	Per    *string  `json:"per"`
	Burst  *int     `json:"burst"`
}

// Suffixes of scopes in forge_limits.
const (
	allSuffix  = "_all"
	keySuffix  = "_key"
	nodeSuffix = "_node"
	rateSuffix = "_rate"
)

// Claims hold a lock of the table that conflicts with this one, so a change waits for claims,
// and claims that follow it apply it.
const lockLimitsSQL = `LOCK TABLE forge_limits IN EXCLUSIVE MODE`

const setLimitsSQL = `
WITH wanted AS (
    SELECT * FROM jsonb_to_recordset($1) AS w (scope text, name text, most integer, key_source text, key_path text[], per interval, burst integer)
), gone AS (
    DELETE FROM forge_limits AS l
    WHERE NOT EXISTS (SELECT FROM wanted AS w WHERE w.scope = l.scope AND w.name = l.name)
)
INSERT INTO forge_limits (scope, name, most, key_source, key_path, per, burst)
SELECT scope, name, most, key_source, key_path, per, burst FROM wanted
ON CONFLICT (scope, name) DO UPDATE SET
    most = excluded.most, key_source = excluded.key_source, key_path = excluded.key_path, per = excluded.per, burst = excluded.burst`

// limitInForce is true for the limits that this version applies: not for a row that only
// earlier versions need.
const limitInForce = `(l.scope NOT IN ('queue', 'job') OR NOT EXISTS (
        SELECT FROM forge_limits AS o WHERE o.name = l.name AND o.scope IN (l.scope || '` + allSuffix + `', l.scope || '` + keySuffix + `',
            l.scope || '` + nodeSuffix + `', l.scope || '` + rateSuffix + `')))`

// limitsInForceSQL reads them. base is the scope without its suffix.
const limitsInForceSQL = `
    SELECT split_part(l.scope, '_', 1) AS base, l.scope, l.name, l.most, l.key_source, l.key_path, l.per, l.burst,
           CASE WHEN l.per IS NOT NULL THEN 'rate' WHEN right(l.scope, 5) = '` + nodeSuffix + `' THEN 'node' WHEN l.key_source IS NOT NULL THEN 'key' ELSE 'all' END AS class
    FROM forge_limits AS l
    WHERE ` + limitInForce

const limitsSQL = `
SELECT base, name, most, key_source, key_path, coalesce(per, '0'), coalesce(burst, 0), class = 'node'
FROM (` + limitsInForceSQL + `) AS l ORDER BY scope, name`

// usageSQL counts the jobs of queues. If a kind has a limit, it also reads the kinds of the first
// available jobs: CountLimit in all, the same number of each queue.
var usageSQL = openCountsSQL + strings.ReplaceAll(`, limits AS MATERIALIZED (`+limitsInForceSQL+` AND l.scope <> 'weight'
), active AS MATERIALIZED (
    SELECT 'queue' AS base, queue AS name, CASE state WHEN 'running' THEN jobs ELSE 0 END AS running,
           CASE state WHEN 'available' THEN jobs ELSE 0 END AS available, more
    FROM counts
    WHERE state IN ('running', 'available')
    UNION ALL
    SELECT 'job', kind, count(*), 0, false FROM river_job WHERE `+isRunning+` GROUP BY kind
    UNION ALL
    SELECT 'job', j.kind, 0, count(*), bool_or(q.more OR q.jobs > q.most)
    FROM (SELECT queue, jobs, more, @limit / count(*) OVER () AS most FROM counts WHERE state = 'available') AS q, LATERAL (
        SELECT kind FROM river_job
        WHERE `+isAvailable+` AND queue = q.queue
        ORDER BY priority, scheduled_at, id LIMIT q.most) AS j
    WHERE EXISTS (SELECT FROM limits WHERE base = 'job')
    GROUP BY j.kind
)
SELECT l.base, l.name, l.most, l.key_source, l.key_path, coalesce(sum(a.running), 0)::bigint, coalesce(sum(a.available), 0)::bigint,
       coalesce(bool_or(a.more), false), coalesce(l.per, '0'), coalesce(l.burst, 0),
       CASE WHEN l.per IS NOT NULL AND l.key_source IS NULL THEN coalesce((
           SELECT forge_rate_used(w.starts, w.units, l.per, clock_timestamp()) FROM forge_rate_windows AS w
           WHERE w.scope = l.scope AND w.name = l.name AND w.key = ''), 0) END, l.class = 'node'
FROM limits AS l
LEFT JOIN active AS a ON a.base = l.base AND a.name = l.name
GROUP BY l.base, l.scope, l.name, l.class, l.most, l.key_source, l.key_path, l.per, l.burst
ORDER BY l.base DESC, l.name, l.scope`, "@limit", strconv.Itoa(CountLimit))

// SetLimits replaces the limits in force by these when tx commits. It takes no lock
// if they are already in force.
func (s *Store) SetLimits(ctx context.Context, limits []Limit) error {
	if same, err := s.LimitsInForce(ctx, limits); same || err != nil {
		return err
	}
	rows, err := limitRows(limits)
	if err != nil {
		return err
	}
	if _, err := s.db.Exec(ctx, lockLimitsSQL); err != nil {
		return fmt.Errorf("lock the limits: %w", err)
	}
	if _, err := s.db.Exec(ctx, setLimitsSQL, rows); err != nil {
		return fmt.Errorf("set the limits: %w", err)
	}
	return nil
}

// limitRows returns the rows of forge_limits for the limits.
func limitRows(limits []Limit) ([]limitRow, error) {
	type of struct{ scope, name string }
	newer, lowest := map[of]bool{}, map[of]int{} // whether earlier versions need a row of their own
	for _, l := range limits {
		of := of{l.Scope, l.Name}
		newer[of] = newer[of] || l.Class() != ClassAll
		if most, ok := lowest[of]; !ok || l.Most < most {
			lowest[of] = l.Most
		}
	}
	rows := make([]limitRow, 0, len(limits)+len(lowest))
	for _, l := range limits {
		row, err := l.row(newer[of{l.Scope, l.Name}])
		if err != nil {
			return nil, fmt.Errorf("limit of %s %s: %w", l.Scope, l.Name, err)
		}
		rows = append(rows, row)
	}
	for of, most := range lowest {
		if newer[of] {
			rows = append(rows, limitRow{Scope: of.scope, Name: of.name, Most: most})
		}
	}
	return rows, nil
}

// row returns the row of the limit. amongNewer is whether its queue or kind also has limits that
// earlier versions do not know.
func (l Limit) row(amongNewer bool) (limitRow, error) {
	row := limitRow{Scope: l.Scope, Name: l.Name, Most: l.Most}
	switch l.Class() {
	case ClassRate:
		// PostgreSQL 14 accepts no more than 2147483647 of a unit.
		per := fmt.Sprintf("%d.%06d seconds", l.Per/time.Second, l.Per%time.Second/time.Microsecond)
		row.Scope, row.Per = l.Scope+rateSuffix, &per
		if l.Burst > 0 {
			row.Burst = &l.Burst
		}
	case ClassKey:
		row.Scope = l.Scope + keySuffix
	case ClassNode:
		row.Scope = l.Scope + nodeSuffix
	default:
		if amongNewer {
			row.Scope = l.Scope + allSuffix
		}
	}
	if l.Key == "" {
		return row, nil
	}
	key, err := limitkey.Parse(l.Key)
	if err != nil {
		return row, fmt.Errorf("key %q: %w", l.Key, err)
	}
	source, path := keyColumns(key)
	row.Source, row.Path = &source, path
	return row, nil
}

// Limits returns the limits in force.
func (s *Store) Limits(ctx context.Context) ([]Limit, error) {
	limits, err := postgres.Collect(ctx, s.db, func(row pgx.CollectableRow) (Limit, error) {
		var l Limit
		var source *string
		var path []string
		err := row.Scan(&l.Scope, &l.Name, &l.Most, &source, &path, &l.Per, &l.Burst, &l.PerNode)
		l.Key = keyText(source, path)
		return l, err
	}, limitsSQL)
	if err != nil {
		return nil, fmt.Errorf("read the limits: %w", err)
	}
	return limits, nil
}

// keyText returns the key of a row as it is written, or an empty text.
func keyText(source *string, path []string) string {
	switch {
	case source == nil:
		return ""
	case *source == limitkey.Metadata && slices.Equal(path, []string{KeyCron}):
		return limitkey.Cron
	}
	return limitkey.Key{Source: *source, Path: path}.String()
}

// LimitsInForce reports whether exactly these limits are in force, in any order.
func (s *Store) LimitsInForce(ctx context.Context, limits []Limit) (bool, error) {
	inForce, err := s.Limits(ctx)
	if err != nil {
		return false, err
	}
	return len(inForce) == len(limits) && !slices.ContainsFunc(limits, func(l Limit) bool { return !slices.Contains(inForce, l) }), nil
}

// Usages returns the limits in force with their current use, queues first.
func (s *Store) Usages(ctx context.Context) ([]Usage, error) {
	usages, err := postgres.Collect(ctx, s.db, func(row pgx.CollectableRow) (u Usage, err error) {
		var source *string
		var path []string
		err = row.Scan(&u.Scope, &u.Name, &u.Most, &source, &path, &u.Running, &u.Available, &u.MoreAvailable, &u.Per, &u.Burst, &u.Started, &u.PerNode)
		u.Key = keyText(source, path)
		if u.Per > 0 {
			u.Window = config.Duration(u.Per).String()
		}
		return u, err
	}, usageSQL)
	if err != nil {
		return nil, fmt.Errorf("read the use of the limits: %w", err)
	}
	return usages, nil
}
