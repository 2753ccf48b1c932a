package aggregator

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/postgres"
)

const (
	// Other is the key of the attempts of all keys that a breakdown does not name.
	Other = metrics.OtherCrons
	// KeptKeys is the number of keys of a dimension that a window keeps; the attempts of the
	// others are those of Other.
	KeptKeys = 50
)

// failures are the outcomes of attempts that failed. A result that was refused is not an
// outcome of its own: its attempt was counted as lost.
var failures = []string{jobstore.OutcomeFailed, jobstore.OutcomeTimedOut, jobstore.OutcomeLost}

const refused = "fenced"

// foldSQL adds up the rows of a source by dimension and key. Only the keys with the most
// attempts are kept; the others are one row.
func foldSQL(source, kept string) string {
	return `
WITH sums AS (
    SELECT dimension, key, sum(attempts)::bigint AS attempts, sum(failures)::bigint AS failures, ` +
		eachBucket("sum(wait[%[1]d]) AS w%[1]d") + `, ` + eachBucket("sum(took[%[1]d]) AS t%[1]d") + `
    FROM ` + source + `
    GROUP BY dimension, key
), ranked AS (
    SELECT *, CASE WHEN key <> '` + Other + `'
        AND row_number() OVER (PARTITION BY dimension ORDER BY key = '` + Other + `', attempts DESC, key) <= ` + kept + `
        THEN key ELSE '` + Other + `' END AS kept
    FROM sums
)
SELECT dimension, kept AS key, sum(attempts)::bigint AS attempts, sum(failures)::bigint AS failures,
       ARRAY[` + eachBucket("coalesce(sum(w%[1]d), 0)") + `]::bigint[] AS wait,
       ARRAY[` + eachBucket("coalesce(sum(t%[1]d), 0)") + `]::bigint[] AS took
FROM ranked
GROUP BY dimension, kept`
}

// eachBucket repeats an expression for the number of each bucket.
func eachBucket(format string) string {
	parts := make([]string, metrics.BucketCount)
	for i := range parts {
		parts[i] = fmt.Sprintf(format, i+1)
	}
	return strings.Join(parts, ", ")
}

func insertSharesSQL(source string) string {
	return `
INSERT INTO forge_metrics_shares (step, dimension, at, key, attempts, failures, wait, took)
SELECT $1, dimension, $2, key, attempts, failures, CASE WHEN wait <> none THEN wait END, CASE WHEN took <> none THEN took END
FROM (` + foldSQL(source, strconv.Itoa(KeptKeys)) + `) AS folded, (SELECT array_fill(0::bigint, ARRAY[` + strconv.Itoa(metrics.BucketCount) + `])) AS empty (none)
ON CONFLICT (step, dimension, at, key) DO UPDATE
SET attempts = excluded.attempts, failures = excluded.failures, wait = excluded.wait, took = excluded.took`
}

var (
	// The columns are the keys of a minuteShare.
	writeMinuteSQL = insertSharesSQL(`jsonb_to_recordset($3) AS minute (
        dimension text, key text, attempts bigint, failures bigint, wait integer[], took integer[])`)

	writeLongerSQL = insertSharesSQL(`(
        SELECT * FROM forge_metrics_shares
        WHERE step = $3 AND dimension = ANY ('{` + strings.Join(metrics.Dimensions, ",") + `}') AND at >= $2 AND at < $4) AS finer`)

	sharesSQL = foldSQL(`(
        SELECT * FROM forge_metrics_shares
        WHERE step = $1 AND dimension = $2 AND at >= $3 AND at < $4) AS windows`, "$5") + `
ORDER BY kept = '` + Other + `', attempts DESC, kept`

	sharePointsSQL = `
SELECT point, coalesce(shown, '` + Other + `') AS shown, sum(attempts)::bigint, sum(failures)::bigint,
       ARRAY[` + eachBucket("coalesce(sum(wait[%d]), 0)") + `]::bigint[], ARRAY[` + eachBucket("coalesce(sum(took[%d]), 0)") + `]::bigint[], bool_or(folded)
FROM (
    SELECT date_bin($5, at, $3) AS point, CASE WHEN key = ANY ($6) THEN key END AS shown, key = '` + Other + `' AS folded, attempts, failures,
           CASE WHEN key = ANY ($6) THEN wait END AS wait, CASE WHEN key = ANY ($6) THEN took END AS took
    FROM forge_metrics_shares
    WHERE step = $1 AND dimension = $2 AND at >= $3 AND at < $4) AS windows
GROUP BY point, windows.shown
ORDER BY point, shown`
)

const pruneSharesSQL = `
DELETE FROM forge_metrics_shares
WHERE ctid = ANY (ARRAY (
    SELECT oldest.ctid
    FROM unnest('{cron,kind,node,queue}'::text[]) AS d (dimension), LATERAL (
        SELECT ctid FROM forge_metrics_shares b
        WHERE b.step = $1 AND b.dimension = d.dimension AND b.at < $2 ORDER BY b.at LIMIT $3) AS oldest
    LIMIT $3))`

// minuteShare holds the attempts of a key in a minute.
type minuteShare struct {
	Dimension string  `json:"dimension"`
	Key       string  `json:"key"`
	Attempts  int64   `json:"attempts"`
	Failures  int64   `json:"failures"`
	Wait      []int64 `json:"wait,omitempty"`
	Took      []int64 `json:"took,omitempty"`
}

// divide adds up the rows of a minute that are of attempts, by dimension and key. Rows that
// only serve that are not returned again.
func divide(rows []Row) (others []Row, shares []minuteShare) {
	place := map[[2]string]int{}
	for _, row := range rows {
		dimension, key, of := metrics.Division(row.Metric, row.Labels)
		if dimension == "kind" || of == metrics.NoMeasure {
			others = append(others, row)
		}
		if of == metrics.NoMeasure {
			continue
		}
		i, known := place[[2]string{dimension, key}]
		if !known {
			i = len(shares)
			place[[2]string{dimension, key}] = i
			shares = append(shares, minuteShare{Dimension: dimension, Key: key})
		}
		shares[i].add(row, of)
	}
	return others, shares
}

func (s *minuteShare) add(row Row, of metrics.Measure) {
	switch of {
	case metrics.MeasureFinished:
		outcome := row.Labels["outcome"]
		if outcome != refused {
			s.Attempts += int64(row.Value)
		}
		if slices.Contains(failures, outcome) {
			s.Failures += int64(row.Value)
		}
	case metrics.MeasureWait:
		s.Wait = row.Histogram.Counts()
	case metrics.MeasureDuration:
		s.Took = row.Histogram.Counts()
	case metrics.NoMeasure:
	}
}

// writeShares writes the shares of a window. Those of a longer one are added up from the
// windows of the step before, which no longer change.
func (s *Store) writeShares(ctx context.Context, f Finished) error {
	if f.step != Minute {
		return postgres.Exec(ctx, s.db, "divide the attempts of "+f.step.String(), writeLongerSQL, f.step.seconds(), f.start, finer(f.step).seconds(), f.End)
	}
	if len(f.shares) == 0 {
		return nil
	}
	return postgres.Exec(ctx, s.db, "divide the attempts of a minute", writeMinuteSQL, f.step.seconds(), f.start, f.shares)
}

// Share holds the attempts of a key, or of all that are not named.
type Share struct {
	Key string
	// Attempts finished, Failures of them failed.
	Attempts, Failures int64
	// Wait is how long jobs waited from due to started, Took how long attempts ran. Nil: no
	// attempt started, or none finished.
	Wait, Took *metrics.Histogram
}

// SharePoint is a Share of a point of time, which begins at At.
type SharePoint struct {
	At time.Time
	Share

	// Folded reports that Other has attempts of keys that a window did not keep. A key without a
	// share at this point may be one of them.
	Folded bool
}

// ShareQuery selects windows that begin between From (inclusive) and To (exclusive).
type ShareQuery struct {
	Dimension string
	Step      Step
	From, To  time.Time
}

// Shares returns the keys with the most attempts, most attempts first, and Other at last if
// there are more.
func (s *Store) Shares(ctx context.Context, q ShareQuery, keys int) ([]Share, error) {
	return postgres.Select(ctx, s.db, "divide attempts by "+q.Dimension, func(row pgx.CollectableRow) (share Share, err error) {
		var dimension string
		var wait, took []int64
		err = row.Scan(&dimension, &share.Key, &share.Attempts, &share.Failures, &wait, &took)
		share.Wait, share.Took = metrics.FromCounts(wait), metrics.FromCounts(took)
		return share, err
	}, sharesSQL, q.Step.seconds(), q.Dimension, q.From, q.To, keys)
}

// SharePoints returns the shares of some keys by points of a length that start at From, and of
// Other for the attempts of all others, without how long they waited and took.
func (s *Store) SharePoints(ctx context.Context, q ShareQuery, point time.Duration, keys []string) ([]SharePoint, error) {
	return postgres.Select(ctx, s.db, "divide attempts by "+q.Dimension, func(row pgx.CollectableRow) (p SharePoint, err error) {
		var wait, took []int64
		err = row.Scan(&p.At, &p.Key, &p.Attempts, &p.Failures, &wait, &took, &p.Folded)
		p.Wait, p.Took = metrics.FromCounts(wait), metrics.FromCounts(took)
		return p, err
	}, sharePointsSQL, q.Step.seconds(), q.Dimension, q.From, q.To, point, keys)
}
