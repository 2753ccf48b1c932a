package jobstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// RateWindow is what has started of a rate, for one value of its key.
type RateWindow struct {
	Scope string
	Name  string
	Key   string
	// Starts are the times of starts that may still count, the earliest first, and Units their
	// units. Starts that are close to each other are one, at the time of the last.
	Starts []time.Time
	Units  []int64
	// BurstStarts and BurstUnits are the same for the burst.
	BurstStarts []time.Time
	BurstUnits  []int64
	// Now is the time of the database's clock.
	Now time.Time
}

const rateWindowsSQL = `
SELECT g.base, g.name, g.key, coalesce(w.starts, '{}'), coalesce(w.units, '{}'), coalesce(w.burst_starts, '{}'), coalesce(w.burst_units, '{}'),
       clock_timestamp()
FROM unnest($1::text[], $2::text[], $3::text[]) AS g (base, name, key)
LEFT JOIN forge_rate_windows AS w ON w.scope = g.base || '` + rateSuffix + `' AND w.name = g.name AND w.key = g.key`

// RateWindows returns the windows of these rates and keys, also those of which nothing has
// started.
func (s *Store) RateWindows(ctx context.Context, of []Places) ([]RateWindow, error) {
	scopes, names, keys := make([]string, len(of)), make([]string, len(of)), make([]string, len(of))
	for i, p := range of {
		scopes[i], names[i], keys[i] = p.Scope, p.Name, p.Key
	}
	windows, err := postgres.Collect(ctx, s.db, pgx.RowToStructByPos[RateWindow], withProtections(rateWindowsSQL), scopes, names, keys)
	if err != nil {
		return nil, fmt.Errorf("read what rates leave: %w", err)
	}
	return windows, nil
}

// Wait returns how long it takes at an instant until a job with these units may start, if
// pending units start before it. It returns false if no such job may ever start.
func (w *RateWindow) Wait(limit Limit, pending, units int, now time.Time) (wait time.Duration, ever bool) {
	if units > limit.Capacity() {
		return 0, false
	}
	wait = spanWait(w.Starts, w.Units, limit.Most-pending-units, limit.Per, now)
	if limit.Burst > 0 {
		wait = max(wait, spanWait(w.BurstStarts, w.BurstUnits, limit.Burst-pending-units, limit.BurstSpan(), now))
	}
	return wait, true
}

// Left returns how many units may start at the time Now.
func (w *RateWindow) Left(limit Limit) int {
	left := limit.Most - int(spanUsed(w.Starts, w.Units, limit.Per, w.Now))
	if limit.Burst > 0 {
		left = min(left, limit.Burst-int(spanUsed(w.BurstStarts, w.BurstUnits, limit.BurstSpan(), w.Now)))
	}
	return max(0, left)
}

// spanUsed returns how many units of a window count at a time.
func spanUsed(starts []time.Time, units []int64, span time.Duration, now time.Time) (used int64) {
	for i, start := range starts {
		if now.Sub(start).Abs() <= span {
			used += units[i]
		}
	}
	return used
}

// spanWait returns how long it takes until at most so many units of a window count. What is
// pending counts for a whole window.
func spanWait(starts []time.Time, units []int64, most int, span time.Duration, now time.Time) time.Duration {
	if most < 0 {
		return span
	}
	used := spanUsed(starts, units, span, now)
	for i, start := range starts {
		if used <= int64(most) {
			break
		}
		if now.Sub(start).Abs() > span {
			continue
		}
		if used -= units[i]; used <= int64(most) {
			return start.Add(span).Sub(now) + time.Microsecond
		}
	}
	return 0
}

// forgetWindowsSQL deletes the windows in some blocks of forge_rate_windows of which nothing has
// counted for a while. Rows that a claim has locked are left for the next call.
const forgetWindowsSQL = `
WITH idle AS MATERIALIZED (
    SELECT w.ctid AS at
    FROM forge_rate_windows AS w
    WHERE w.ctid >= format('(%s,0)', $1::bigint)::tid AND w.ctid < format('(%s,0)', $2::bigint)::tid
      AND w.idle_at < clock_timestamp() - interval '1 minute'
    FOR UPDATE SKIP LOCKED
), forgotten AS (
    DELETE FROM forge_rate_windows WHERE ctid = ANY (ARRAY (SELECT at FROM idle))
)
SELECT pg_relation_size('forge_rate_windows') / current_setting('block_size')::bigint`

// ForgetWindows deletes the windows of which nothing counts any more, in at most limit blocks of
// the table from a block on. It returns the number of blocks of the table. It needs no fence:
// what it deletes has no meaning any more.
func (s *Store) ForgetWindows(ctx context.Context, from int64, limit int) (blocks int64, err error) {
	if err := s.db.QueryRow(ctx, forgetWindowsSQL, from, from+int64(limit)).Scan(&blocks); err != nil {
		return 0, fmt.Errorf("forget windows of rates: %w", err)
	}
	return blocks, nil
}
