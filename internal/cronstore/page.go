package cronstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// The names of the page are selected first: the ledger is read only for these. Case
// is folded for ASCII letters in names and jobs, which the collation C supports in
// any database.
const pageSQL = `
WITH page AS (
    SELECT *
    FROM forge_crons AS c
    WHERE c.removed_at IS NULL AND c.name COLLATE "C" > $1
      AND ($2 = '' OR strpos(lower((c.name || ' ' || coalesce(c.spec ->> 'job', '')) COLLATE "C"), $2) > 0)
      AND (NOT $3 OR ` + heldSQL + `)
      AND ($4::timestamptz IS NULL OR c.next_tick < $4 AND NOT ` + heldSQL + `)
      AND (NOT $6 OR c.blocked_by IS NOT NULL AND NOT ` + heldSQL + `)
    ORDER BY c.name COLLATE "C"
    LIMIT $5
)
SELECT ` + listColumns + `
FROM page AS c` + newestRowSQL + `
ORDER BY c.name COLLATE "C"`

// heldSQL is whether a cron is paused, by hand or by its definition.
const heldSQL = `(c.paused_at IS NOT NULL OR coalesce((c.spec -> 'paused')::boolean, false))`

// Narrow selects configured crons.
type Narrow struct {
	// Text is a part of their names or of their jobs' names, in any case; empty:
	// any.
	Text string
	// Paused selects only paused crons.
	Paused bool
	// DueBefore selects only crons that are not paused and whose next tick is
	// before it; zero: all.
	DueBefore time.Time
	// Blocked selects only crons that are not paused and whose newest tick was
	// skipped because of an earlier run.
	Blocked bool
	// After selects crons after this name; empty: all.
	After string
	Limit int
}

// Page returns the first crons that match, ordered by the bytes of their names,
// with the same fields as List.
func (s *Store) Page(ctx context.Context, n Narrow) ([]Cron, error) {
	crons, err := postgres.Collect(ctx, s.db, scanListed, pageSQL, n.After, strings.ToLower(n.Text), n.Paused, nullable(n.DueBefore), n.Limit, n.Blocked)
	if err != nil {
		return nil, fmt.Errorf("list a page of crons: %w", err)
	}
	return crons, nil
}
