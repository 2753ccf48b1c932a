package jobstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// Scopes of a limit.
const (
	// ScopeQueue is the scope of all jobs of a queue.
	ScopeQueue = "queue"
	// ScopeJob is the scope of all jobs of a kind, in any queue.
	ScopeJob = "job"
)

// Limit is the maximum number of jobs of a queue or of a kind that run at once.
type Limit struct {
	Scope string `json:"scope"`
	Name  string `json:"name"`
	Most  int    `json:"limit"`
}

// Usage is a limit with its current use.
type Usage struct {
	Limit
	// Running is the number of places taken, Available the number of available jobs
	// under the limit, among the first CountLimit of each queue.
	Running   int64 `json:"running"`
	Available int64 `json:"available"`
	// MoreAvailable is whether there may be more available jobs.
	MoreAvailable bool `json:"more_available,omitempty"`
}

// Places is how many jobs of a queue and kind hold a place.
type Places struct {
	Queue string
	Kind  string
	Jobs  int
}

// Claims lock rows of several limits in one order; with this lock, the change does
// not have to follow that order.
const lockLimitsSQL = `LOCK TABLE forge_limits IN EXCLUSIVE MODE`

const setLimitsSQL = `
WITH wanted AS (
    SELECT * FROM unnest($1::text[], $2::text[], $3::integer[]) AS w (scope, name, most)
), gone AS (
    DELETE FROM forge_limits AS l
    WHERE NOT EXISTS (SELECT FROM wanted AS w WHERE w.scope = l.scope AND w.name = l.name)
)
INSERT INTO forge_limits (scope, name, most)
SELECT scope, name, most FROM wanted
ON CONFLICT (scope, name) DO UPDATE SET most = excluded.most`

const limitsSQL = `SELECT scope, name, most FROM forge_limits ORDER BY scope, name`

// Offered jobs that are still available will be claimed, or offered again.
const placesSQL = `
SELECT queue, kind, count(*)
FROM (
    SELECT queue, kind
    FROM river_job
    WHERE ` + isRunning + ` AND (queue = ANY ($1::text[]) OR kind = ANY ($2::text[]))
    UNION ALL
    SELECT queue, kind
    FROM river_job
    WHERE id = ANY ($3::bigint[]) AND state::text = 'available'
) AS held
GROUP BY queue, kind`

// usageSQL reads the jobs of queues with a limit, and of all queues if a kind has one. Only their
// rows have the kind.
var usageSQL = openCountsSQL + strings.ReplaceAll(`, active AS MATERIALIZED (
    SELECT q.queue, j.kind, 0 AS running, count(*) AS available, q.more
    FROM counts AS q, LATERAL (
        SELECT kind FROM river_job
        WHERE state = 'available' AND `+isOpen+` AND queue = q.queue
        ORDER BY priority, scheduled_at, id LIMIT @limit) AS j
    WHERE q.state = 'available' AND EXISTS (
        SELECT FROM forge_limits AS l WHERE l.scope = 'job' OR l.name = q.queue)
    GROUP BY q.queue, j.kind, q.more
    UNION ALL
    SELECT queue, kind, count(*), 0, false FROM river_job WHERE `+isRunning+` GROUP BY queue, kind
)
SELECT l.scope, l.name, l.most, coalesce(sum(a.running), 0)::bigint, coalesce(sum(a.available), 0)::bigint,
       coalesce(bool_or(a.more), false)
FROM forge_limits AS l
LEFT JOIN active AS a ON l.name = CASE l.scope WHEN 'queue' THEN a.queue ELSE a.kind END
GROUP BY l.scope, l.name, l.most
ORDER BY l.scope DESC, l.name`, "@limit", strconv.Itoa(CountLimit))

// SetLimits replaces the limits in force by these when tx commits. It takes no lock
// if they are already in force.
func (s *Store) SetLimits(ctx context.Context, limits []Limit) error {
	if same, err := s.LimitsInForce(ctx, limits); same || err != nil {
		return err
	}
	scopes, names, most := make([]string, len(limits)), make([]string, len(limits)), make([]int, len(limits))
	for i, limit := range limits {
		scopes[i], names[i], most[i] = limit.Scope, limit.Name, limit.Most
	}
	if _, err := s.db.Exec(ctx, lockLimitsSQL); err != nil {
		return fmt.Errorf("lock the limits: %w", err)
	}
	if _, err := s.db.Exec(ctx, setLimitsSQL, scopes, names, most); err != nil {
		return fmt.Errorf("set the limits: %w", err)
	}
	return nil
}

// Limits returns the limits in force.
func (s *Store) Limits(ctx context.Context) ([]Limit, error) {
	limits, err := postgres.Collect(ctx, s.db, pgx.RowToStructByPos[Limit], limitsSQL)
	if err != nil {
		return nil, fmt.Errorf("read the limits: %w", err)
	}
	return limits, nil
}

// LimitsInForce reports whether exactly these limits are in force, in any order.
func (s *Store) LimitsInForce(ctx context.Context, limits []Limit) (bool, error) {
	inForce, err := s.Limits(ctx)
	if err != nil {
		return false, err
	}
	return len(inForce) == len(limits) && !slices.ContainsFunc(limits, func(l Limit) bool { return !slices.Contains(inForce, l) }), nil
}

// PlacesTaken counts the running jobs of these queues and kinds, and those of the offered
// ids that are still available.
func (s *Store) PlacesTaken(ctx context.Context, queues, kinds []string, offered []int64) ([]Places, error) {
	places, err := postgres.Collect(ctx, s.db, pgx.RowToStructByPos[Places], placesSQL, queues, kinds, offered)
	if err != nil {
		return nil, fmt.Errorf("count the places taken: %w", err)
	}
	return places, nil
}

// Usages returns the limits in force with their current use, queues first.
func (s *Store) Usages(ctx context.Context) ([]Usage, error) {
	usages, err := postgres.Collect(ctx, s.db, func(row pgx.CollectableRow) (u Usage, err error) {
		return u, row.Scan(&u.Scope, &u.Name, &u.Most, &u.Running, &u.Available, &u.MoreAvailable)
	}, usageSQL)
	if err != nil {
		return nil, fmt.Errorf("read the use of the limits: %w", err)
	}
	return usages, nil
}
