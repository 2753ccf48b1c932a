package aggregator

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/postgres"
)

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

// SumQuery selects what Sums adds up. All fields except Label are required.
type SumQuery struct {
	Metric string
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
	return postgres.Select(ctx, s.db, "add up the history of "+q.Metric, scanSum, sumsSQL, q.Point, q.From, q.Label, q.Step.seconds(), q.Metric, q.To)
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
