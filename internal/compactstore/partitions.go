package compactstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// The bounds are read back from how PostgreSQL writes them for this session; an
// open end has none. The rights are those that making and dropping partitions takes.
const layoutSQL = `
SELECT c.oid::regclass::text,
       (regexp_match(b.bound, 'FROM \(''([^'']+)''\)'))[1]::timestamptz,
       (regexp_match(b.bound, 'TO \(''([^'']+)''\)'))[1]::timestamptz,
       coalesce(pg_total_relation_size(c.oid), 0), greatest(c.reltuples, 0)::bigint,
       pg_has_role(c.relowner, 'USAGE') AND pg_has_role(p.relowner, 'USAGE') AND has_schema_privilege(p.relnamespace, 'CREATE')
FROM pg_class p
JOIN pg_inherits i ON i.inhparent = p.oid
JOIN pg_class c ON c.oid = i.inhrelid
CROSS JOIN LATERAL (SELECT pg_get_expr(c.relpartbound, c.oid) AS bound) AS b
WHERE p.oid = $1::text::regclass
ORDER BY 2 NULLS FIRST`

// Partition is one part of a table that is partitioned by time. Its name is an SQL
// identifier, quoted and with its schema where it must be.
type Partition struct {
	Name string
	// From is in it, To is not; zero: all that is before, or after.
	From, To time.Time
	Bytes    int64 // with its indexes
	Rows     int64 // as estimated
	// Owned says that this user may drop it, and make another.
	Owned bool
}

// Layout are the partitions of a table from the first, which reaches back to the
// beginning, to the last, which is to stay empty: it takes what is beyond the others
// when nobody has made any for long.
type Layout []Partition

// ReadLayout returns the partitions of a table, or none if it is not partitioned.
func ReadLayout(ctx context.Context, db Queryer, table string) (Layout, error) {
	rows, err := db.Query(ctx, layoutSQL, table)
	if err != nil {
		return nil, fmt.Errorf("read the partitions of %s: %w", table, err)
	}
	layout, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (p Partition, err error) {
		var from, to *time.Time
		err = row.Scan(&p.Name, &from, &to, &p.Bytes, &p.Rows, &p.Owned)
		if from != nil {
			p.From = *from
		}
		if to != nil {
			p.To = *to
		}
		return p, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the partitions of %s: %w", table, err)
	}
	return layout, nil
}

// Owned says that this user may change the partitions.
func (l Layout) Owned() bool {
	for _, p := range l {
		if !p.Owned {
			return false
		}
	}
	return len(l) > 0
}

const day = 24 * time.Hour

// widths are how much time a partition may be for. Each divides the next but for the
// days, so that boundaries stay comparable when a retention changes.
var widths = []time.Duration{time.Hour, 6 * time.Hour, day, 7 * day, 28 * day, 91 * day, 364 * day}

// Width is how much time one partition is for, by how long its rows are kept. There
// are few of them, between four and ten that hold rows: statements that cannot know
// where their rows are look into all.
func Width(keep time.Duration) time.Duration {
	width := widths[0]
	for _, w := range widths {
		if w <= keep/4 {
			width = w
		}
	}
	return width
}

// ahead is how many widths, the present one included, there are partitions for after a
// cut; there is another when half of them are used up.
const ahead = 4

// Cuts returns where the last partition is to be cut, oldest first: it becomes the one
// up to the first of them, and the last that there is afterwards begins at the last of
// them. None: there are enough. newest is the instant before which it cannot end, that of
// the newest row in it; zero if it is empty.
func (l Layout) Cuts(now, newest time.Time, width time.Duration) []time.Time {
	begins := l[len(l)-1].From
	if begins.After(now.Add(ahead / 2 * width)) {
		return nil
	}
	end := now.Truncate(width).Add(ahead * width)
	cut := now
	for _, at := range []time.Time{begins, newest} {
		if at.After(cut) {
			cut = at
		}
	}
	cuts := []time.Time{cut.Truncate(width).Add(width)}
	for cuts[len(cuts)-1].Before(end) {
		cuts = append(cuts, cuts[len(cuts)-1].Add(width))
	}
	return cuts
}

// Expired returns how many of the first partitions ended before an instant. None: they
// were replaced already, and what they hold is less than large bytes.
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

// Span is from From on and before To; a zero From is the beginning.
type Span struct{ From, To time.Time }

// Sweepable returns what rows before an instant are to be deleted one by one: those of
// small partitions, of the first, and, if crowded says that they hold too much that has
// to stay, of those that are over. Other large ones wait until they go as a whole.
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
