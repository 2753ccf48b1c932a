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
ORDER BY at, id
LIMIT $4`

// Between returns at most limit events of some types (none: of all types) from one instant to
// another, oldest first.
func (s *Store) Between(ctx context.Context, from, to time.Time, types []string, limit int) ([]Event, error) {
	if types == nil {
		types = []string{}
	}
	events, err := postgres.Collect(ctx, s.db, pgx.RowToStructByPos[Event], betweenSQL, from, to, types, limit)
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
