package compactor

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// The bounds are parsed from PostgreSQL's text; an open end has none. Other styles than ISO
// may name the time zone, and several zones have the same name. The privileges are those for
// creating and dropping partitions.
const layoutSQL = `
WITH style AS MATERIALIZED (SELECT set_config('datestyle', 'ISO', true))
SELECT c.oid::regclass::text,
       (regexp_match(b.bound, 'FROM \(''([^'']+)''\)'))[1]::timestamptz,
       (regexp_match(b.bound, 'TO \(''([^'']+)''\)'))[1]::timestamptz,
       coalesce(pg_total_relation_size(c.oid), 0), greatest(c.reltuples, 0)::bigint,
       pg_has_role(c.relowner, 'USAGE') AND pg_has_role(p.relowner, 'USAGE') AND has_schema_privilege(p.relnamespace, 'CREATE')
FROM style
CROSS JOIN pg_class p
JOIN pg_inherits i ON i.inhparent = p.oid
JOIN pg_class c ON c.oid = i.inhrelid
CROSS JOIN LATERAL (SELECT pg_get_expr(c.relpartbound, c.oid) AS bound) AS b
WHERE p.oid = $1::text::regclass
ORDER BY 2 NULLS FIRST`

// Partition is one partition of a table that is partitioned by time. Its name is a
// quoted SQL identifier, with its schema if needed.
type Partition struct {
	Name string
	// From is inclusive, To exclusive; zero means no bound.
	From, To time.Time
	Bytes    int64 // including its indexes
	Rows     int64 // estimate
	// Owned is whether this user may drop it, and create others.
	Owned bool
}

// Layout holds the partitions of a table in order. The first has no lower bound.
// The last has no upper bound and is meant to stay empty: it takes rows beyond the
// others if no partitions were created for a long time.
type Layout []Partition

// Layout returns the partitions of a table, or none if it is not partitioned.
func (s *Store) Layout(ctx context.Context, table string) (Layout, error) {
	return postgres.Select(ctx, s.db, "read the partitions of "+table, func(row pgx.CollectableRow) (p Partition, err error) {
		return p, row.Scan(&p.Name, (*zeronull.Timestamptz)(&p.From), (*zeronull.Timestamptz)(&p.To), &p.Bytes, &p.Rows, &p.Owned)
	}, layoutSQL, table)
}

// Owned reports whether this user may change the partitions.
func (l Layout) Owned() bool {
	return len(l) > 0 && !slices.ContainsFunc(l, func(p Partition) bool { return !p.Owned })
}

const day = 24 * time.Hour

// widths are the possible durations of a partition. Each divides the next, except for
// 28 days, so that boundaries remain comparable when a retention changes.
var widths = []time.Duration{time.Hour, 6 * time.Hour, day, 7 * day, 28 * day, 91 * day, 364 * day}

// Width returns the duration of a partition for a retention. It results in four to
// ten partitions with rows: statements that cannot exclude partitions read all of
// them.
func Width(keep time.Duration) time.Duration {
	width := widths[0]
	for _, w := range widths {
		if w <= keep/4 {
			width = w
		}
	}
	return width
}

// ahead is the number of widths, including the present one, for which partitions
// exist after a cut. New ones are created when half of them are used.
const ahead = 4

// Cuts returns where the last partition is to be cut, oldest first: it ends at the
// first of them, and the new last partition begins at the last of them. Without
// cuts there are enough partitions. newest is the time of the newest row in the
// last partition, before which it cannot end; zero if it is empty.
func (l Layout) Cuts(now, newest time.Time, width time.Duration) []time.Time {
	begins := l[len(l)-1].From
	if begins.After(now.Add(ahead / 2 * width)) {
		return nil
	}
	end := now.Truncate(width).Add(ahead * width)
	cuts := []time.Time{latest(now, begins, newest).Truncate(width).Add(width)}
	for cuts[len(cuts)-1].Before(end) {
		cuts = append(cuts, cuts[len(cuts)-1].Add(width))
	}
	return cuts
}

// Expired returns how many of the first partitions ended before an instant. It
// returns 0 if they were already replaced and hold less than large bytes.
func (l Layout) Expired(before time.Time, large int64) int {
	n := 0
	for n < len(l) && !l[n].To.IsZero() && !l[n].To.After(before) {
		n++
	}
	if n == 1 && l[0].From.IsZero() && l[0].Bytes < large {
		return 0
	}
	return n
}

// Span is the time from From (inclusive) to To (exclusive); a zero From means no
// lower bound.
type Span struct{ From, To time.Time }

// Sweepable returns the spans in which rows before an instant are to be deleted
// individually: those of small partitions, of the first partition, and, if crowded
// means that they hold too many rows to keep, of expired partitions. Other large
// partitions are dropped as a whole later.
func (l Layout) Sweepable(before time.Time, large int64, crowded bool) []Span {
	owned := l.Owned()
	var spans []Span
	for _, p := range l {
		if !p.From.Before(before) {
			break
		}
		span := Span{p.From, before}
		over := !p.To.IsZero() && !p.To.After(before)
		if over {
			span.To = p.To
		}
		if waits := owned && p.Bytes >= large && !p.From.IsZero(); waits && (!over || !crowded) {
			continue
		}
		spans = append(spans, span)
	}
	return spans
}
