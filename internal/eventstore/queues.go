package eventstore

import (
	"context"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// QueueChange is a pause or a resumption of a queue.
type QueueChange struct {
	At time.Time `json:"at"`
	// Action is pause or resume.
	Action string `json:"action"`
	By     string `json:"by"`
	Reason string `json:"reason,omitempty"`
	// Jobs is the part of the jobs that was paused or resumed; empty: all.
	Jobs string `json:"jobs,omitempty"`
}

// Paused reports whether the queue was paused.
func (c QueueChange) Paused() bool { return c.Action == "pause" }

// searchedPauses bounds the events of each type in which those of a queue are found.
const searchedPauses = 1000

var queueChangesSQL = `
SELECT at, CASE type WHEN '` + QueuePaused + `' THEN 'pause' ELSE 'resume' END, coalesce(data ->> 'by', ''), coalesce(data ->> 'reason', ''), coalesce(data ->> 'jobs', '')
FROM unnest('{` + QueuePaused + `,` + QueueResumed + `}'::text[]) AS t (wanted), LATERAL (
    SELECT id, at, type, data FROM forge_events WHERE type = t.wanted ORDER BY at DESC, id DESC LIMIT ` + strconv.Itoa(searchedPauses) + `) AS e
WHERE data ->> 'queue' = $1
ORDER BY at DESC, id DESC
LIMIT $2`

// QueueChanges returns at most limit pauses and resumptions of a queue, newest first. It finds
// them among the newest of all queues.
func (s *Store) QueueChanges(ctx context.Context, queue string, limit int) ([]QueueChange, error) {
	return postgres.Select(ctx, s.db, "read the pauses of queue "+queue, pgx.RowToStructByPos[QueueChange], queueChangesSQL, queue, limit)
}
