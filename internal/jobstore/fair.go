package jobstore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/forge-scheduler/forge/internal/limitkey"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// FairQueue is a queue whose waiting jobs are offered in turns by key.
type FairQueue struct {
	Queue string
	Key   limitkey.Key
	// Weights are how many jobs of a key each turn has; 1 for other keys.
	Weights map[string]int
}

// Weight returns how many jobs each turn of a key has.
func (q FairQueue) Weight(key string) int { return max(1, q.Weights[key]) }

// fairIndexPrefix begins the names of the indexes of fair queues.
const fairIndexPrefix = "forge_fair_"

// IndexName returns the name of the queue's index. It changes with the key's definition, so an
// index never has other keys than its name says.
func (q FairQueue) IndexName() string {
	sum := sha256.Sum256([]byte(q.Queue + "\x00" + q.keySQL()))
	return fairIndexPrefix + hex.EncodeToString(sum[:8])
}

// keySQL is the expression of a job's key, in the order of bytes. Jobs without a value share the
// empty key.
func (q FairQueue) keySQL() string {
	source, path := keyColumns(q.Key)
	names := make([]string, len(path))
	for i, name := range path {
		names[i] = literal(name)
	}
	return fmt.Sprintf(`(forge_limit_key(%s, ARRAY[%s]::text[], args, metadata, tags) COLLATE "C")`, literal(source), strings.Join(names, ", "))
}

// whereSQL is the predicate of the index: the available and running jobs of the queue.
func (q FairQueue) whereSQL() string { return isOpen + ` AND queue = ` + literal(q.Queue) }

// literal returns a string literal, whatever standard_conforming_strings is.
func literal(text string) string {
	return `E'` + strings.NewReplacer(`'`, `''`, `\`, `\\`).Replace(text) + `'`
}

// FairPosition is where the turns of a queue continue.
type FairPosition struct {
	// Key is the key that was served last. The zero value begins with the first key.
	Key string
	// Served is how many jobs of it the current turn has had; 0: its turn is over.
	Served int
}

// FairScan is one read of a fair queue.
type FairScan struct {
	FairQueue
	From FairPosition
	// Limit is the maximum number of jobs.
	Limit int
	// OldestFirst reads the oldest jobs of each key, whatever their priorities.
	OldestFirst bool
	// Skip contains the ids of jobs that are not read, and SkipKeys the keys.
	Skip     []int64
	SkipKeys []string
	// Passed contains, for each priority of a key, the position up to which its jobs are not read.
	Passed map[string]*[Priorities]Position
}

// FairJob is an available job that a FairScan found.
type FairJob struct {
	AvailableJob
	// Key is the value of the job's key; empty: it has none.
	Key string
	// More reports that the key may have more jobs, which the scan has not read.
	More bool
}

// fairScanSQL reads the keys in their order from @key on and wraps around: each by one descent
// of the index, however many jobs it has (a loose index scan,
// https://wiki.postgresql.org/wiki/Loose_indexscan). Then it reads as many jobs of each key as
// its turns can need, and returns turn after turn. The text has the queue and the key, because
// the planner must see that the index's predicate holds.
const fairScanSQL = `
WITH RECURSIVE keys (key, wrapped, n) AS (
    SELECT @key::text COLLATE "C", false, 0
    UNION ALL
    SELECT next.key, next.wrapped, k.n + 1
    FROM keys AS k CROSS JOIN LATERAL (
        (SELECT $KEY AS key, k.wrapped AS wrapped FROM river_job
         WHERE $WHERE AND $KEY > k.key AND (NOT k.wrapped OR $KEY $UNTIL @key)
         ORDER BY $KEY LIMIT 1)
        UNION ALL
        (SELECT $KEY, true FROM river_job
         WHERE $WHERE AND NOT k.wrapped AND $KEY $UNTIL @key
         ORDER BY $KEY LIMIT 1)
        LIMIT 1
    ) AS next
    WHERE k.n < @limit::integer + cardinality(@skip_keys::text[])
), shares AS MATERIALIZED (
    SELECT k.key, k.n, coalesce(w.weight, 1) AS weight, CASE WHEN k.n = 0 THEN @served::integer ELSE 0 END AS served,
           (@limit + count(*) OVER () - 1) / count(*) OVER () * coalesce(w.weight, 1) AS most, (p.n - 1) * $PRIORITIES AS passed
    FROM keys AS k
    LEFT JOIN unnest(@names::text[], @weights::integer[]) AS w (name, weight) ON w.name = k.key
    LEFT JOIN unnest(@passed_keys::text[]) WITH ORDINALITY AS p (key, n) ON p.key = k.key
    WHERE (k.n > 0 OR @served > 0) AND k.key <> ALL (@skip_keys)
)
SELECT j.id, j.kind, j.priority, ` + boundTime + `j.scheduled_at` + inYears + `, coalesce(j.metadata ->> 'forge:capability', ''), j.metadata -> 'forge:tags',
    extract(epoch FROM greatest(j.scheduled_at, 'epoch') - clock_timestamp())::float8, (SELECT max(applied_at) FROM forge_config), s.key, j.place = s.most
FROM shares AS s CROSS JOIN LATERAL (SELECT *, row_number() OVER () AS place FROM ($HEADS) AS heads) AS j
WHERE NOT EXISTS (SELECT FROM river_queue AS q WHERE q.name = @queue AND q.paused_at IS NOT NULL)
ORDER BY (j.place - 1 + s.served) / s.weight, s.n, j.place
LIMIT @limit`

// fairHeadsSQL reads the first jobs of a key, in the order of the index.
const fairHeadsSQL = `
    SELECT id, kind, priority, scheduled_at, metadata FROM river_job
    WHERE $WHERE AND $KEY = s.key$PRIORITY AND scheduled_at <= now() + @lookahead::interval AND id <> ALL (@skip::bigint[])
    ORDER BY priority, scheduled_at, id
    LIMIT s.most`

// fairPrioritySQL selects the jobs of a priority that come after the passed ones. $NEXT is the index
// of their position in the arrays.
const fairPrioritySQL = ` AND priority = $NEXT
      AND (scheduled_at, id) > (coalesce((@passed_at::timestamptz[])[s.passed + $NEXT], '-infinity'), coalesce((@passed_ids::bigint[])[s.passed + $NEXT], 0))`

// sql returns the statement of the scan. If no jobs were passed, one range of the index has the most
// urgent jobs of a key.
func (s FairScan) sql() string {
	heads := strings.Replace(fairHeadsSQL, "$PRIORITY", "", 1)
	if s.OldestFirst || len(s.Passed) > 0 {
		parts := make([]string, Priorities)
		for i := range parts {
			priority := strings.ReplaceAll(fairPrioritySQL, "$NEXT", strconv.Itoa(i+1))
			parts[i] = "(" + strings.Replace(fairHeadsSQL, "$PRIORITY", priority, 1) + ")"
		}
		order := "priority, scheduled_at, id"
		if s.OldestFirst {
			order = "scheduled_at, id"
		}
		heads = "SELECT * FROM (" + strings.Join(parts, " UNION ALL ") + ") AS first ORDER BY " + order + " LIMIT s.most"
	}
	until := "<="
	if s.From.Served > 0 {
		until = "<"
	}
	// NewReplacer does not replace in what it has inserted.
	text := strings.Replace(fairScanSQL, "$HEADS", heads, 1)
	return strings.NewReplacer("$KEY", s.keySQL(), "$WHERE", isAvailable+" AND queue = "+literal(s.Queue), "$UNTIL", until,
		"$PRIORITIES", strconv.Itoa(Priorities)).Replace(text)
}

// args returns the arguments of the statement.
func (s FairScan) args(lookahead time.Duration) pgx.NamedArgs {
	names, weights := make([]string, 0, len(s.Weights)), make([]int32, 0, len(s.Weights))
	for name, weight := range s.Weights {
		names, weights = append(names, name), append(weights, int32(weight))
	}
	keys, at, ids := []string{}, []pgtype.Timestamptz{}, []int64{}
	for key, passed := range s.Passed {
		keys = append(keys, key)
		for _, position := range passed {
			at, ids = append(at, position.instant()), append(ids, position.ID)
		}
	}
	return pgx.NamedArgs{
		"key": s.From.Key, "served": s.From.Served, "limit": s.Limit, "names": names, "weights": weights, "queue": s.Queue,
		"skip": append([]int64{}, s.Skip...), "skip_keys": append([]string{}, s.SkipKeys...), "lookahead": lookahead,
		"passed_keys": keys, "passed_at": at, "passed_ids": ids,
	}
}

// ScanFair reads available jobs of a queue in turns: each key has its next job, or as many as its
// weight, before any key has more. The queue's index must be ready. As ScanAvailable, it also
// reads jobs that are due within lookahead, and none of a paused queue.
func (s *Store) ScanFair(ctx context.Context, scan FairScan, lookahead time.Duration) ([]FairJob, error) {
	jobs, err := postgres.Collect(ctx, s.db, func(row pgx.CollectableRow) (FairJob, error) {
		job := FairJob{AvailableJob: AvailableJob{Queue: scan.Queue}}
		var dueIn float64
		var applied *time.Time
		err := row.Scan(&job.ID, &job.Kind, &job.Priority, &job.ScheduledAt, &job.Capability, &job.Tags, &dueIn, &applied, &job.Key, &job.More)
		job.DueIn = time.Duration(dueIn * float64(time.Second))
		if applied != nil {
			job.AppliedAt = *applied
		}
		return job, err
	}, scan.sql(), scan.args(lookahead))
	if err != nil {
		return nil, fmt.Errorf("scan queue %s in turns: %w", scan.Queue, err)
	}
	return jobs, nil
}
