package rollupstore

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const columns = `metric, labels, at, covered, value, coalesce(least, 0), coalesce(greatest, 0), last, histogram`

// The aggregator owns the sums; these statements only read them.
const nextPointSQL = `SELECT min(at) FROM forge_metrics_cluster WHERE at >= $1`

const pointsSQL = `
SELECT metric, labels, value, histogram, at
FROM forge_metrics_cluster
WHERE at < $2 AND at >= coalesce((SELECT max(at) FROM forge_metrics_cluster WHERE at < $1), $1) - $3::interval
ORDER BY at`

const lastSQL = `SELECT max(at) FROM forge_metrics_rollups WHERE step = $1`

const nextRowSQL = `SELECT min(at) FROM forge_metrics_rollups WHERE step = $1 AND at >= $2`

const rowsSQL = `
SELECT ` + columns + `
FROM forge_metrics_rollups
WHERE step = $1 AND at >= $2 AND at < $3
ORDER BY at`

const rangeSQL = `
SELECT ` + columns + `
FROM forge_metrics_rollups
WHERE step = $1 AND metric = $2 AND labels @> $3 AND at >= $4 AND at < $5
ORDER BY labels, at
LIMIT $6`

const writeSQL = `
INSERT INTO forge_metrics_rollups (step, metric, labels, at, covered, value, least, greatest, last, histogram)
SELECT $1, metric, labels::jsonb, $2, covered, value, least, greatest, last, histogram::jsonb
FROM unnest($3::text[], $4::text[], $5::float8[], $6::float8[], $7::float8[], $8::float8[], $9::float8[], $10::text[])
    AS rows (metric, labels, covered, value, least, greatest, last, histogram)
ON CONFLICT (step, metric, labels, at) DO UPDATE
SET covered = excluded.covered, value = excluded.value, least = excluded.least, greatest = excluded.greatest,
    last = excluded.last, histogram = excluded.histogram`

const pruneSQL = `
DELETE FROM forge_metrics_rollups
WHERE ctid = ANY (ARRAY (
    SELECT ctid FROM forge_metrics_rollups WHERE step = $1 AND at < $2 ORDER BY at LIMIT $3))`

// Queryer runs queries.
type Queryer interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Finished is a window that has ended and is to be written.
type Finished struct {
	// End is the end of the window; zero: none has ended.
	End   time.Time
	step  Step
	start time.Time
	rows  []Row
}

// Next computes the first window of a step that begins at or after from and has
// ended at until. holds is how long a sum is valid if it is not written again. It
// needs no transaction: the rows that it reads do not change any more.
func Next(ctx context.Context, db Queryer, step Step, from, until time.Time, holds time.Duration) (Finished, error) {
	next, err := next(ctx, db, step, from, until, holds)
	if err != nil {
		return Finished{}, fmt.Errorf("roll metrics up to %s: %w", step, err)
	}
	return next, nil
}

// Write writes the window.
func (f Finished) Write(ctx context.Context, tx pgx.Tx) error {
	if err := write(ctx, tx, f.step, f.start, f.rows); err != nil {
		return fmt.Errorf("roll metrics up to %s: %w", f.step, err)
	}
	return nil
}

func next(ctx context.Context, db Queryer, step Step, from, until time.Time, holds time.Duration) (Finished, error) {
	sql, args := nextPointSQL, []any{from}
	if step != Minute {
		sql, args = nextRowSQL, []any{finer(step).seconds(), from}
	}
	first, err := instant(ctx, db, sql, args...)
	start := step.Start(first)
	end := start.Add(time.Duration(step))
	if err != nil || first.IsZero() || end.After(until) {
		return Finished{}, err
	}
	var rows []Row
	if step == Minute {
		rows, err = window(ctx, db, start, end, holds)
	} else {
		rows, err = collect(ctx, db, rowsSQL, finer(step).seconds(), start, end)
		rows = Merge(rows, start)
	}
	return Finished{end, step, start, rows}, err
}

func finer(step Step) Step {
	if step == Hour {
		return FiveMinutes
	}
	return Minute
}

// window also reads the sums before the window: those written within holds before
// the last sum.
func window(ctx context.Context, db Queryer, start, end time.Time, holds time.Duration) ([]Row, error) {
	rows, err := db.Query(ctx, pointsSQL, start, end, holds)
	if err != nil {
		return nil, err
	}
	points, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (p Point, err error) {
		return p, row.Scan(&p.Name, &p.Labels, &p.Value, &p.Histogram, &p.At)
	})
	if err != nil || len(points) == 0 {
		return nil, err
	}
	before := points[0].At.Before(start)
	if !before { // the first window: the initial values were counted in it
		last, err := Last(ctx, db, Minute)
		return Window(points, start, Minute, holds, last.IsZero()), err
	}
	return Window(points, start, Minute, holds, true), nil
}

// Last returns the beginning of the newest window of a step; zero if there is none.
func Last(ctx context.Context, db Queryer, step Step) (time.Time, error) {
	at, err := instant(ctx, db, lastSQL, step.seconds())
	if err != nil {
		return time.Time{}, fmt.Errorf("read the last window of %s: %w", step, err)
	}
	return at, nil
}

// instant returns the zero time for null.
func instant(ctx context.Context, db Queryer, sql string, args ...any) (time.Time, error) {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return time.Time{}, err
	}
	at, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[*time.Time])
	if err != nil || at == nil {
		return time.Time{}, err
	}
	return *at, nil
}

func collect(ctx context.Context, db Queryer, sql string, args ...any) ([]Row, error) {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Row])
}

func write(ctx context.Context, tx pgx.Tx, step Step, start time.Time, rows []Row) error {
	n := len(rows)
	metric, labels, histogram := make([]string, n), make([]string, n), make([]*string, n)
	covered, value, last := make([]float64, n), make([]float64, n), make([]float64, n)
	least, greatest := make([]*float64, n), make([]*float64, n)
	for i, row := range rows {
		if row.Labels == nil {
			row.Labels = map[string]string{}
		}
		body, err := json.Marshal(row.Labels)
		if err != nil {
			return err
		}
		metric[i], labels[i], covered[i], value[i], last[i] = row.Metric, string(body), row.Covered, row.Value, row.Last
		if !row.Counter() {
			least[i], greatest[i] = &row.Least, &row.Greatest
		}
		if row.Histogram == nil {
			continue
		}
		if body, err = json.Marshal(row.Histogram); err != nil {
			return err
		}
		histogram[i] = new(string(body))
	}
	_, err := tx.Exec(ctx, writeSQL, step.seconds(), start, metric, labels, covered, value, least, greatest, last, histogram)
	return err
}

// Query selects the rows of Range. All fields except Labels are required.
type Query struct {
	Metric string
	// Labels are labels that a series must have; it may have others.
	Labels   map[string]string
	From, To time.Time
	Step     Step
	// Limit is the maximum number of rows.
	Limit int
}

// StepFor returns the finest step that divides a period into at most some fifteen
// hundred windows.
func StepFor(stretch time.Duration) Step {
	for _, step := range Steps {
		if stretch <= 25*60*time.Duration(step) {
			return step
		}
	}
	return Hour
}

// Range returns the windows that begin between From (inclusive) and To (exclusive),
// series by series and oldest first.
func Range(ctx context.Context, db Queryer, q Query) ([]Row, error) {
	if q.Labels == nil {
		q.Labels = map[string]string{}
	}
	rows, err := collect(ctx, db, rangeSQL, q.Step.seconds(), q.Metric, q.Labels, q.From, q.To, q.Limit)
	if err != nil {
		return nil, fmt.Errorf("read the history of %s: %w", q.Metric, err)
	}
	return rows, nil
}

// Prune deletes at most limit rows of a step whose windows began before an instant,
// the oldest first.
func Prune(ctx context.Context, tx pgx.Tx, step Step, before time.Time, limit int) (int64, error) {
	tag, err := tx.Exec(ctx, pruneSQL, step.seconds(), before, limit)
	if err != nil {
		return 0, fmt.Errorf("prune windows of %s: %w", step, err)
	}
	return tag.RowsAffected(), nil
}
