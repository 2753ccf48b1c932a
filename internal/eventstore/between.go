package eventstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/postgres"
)

const betweenSQL = selectSQL + `
WHERE at >= $1 AND at <= $2 AND (cardinality($3::text[]) = 0 OR type = ANY ($3))
  AND ($5 = '' AND $6 = '' OR role = $5 OR node_id = $6)
ORDER BY at, id
LIMIT $4`

// Among selects events. Without types it selects those of all types, and without a role and a
// node those of all. With both it selects events of the role and those of the node.
type Among struct {
	Types        []string
	Role, NodeID string
	// Limit is the maximum number of events.
	Limit int
}

// Between returns events from one instant to another, oldest first.
func (s *Store) Between(ctx context.Context, from, to time.Time, among Among) ([]Event, error) {
	if among.Types == nil {
		among.Types = []string{}
	}
	events, err := postgres.Collect(ctx, s.db, pgx.RowToStructByPos[Event], betweenSQL, from, to, among.Types, among.Limit, among.Role, among.NodeID)
	if err != nil {
		return nil, fmt.Errorf("read events between two instants: %w", err)
	}
	return events, nil
}

// Rescued is the data of a JobsRescued event: running jobs of a lost process that the
// scheduler's leader has released.
type Rescued struct {
	Incarnation string `json:"incarnation"`
	// Cause is how the process was lost.
	Cause string `json:"cause"`
	Jobs  int    `json:"jobs"`
	// Available, Cancelled and Discarded add up to Jobs.
	Available int `json:"available"`
	Cancelled int `json:"cancelled,omitempty"`
	Discarded int `json:"discarded,omitempty"`
	// IDs are the ids of some of the jobs.
	IDs []int64 `json:"ids"`
}
