package aggregator

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/postgres"
)

const rollupColumns = `metric, labels, at, covered, value, coalesce(least, 0), coalesce(greatest, 0), last, histogram`

// The aggregator owns the sums; these statements only read them.
const nextPointSQL = `SELECT min(at) FROM forge_metrics_cluster WHERE at >= $1`

const pointsSQL = `
SELECT ` + pointColumns + `
FROM forge_metrics_cluster
WHERE at < $2 AND at >= coalesce((SELECT max(at) FROM forge_metrics_cluster WHERE at < $1), $1) - $3::interval
ORDER BY at`

const lastSQL = `SELECT max(at) FROM forge_metrics_rollups WHERE step = $1`

const nextRowSQL = `SELECT min(at) FROM forge_metrics_rollups WHERE step = $1 AND at >= $2`

const rowsSQL = `
SELECT ` + rollupColumns + `
FROM forge_metrics_rollups
WHERE step = $1 AND at >= $2 AND at < $3
ORDER BY at`

const rangeSQL = `
SELECT ` + rollupColumns + `
FROM forge_metrics_rollups
WHERE step = $1 AND metric = $2 AND labels @> $3 AND at >= $4 AND at < $5
ORDER BY labels, at
LIMIT $6`

// The columns are the keys of a Row. Neither a 0 nor the bounds of a counter have a key.
const writeRollupsSQL = `
INSERT INTO forge_metrics_rollups (step, metric, labels, at, covered, value, least, greatest, last, histogram)
SELECT $1, metric, coalesce(labels, '{}'), $2, covered_seconds, value, min, max, last, histogram
FROM jsonb_to_recordset($3) AS rows (
    metric text, labels jsonb, covered_seconds float8, value float8, min float8, max float8, last float8, histogram jsonb)
ON CONFLICT (step, metric, labels, at) DO UPDATE
SET covered = excluded.covered, value = excluded.value, least = excluded.least, greatest = excluded.greatest,
    last = excluded.last, histogram = excluded.histogram`

const pruneRollupsSQL = `
DELETE FROM forge_metrics_rollups
WHERE ctid = ANY (ARRAY (
    SELECT ctid FROM forge_metrics_rollups WHERE step = $1 AND at < $2 ORDER BY at LIMIT $3))`

// Finished is a window that has ended and is to be written.
type Finished struct {
	// End is the end of the window; zero: none has ended.
	End   time.Time
	step  Step
	start time.Time
	rows  []Row
	// shares are those of a minute.
	shares []minuteShare
}

// Store reads the totals, and reads and writes the rollups.
type Store struct{ db postgres.DB }

// NewStore returns the store of a database.
func NewStore(db postgres.DB) *Store { return &Store{db} }

// Next computes the first window of a step that begins at or after from and has
// ended at until. holds is how long a sum is valid if it is not written again. It
// needs no transaction: the rows that it reads do not change any more.
func (s *Store) Next(ctx context.Context, step Step, from, until time.Time, holds time.Duration) (Finished, error) {
	next, err := s.next(ctx, step, from, until, holds)
	if err != nil {
		return Finished{}, fmt.Errorf("roll metrics up to %s: %w", step, err)
	}
	return next, nil
}

// Write writes a window.
func (s *Store) Write(ctx context.Context, f Finished) error {
	if err := s.writeShares(ctx, f); err != nil || len(f.rows) == 0 {
		return err
	}
	return postgres.Exec(ctx, s.db, "roll metrics up to "+f.step.String(), writeRollupsSQL, f.step.seconds(), f.start, f.rows)
}

func (s *Store) next(ctx context.Context, step Step, from, until time.Time, holds time.Duration) (Finished, error) {
	sql, args := nextPointSQL, []any{from}
	if step != Minute {
		sql, args = nextRowSQL, []any{finer(step).seconds(), from}
	}
	first, err := s.instant(ctx, sql, args...)
	start := step.Start(first)
	end := start.Add(time.Duration(step))
	if err != nil || first.IsZero() || end.After(until) {
		return Finished{}, err
	}
	var rows []Row
	if step == Minute {
		rows, err = s.window(ctx, start, end, holds)
	} else {
		rows, err = postgres.Collect(ctx, s.db, pgx.RowToStructByPos[Row], rowsSQL, finer(step).seconds(), start, end)
		rows = Merge(rows, start)
	}
	rows, shares := divide(rows)
	return Finished{end, step, start, rows, shares}, err
}

func finer(step Step) Step {
	if step == Hour {
		return FiveMinutes
	}
	return Minute
}

// window also reads the sums before the window: those written within holds before
// the last sum.
func (s *Store) window(ctx context.Context, start, end time.Time, holds time.Duration) ([]Row, error) {
	points, err := postgres.Collect(ctx, s.db, pgx.RowToStructByPos[Point], pointsSQL, start, end, holds)
	if err != nil || len(points) == 0 {
		return nil, err
	}
	before := points[0].At.Before(start)
	if !before { // the first window: the initial values were counted in it
		last, err := s.Last(ctx, Minute)
		return Window(points, start, Minute, holds, last.IsZero()), err
	}
	return Window(points, start, Minute, holds, true), nil
}

// Last returns the beginning of the newest window of a step; zero if there is none.
func (s *Store) Last(ctx context.Context, step Step) (time.Time, error) {
	at, err := s.instant(ctx, lastSQL, step.seconds())
	if err != nil {
		return time.Time{}, fmt.Errorf("read the last window of %s: %w", step, err)
	}
	return at, nil
}

// instant returns the zero time for null.
func (s *Store) instant(ctx context.Context, sql string, args ...any) (time.Time, error) {
	var at zeronull.Timestamptz
	err := s.db.QueryRow(ctx, sql, args...).Scan(&at)
	return time.Time(at), err
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
func (s *Store) Range(ctx context.Context, q Query) ([]Row, error) {
	if q.Labels == nil {
		q.Labels = map[string]string{}
	}
	return postgres.Select(ctx, s.db, "read the history of "+q.Metric, pgx.RowToStructByPos[Row], rangeSQL,
		q.Step.seconds(), q.Metric, q.Labels, q.From, q.To, q.Limit)
}

// Prune deletes at most limit rollups and as many shares of a step whose windows began before
// an instant, the oldest first.
func (s *Store) Prune(ctx context.Context, step Step, before time.Time, limit int) (int64, error) {
	rollups, err := postgres.Affected(ctx, s.db, "prune windows of "+step.String(), pruneRollupsSQL, step.seconds(), before, limit)
	if err != nil {
		return 0, err
	}
	shares, err := postgres.Affected(ctx, s.db, "prune shares of "+step.String(), pruneSharesSQL, step.seconds(), before, limit)
	return rollups + shares, err
}

// Buckets are added up individually: nodes of different versions may have different
// buckets.
const sumsSQL = `
WITH windows AS (
    SELECT date_bin($1, at, $2) AS point, coalesce(labels ->> $3, '') AS label, at, value, histogram
    FROM forge_metrics_rollups
    WHERE step = $4 AND metric = $5 AND at >= $2 AND at < $6
), buckets AS (
    SELECT point, label, jsonb_object_agg(bound, n) AS counts
    FROM (
        SELECT point, label, bound, sum(n::float8) AS n
        FROM windows, jsonb_each_text(nullif(histogram -> 'b', 'null')) AS bucket (bound, n)
        GROUP BY point, label, bound
    ) AS bucket
    GROUP BY point, label
), sums AS (
    SELECT point, label, sum(value) AS value, count(DISTINCT at) AS windows, max(at) AS newest,
           sum((histogram ->> 's')::float8) AS histogram
    FROM windows
    GROUP BY point, label
)
SELECT point, label, value, windows, newest, histogram, counts
FROM sums
LEFT JOIN buckets USING (point, label)
ORDER BY label, point`

// A series is read by the primary key, without the other series of its metric.
var seriesSumsSQL = strings.Replace(sumsSQL, "metric = $5", "metric = $5 AND labels = ANY ($7::text[]::jsonb[])", 1)

// SumQuery selects what Sums adds up. All fields except Label and Series are required.
type SumQuery struct {
	Metric string
	// Series are all labels of each series; nil: all series of the metric.
	Series []map[string]string
	// Label is the label by whose values the series are grouped; empty: all series
	// are added up.
	Label    string
	From, To time.Time
	Step     Step
	// Point is the length of a point: a multiple of the step.
	Point time.Duration
}

// Sum is the sum of the windows of a point.
type Sum struct {
	// At is when the point begins.
	At time.Time
	// Label is the value of the requested label; empty: the series do not have the
	// label.
	Label string
	// Value is the sum over all windows of all series.
	Value float64
	// Windows is the number of windows, counted once for all series, and Newest is
	// when the last of them begins.
	Windows int
	Newest  time.Time
	// Histogram is the sum of the histograms.
	Histogram *metrics.Histogram
}

// Sums adds up the windows that begin between From (inclusive) and To (exclusive),
// by points that start at From.
func (s *Store) Sums(ctx context.Context, q SumQuery) ([]Sum, error) {
	what, args := "add up the history of "+q.Metric, []any{q.Point, q.From, q.Label, q.Step.seconds(), q.Metric, q.To}
	if q.Series == nil {
		return postgres.Select(ctx, s.db, what, scanSum, sumsSQL, args...)
	}
	series := make([]string, len(q.Series))
	for i, labels := range q.Series {
		encoded, err := json.Marshal(labels)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
		series[i] = string(encoded)
	}
	return postgres.Select(ctx, s.db, what, scanSum, seriesSumsSQL, append(args, series)...)
}

func scanSum(row pgx.CollectableRow) (s Sum, err error) {
	var given *float64
	var counts []byte
	if err := row.Scan(&s.At, &s.Label, &s.Value, &s.Windows, &s.Newest, &given, &counts); err != nil || given == nil {
		return s, err
	}
	s.Histogram = &metrics.Histogram{Sum: *given}
	if counts == nil {
		return s, nil
	}
	return s, json.Unmarshal(counts, &s.Histogram.Buckets)
}
