package eventstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Filter chooses events.
type Filter struct {
	// Types of the events; none means all.
	Types []string
	// After is an id: only later ones.
	After int64
	// Limit is the most events, the newest.
	Limit int
}

const findSQL = selectSQL + `
WHERE id > $1 AND (cardinality($2::text[]) = 0 OR type = ANY ($2))
ORDER BY id DESC
LIMIT $3`

const knownTypesSQL = `SELECT DISTINCT type FROM forge_events ORDER BY type`

// Find returns the events that the filter chooses, newest first.
func Find(ctx context.Context, db Queryer, filter Filter) ([]Event, error) {
	types := filter.Types
	if types == nil {
		types = []string{}
	}
	events, err := collect(ctx, db, pgx.RowToStructByPos[Event], findSQL, filter.After, types, filter.Limit)
	if err != nil {
		return nil, fmt.Errorf("find events: %w", err)
	}
	return events, nil
}

// Types lists the types of events that this binary writes.
func Types() []string {
	return []string{
		LeaderElected, LeaderLost, ElectionStarted, LeaderDrilled, NodeJoined, NodeLeft, NodeDead, ClusterDegraded, ClusterRecovered,
		ConfigApplied, ConfigReloaded, ConfigRejected, CronPaused, CronResumed, CronTriggered, CronBackfilled,
		JobEnqueued, JobCancelled, JobRetried, JobDiscarded, SecondRoundsGiven, DeadLettersDiscarded,
		QueuePaused, QueueResumed, HandOverAsked, NodeDrained, NodeUndrained,
		AlertSilenced, AlertUnsilenced, AlertTried,
		NotificationDelivered, NotificationFailed, IndexRebuilt,
	}
}

// Recorded lists the types that the diary holds.
func Recorded(ctx context.Context, db Queryer) ([]string, error) {
	types, err := collect(ctx, db, pgx.RowTo[string], knownTypesSQL)
	if err != nil {
		return nil, fmt.Errorf("list types of events: %w", err)
	}
	return types, nil
}
