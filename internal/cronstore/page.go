package cronstore

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// The names of the page come first: the ledger is asked only about those. Letters of
// names and jobs are those of ASCII, whose case the collation C knows in any database.
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

// heldSQL says whether a cron is paused, by hand or by its definition.
const heldSQL = `(c.paused_at IS NOT NULL OR coalesce((c.spec -> 'paused')::boolean, false))`

// Narrow says which of the crons that are configured are wanted.
type Narrow struct {
	// Text is in their names or in their jobs', whatever the case; empty: any.
	Text string
	// Paused are only those that are paused.
	Paused bool
	// DueBefore are only those that are not paused and whose next tick is before it;
	// zero: all.
	DueBefore time.Time
	// Blocked are only those that are not paused and whose newest tick was skipped
	// because of an earlier run.
	Blocked bool
	// After is the name that they come after; empty: from the first.
	After string
	Limit int
}

// Page returns the first crons of those that are wanted, in the order of their names'
// bytes, each as List does.
func Page(ctx context.Context, db Queryer, n Narrow) ([]Cron, error) {
	crons, err := collect(ctx, db, scanListed, pageSQL, n.After, strings.ToLower(n.Text), n.Paused, nullable(n.DueBefore), n.Limit, n.Blocked)
	if err != nil {
		return nil, fmt.Errorf("list a page of crons: %w", err)
	}
	return crons, nil
}
