package cronstore

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// Bounds of what is read about one change of the scheduler's leader.
const (
	// gapRows is how many ledger rows of the new term are read, in the order of their ticks.
	gapRows = 20_000
	// startLateness is from when on a tick counts as delayed by the change that was due after
	// the election and before the new leader recorded its first tick, backlogLateness the same
	// for later ticks.
	startLateness, backlogLateness = 100 * time.Millisecond, time.Second
)

// waitedFormat is the reason of a queued tick that fired after all.
const waitedFormat = "It waited %s in the queue."

// WaitedReason returns the Reason of a tick that fired after it was queued.
func WaitedReason(waited time.Duration) string { return fmt.Sprintf(waitedFormat, waited) }

// A row is due when its tick may fire, that is after its jitter: its recording minus its
// lateness. Ticks that waited in the queue of their cron are late for another reason.
const gapSQL = `
WITH recorded AS MATERIALIZED (
    SELECT *, recorded_at - lateness_ms * interval '1 ms' AS due_at
    FROM forge_cron_ticks
    WHERE tick > $1 AND tick <= $2 AND term >= $3 AND verdict NOT IN ('triggered', 'backfilled')
    ORDER BY tick
    LIMIT $6
), began AS (
    SELECT min(recorded_at) AS at FROM recorded WHERE term = $3
), delayed AS MATERIALIZED (
    SELECT recorded.*
    FROM recorded, began
    WHERE (due_at <= $4 OR lateness_ms >= CASE WHEN due_at <= began.at THEN $5 ELSE $7::float8 END) AND reason NOT LIKE 'It waited %'
)`

const gapTotalsSQL = gapSQL + `
SELECT coalesce(sum(n), 0)::bigint, coalesce(max(worst), 0), coalesce(jsonb_object_agg(verdict, n), '{}'),
       (SELECT count(*) = $6 FROM recorded)
FROM (SELECT verdict, sum(tick_count) AS n, max(lateness_ms) AS worst FROM delayed GROUP BY verdict) AS v`

const gapTicksSQL = gapSQL + `
SELECT ` + tickColumns + `
FROM delayed AS t
ORDER BY t.lateness_ms DESC, t.tick, t.cron
LIMIT $8`

// The rows are those of one term, unless it ended soon.
const firstFiredSQL = `
SELECT ` + tickColumns + `
FROM (SELECT * FROM forge_cron_ticks WHERE tick > $1 AND tick <= $2 AND term >= $3 ORDER BY tick LIMIT $4) AS t
WHERE t.term = $3 AND t.verdict IN ` + firing + ` AND t.reason NOT LIKE 'It waited %'
ORDER BY t.recorded_at, t.tick
LIMIT 1`

// Gap is a change of the scheduler's leader, for GapTicks.
type Gap struct {
	// Term is the first term after the gap.
	Term int64
	// After and Until bound the ticks that are considered.
	After, Until time.Time
	// Elected is when the term began.
	Elected time.Time
}

// GapTicks are the ticks that a change of the scheduler's leader delayed: those that were due
// before the new term began, those that were due before the new leader recorded its first tick
// and late by startLateness, and those that were late by backlogLateness.
type GapTicks struct {
	Count    int64             `json:"count"`
	WorstMS  float64           `json:"worst_ms"`
	Verdicts map[Verdict]int64 `json:"verdicts"`
	// Items are the latest of them, the worst first.
	Items []Tick `json:"items"`
	// More reports that there were too many to read all. The first ones were read.
	More bool `json:"more"`
}

// GapTicks returns the ticks that a gap delayed, with at most limit items.
func (s *Store) GapTicks(ctx context.Context, g Gap, limit int) (GapTicks, error) {
	args := []any{g.After, g.Until, g.Term, g.Elected, float64(startLateness.Milliseconds()), gapRows, float64(backlogLateness.Milliseconds())}
	found := GapTicks{Items: []Tick{}}
	var verdicts []byte
	err := s.db.QueryRow(ctx, gapTotalsSQL, args...).Scan(&found.Count, &found.WorstMS, &verdicts, &found.More)
	if err == nil {
		err = json.Unmarshal(verdicts, &found.Verdicts)
	}
	if err != nil {
		return found, fmt.Errorf("count the ticks of a gap: %w", err)
	}
	if found.Count == 0 {
		return found, nil
	}
	items, err := postgres.Select(ctx, s.db, "read the ticks of a gap", scanTick, gapTicksSQL, append(args, limit)...)
	found.Items = append(found.Items, items...)
	return found, err
}

// firstRows is how many ledger rows are searched for the first one that fired.
const firstRows = 1000

// FirstFired returns the first tick that a term fired, among ticks after one instant and up
// to another, and false if there is none.
func (s *Store) FirstFired(ctx context.Context, term int64, after, until time.Time) (Tick, bool, error) {
	return postgres.First(ctx, s.db, "read the first tick of a term", scanTick, firstFiredSQL, after, until, term, firstRows)
}
