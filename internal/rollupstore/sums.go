package rollupstore

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/metrics"
)

// Buckets are added up one by one: nodes of several versions may have others.
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

// SumQuery is what Sums adds up. All but Label are required.
type SumQuery struct {
	Metric string
	// Label is the label by whose values the series are told apart; empty: they are all
	// added to one.
	Label    string
	From, To time.Time
	Step     Step
	// Point is the length of a point: several steps.
	Point time.Duration
}

// Sum is what the windows within a point of time add up to.
type Sum struct {
	// At is where the point begins.
	At time.Time
	// Label is the value of the label that was asked for; empty: the series have none.
	Label string
	// Value adds up those of all windows of all series.
	Value float64
	// Windows is how many windows there were, of however many series, and Newest where
	// the last of them begins.
	Windows int
	Newest  time.Time
	// Histogram is what histograms were given.
	Histogram *metrics.Histogram
}

// Sums adds up the windows that begin from From on and before To, by points of time
// that From begins with.
func Sums(ctx context.Context, db Queryer, q SumQuery) ([]Sum, error) {
	rows, err := db.Query(ctx, sumsSQL, q.Point, q.From, q.Label, q.Step.seconds(), q.Metric, q.To)
	if err != nil {
		return nil, fmt.Errorf("add up the history of %s: %w", q.Metric, err)
	}
	sums, err := pgx.CollectRows(rows, scanSum)
	if err != nil {
		return nil, fmt.Errorf("add up the history of %s: %w", q.Metric, err)
	}
	return sums, nil
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
