package eventstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// Filter selects events.
type Filter struct {
	// Types selects events of these types; empty means all types.
	Types []string
	// Role selects events of this role; empty means all events.
	Role string
	// After and Before select events with ids between them; 0 means no bound.
	After, Before int64
	// From (inclusive) and To (exclusive) select events of a time; zero means no bound.
	From, To time.Time
	// Oldest selects the oldest events, oldest first, instead of the newest.
	Oldest bool
	// Limit is the maximum number of events.
	Limit int
}

const (
	matchSQL = `
WHERE id > $1 AND ($2::bigint = 0 OR id < $2) AND (cardinality($3::text[]) = 0 OR type = ANY ($3))
  AND ($5 = '' OR role = $5)`
	betweenTimesSQL = `
  AND at >= coalesce($6::timestamptz, '-infinity') AND at < coalesce($7::timestamptz, 'infinity')`
	newestSQL = `
ORDER BY id DESC
LIMIT $4`
	oldestSQL = `
ORDER BY id
LIMIT $4`
)

// knownTypesSQL skips from type to type through the index.
const knownTypesSQL = `
WITH RECURSIVE types AS (
    (SELECT type FROM forge_events ORDER BY type LIMIT 1)
    UNION ALL
    SELECT (SELECT type FROM forge_events WHERE type > types.type ORDER BY type LIMIT 1)
    FROM types
    WHERE types.type IS NOT NULL
)
SELECT type FROM types WHERE type IS NOT NULL`

// Find returns the events that match the filter, newest first unless it selects the oldest.
func (s *Store) Find(ctx context.Context, filter Filter) ([]Event, error) {
	types := filter.Types
	if types == nil {
		types = []string{}
	}
	sql, args := selectSQL+matchSQL, []any{filter.After, filter.Before, types, filter.Limit, filter.Role}
	if !filter.From.IsZero() || !filter.To.IsZero() { // in a statement of its own, so that the planner can choose an index by the time
		sql, args = sql+betweenTimesSQL, append(args, zeronull.Timestamptz(filter.From), zeronull.Timestamptz(filter.To))
	}
	if filter.Oldest {
		sql += oldestSQL
	} else {
		sql += newestSQL
	}
	events, err := postgres.Collect(ctx, s.db, pgx.RowToStructByPos[Event], sql, args...)
	if err != nil {
		return nil, fmt.Errorf("find events: %w", err)
	}
	return events, nil
}

// UnknownTypeError means that an event type does not exist.
type UnknownTypeError struct {
	Type string
	// Known are the existing types.
	Known []string
}

func (e *UnknownTypeError) Error() string {
	return fmt.Sprintf("%s: no such events; want %s", e.Type, strings.Join(e.Known, ", "))
}

// CheckTypes returns an [UnknownTypeError] for a type that does not exist. Types in
// the event log that this version does not define exist as well: other versions may
// have written them.
func (s *Store) CheckTypes(ctx context.Context, types []string) error {
	known := Types()
	unknown := func(name string) bool { return !slices.Contains(known, name) }
	if !slices.ContainsFunc(types, unknown) {
		return nil
	}
	written, err := s.recorded(ctx)
	if err != nil {
		return err
	}
	known = slices.Compact(slices.Sorted(slices.Values(append(known, written...))))
	if i := slices.IndexFunc(types, unknown); i >= 0 {
		return &UnknownTypeError{types[i], known}
	}
	return nil
}

// Types returns the types of events that this binary writes.
func Types() []string {
	return []string{
		LeaderElected, LeaderLost, LeaseRenewed, ElectionStarted, LeaderDrilled, NodeJoined, NodeLeft, NodeDead, JobsRescued, ClusterDegraded, ClusterRecovered,
		ConfigApplied, ConfigReloaded, ConfigRejected, CronPaused, CronResumed, CronTriggered, CronBackfilled,
		JobEnqueued, JobCancelled, JobRetried, JobDiscarded, SecondRoundsGiven, DeadLettersDiscarded,
		QueuePaused, QueueResumed, HandOverAsked, NodeDrained, NodeUndrained,
		AlertSilenced, AlertUnsilenced, AlertTried,
		NotificationDelivered, NotificationFailed, IndexRebuilt, LimitStarving, LimitRecovered, HazardFound,
	}
}

// recorded returns the types that the event log contains.
func (s *Store) recorded(ctx context.Context) ([]string, error) {
	types, err := postgres.Collect(ctx, s.db, pgx.RowTo[string], knownTypesSQL)
	if err != nil {
		return nil, fmt.Errorf("list types of events: %w", err)
	}
	return types, nil
}
