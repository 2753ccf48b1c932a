package cronstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/failpoint"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// A cron with queued ticks is due at once: the leader has to check whether the next
// one can run. Removed crons without pending ticks are part of the page, so that
// its size is bounded.
const upcomingSQL = `
WITH page AS MATERIALIZED (
    SELECT name, next_tick, removed_at FROM forge_crons WHERE name > $1 ORDER BY name LIMIT $2
)
SELECT name, CASE WHEN queued THEN least(next_tick, clock_timestamp()) ELSE next_tick END, queued,
       removed_at IS NULL OR next_tick IS NOT NULL OR queued
FROM (SELECT *, EXISTS (SELECT FROM forge_cron_ticks AS t WHERE t.cron = page.name AND t.verdict = 'queued') AS queued FROM page) AS p
ORDER BY name`

// The definition is only returned if the caller's is out of date.
const lockForFiringSQL = `
SELECT c.name, CASE WHEN c.updated_at = k.known THEN NULL ELSE c.spec END, ` + stateColumns + `
FROM unnest($1::text[], $2::timestamptz[]) AS k (name, known)
JOIN forge_crons AS c ON c.name = k.name
ORDER BY c.name
FOR NO KEY UPDATE OF c`

// clock_timestamp is used because now() is the start of the transaction, before the
// fence. Rows that are written before the time of their commit ($10) count as
// recorded at that time. The clock is read once, so that a row's lateness matches
// its two times. The ids of jobs come from River's sequence; an unused id leaves a
// gap, as a rollback does.
const recordSQL = `
WITH clock AS MATERIALIZED (SELECT greatest(clock_timestamp(), $10) AS now)
INSERT INTO forge_cron_ticks (cron, tick, verdict, reason, term, node_id, recorded_at, lateness_ms, last_tick, tick_count, job_id)
SELECT r.cron, r.tick, r.verdict, r.reason, $7, $8, clock.now,
       greatest(0, extract(epoch FROM clock.now - coalesce(r.fires_at, r.tick)) * 1000), r.last_tick, r.tick_count,
       CASE WHEN r.verdict IN ` + firing + ` THEN nextval('river_job_id_seq') END
FROM clock, unnest($1::text[], $2::timestamptz[], $3::text[], $4::text[], $5::timestamptz[], $6::bigint[], $9::timestamptz[])
     AS r (cron, tick, verdict, reason, last_tick, tick_count, fires_at)
` + onConflict + `
RETURNING cron, tick, coalesce(job_id, 0)`

// firing are the verdicts that Fires accepts.
const firing = `('fired', 'caught_up')`

const onConflict = `ON CONFLICT (cron, tick) DO NOTHING`

// The columns are the keys of a Tick.
const outcomesSQL = `
UPDATE forge_cron_ticks AS t
SET verdict = u.verdict, reason = coalesce(u.reason, ''), job_id = u.job_id
FROM jsonb_to_recordset($1) AS u (cron text, tick timestamptz, verdict text, reason text, job_id bigint)
WHERE t.cron = u.cron AND t.tick = u.tick`

const advanceSQL = `
UPDATE forge_crons AS c
SET watermark = u.watermark, next_tick = u.next_tick, blocked_by = nullif(u.blocked_by, 0), blocked_since = u.blocked_since
FROM unnest($1::text[], $2::timestamptz[], $3::timestamptz[], $4::bigint[], $5::timestamptz[])
     AS u (name, watermark, next_tick, blocked_by, blocked_since)
WHERE c.name = u.name`

const recordedSQL = `
SELECT t.cron, t.tick
FROM unnest($1::text[], $2::timestamptz[]) AS u (cron, after)
JOIN forge_cron_ticks AS t ON t.cron = u.cron AND t.tick > u.after`

// The oldest queued ticks of each cron, and the number of all its queued ticks.
const waitingSQL = `
SELECT ` + tickColumns + `, n.waiting
FROM unnest($1::text[]) AS c (name)
CROSS JOIN LATERAL (
    SELECT count(*) AS waiting FROM forge_cron_ticks WHERE cron = c.name AND verdict = 'queued'
) AS n
CROSS JOIN LATERAL (
    SELECT * FROM forge_cron_ticks WHERE cron = c.name AND verdict = 'queued' ORDER BY tick LIMIT $2
) AS t
ORDER BY t.cron, t.tick`

// The ids of jobs are taken in the order of the ticks.
const settleSQL = `
UPDATE forge_cron_ticks AS t
SET verdict = u.verdict, reason = u.reason, job_id = u.job_id, term = $2, node_id = $3, recorded_at = clock_timestamp(),
    lateness_ms = greatest(0, extract(epoch FROM clock_timestamp() - t.tick) * 1000)
FROM (SELECT cron, tick, verdict, coalesce(reason, '') AS reason,
             CASE WHEN verdict IN ` + firing + ` THEN nextval('river_job_id_seq') END AS job_id
      FROM jsonb_to_recordset($1) AS r (cron text, tick timestamptz, verdict text, reason text)) AS u
WHERE t.cron = u.cron AND t.tick = u.tick AND t.verdict = 'queued'
RETURNING t.cron, t.tick, coalesce(t.job_id, 0)`

const markReplacedSQL = `
UPDATE forge_cron_ticks SET verdict = 'replaced', reason = $2
WHERE job_id = ANY($1) AND verdict <> 'replaced'`

// The newest updated_at is not enough: the database's clock may have been set back since.
const editionSQL = `SELECT concat_ws(' ', count(*), sum(extract(epoch FROM updated_at))) FROM forge_crons`

// Upcoming is when a cron is due next; Next is zero if never. The leader keeps nothing else
// of a cron that is not due soon.
type Upcoming struct {
	Name string
	Next time.Time
	// Queued is whether ticks of the cron are queued.
	Queued bool
}

// UpcomingPage is a page of all crons, ordered by name.
type UpcomingPage struct {
	// Crons are the crons of the page that are configured or have ticks to be
	// recorded or queued.
	Crons []Upcoming
	// Next is the name after which the next page begins; empty: this is the last
	// page.
	Next string
	// Read is the number of rows read for the page.
	Read int
}

// ListUpcoming returns the page of at most most crons after a name; with an empty
// name, the first page.
func (s *Store) ListUpcoming(ctx context.Context, after string, most int) (page UpcomingPage, err error) {
	var (
		cron    Upcoming
		wanted  bool
		targets = []any{&cron.Name, (*nullTime)(&cron.Next), &cron.Queued, &wanted}
	)
	err = postgres.ForEach(ctx, s.db, "list upcoming ticks", targets, func() error {
		page.Read++
		page.Next = cron.Name
		if wanted {
			page.Crons = append(page.Crons, cron)
		}
		return nil
	}, upcomingSQL, after, most)
	if page.Read < most {
		page.Next = ""
	}
	return page, err
}

// QueueLock adds a statement to a batch that locks the rows of crons, in the order of
// their names. known are the UpdatedAt of the definitions that the caller has, zero if
// none: these definitions are not read, and are empty in locked. Crons that do not exist
// are left out. A cron whose definition cannot be decoded has no Timeline.
func QueueLock(batch *pgx.Batch, names []string, known []time.Time, locked *[]Cron) {
	versions := make([]nullTime, len(known))
	for i, at := range known {
		versions[i] = nullTime(at)
	}
	batch.Queue(lockForFiringSQL, names, versions).Query(func(rows pgx.Rows) (err error) {
		if *locked, err = pgx.CollectRows(rows, scanLocked); err != nil {
			return fmt.Errorf("lock due crons: %w", err)
		}
		return nil
	})
}

func scanLocked(row pgx.CollectableRow) (c Cron, err error) {
	var spec []byte
	if err := row.Scan(c.targets(&spec)...); err != nil {
		return c, err
	}
	if spec != nil {
		_ = c.decode(spec) // Timeline returns the error
	}
	return c, nil
}

// Key identifies a row of the ledger.
type Key struct {
	Cron string
	Tick int64 // microseconds since the Unix epoch, the precision of PostgreSQL
}

// KeyOf returns the key of a cron's tick.
func KeyOf(cron string, tick time.Time) Key { return Key{cron, tick.UnixMicro()} }

// keys returns the keys that a query finds.
func (s *Store) keys(ctx context.Context, what, sql string, args ...any) (map[Key]bool, error) {
	var (
		cron string
		tick time.Time
		keys = map[Key]bool{}
	)
	err := postgres.ForEach(ctx, s.db, what, []any{&cron, &tick}, func() error {
		keys[KeyOf(cron, tick)] = true
		return nil
	}, sql, args...)
	return keys, err
}

// Written holds the ledger rows that a transaction wrote, each with the id reserved
// for its job; 0: the tick does not fire.
type Written map[Key]int64

// queue adds a statement to a batch, and the rows that it writes to w.
func (w Written) queue(batch *pgx.Batch, what, sql string, args ...any) {
	batch.Queue(sql, args...).Query(func(rows pgx.Rows) error {
		var (
			cron string
			tick time.Time
			job  int64
		)
		_, err := pgx.ForEachRow(rows, []any{&cron, &tick, &job}, func() error {
			w[KeyOf(cron, tick)] = job
			return nil
		})
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	})
}

// QueueRecord adds a statement to a batch that writes ledger rows in a term, with
// their lateness by the database's clock. Rows that did not exist are added to
// written. It uses Cron, Tick, Verdict, Reason, LastTick, Count and FiresAt of each
// row. at is the time of the commit if the transaction commits at a later, known
// time; otherwise it is zero.
func QueueRecord(batch *pgx.Batch, term int64, nodeID string, at time.Time, rows []Tick, written Written) {
	sql, args := recordStatement(term, nodeID, at, rows)
	written.queue(batch, "record ticks", sql, args...)
}

func recordStatement(term int64, nodeID string, at time.Time, rows []Tick) (sql string, args []any) {
	n := len(rows)
	crons, ticks, verdicts, reasons := make([]string, n), make([]time.Time, n), make([]string, n), make([]string, n)
	lasts, counts, firesAt := make([]nullTime, n), make([]int64, n), make([]nullTime, n)
	for i, row := range rows {
		crons[i], ticks[i], verdicts[i], reasons[i] = row.Cron, row.Tick, string(row.Verdict), row.Reason
		lasts[i], counts[i], firesAt[i] = nullTime(row.LastTick), row.Count, nullTime(row.FiresAt)
	}
	sql = recordSQL
	if failpoint.Off("cronstore/unique-key") {
		sql = strings.Replace(sql, onConflict, "", 1)
	}
	return sql, []any{crons, ticks, verdicts, reasons, lasts, counts, term, nodeID, firesAt, nullTime(at)}
}

// Recorded returns the keys in the ledger after each cron's instant.
func (s *Store) Recorded(ctx context.Context, crons []string, after []time.Time) (map[Key]bool, error) {
	return s.keys(ctx, "read recorded ticks", recordedSQL, crons, after)
}

// SetOutcomes sets the Verdict, Reason and JobID of recorded ticks.
func (s *Store) SetOutcomes(ctx context.Context, rows []Tick) error {
	return postgres.Exec(ctx, s.db, "set the outcomes of ticks", outcomesSQL, rows)
}

// QueueAdvance adds a statement to a batch that stores the Watermark, NextTick and
// Blocked of crons.
func QueueAdvance(batch *pgx.Batch, crons []Cron) {
	n := len(crons)
	names, watermarks, next := make([]string, n), make([]time.Time, n), make([]nullTime, n)
	blockers, since := make([]int64, n), make([]nullTime, n)
	for i, c := range crons {
		names[i], watermarks[i], next[i] = c.Name, c.Watermark, nullTime(c.NextTick)
		blockers[i], since[i] = c.Blocked.By, nullTime(c.Blocked.Since)
	}
	batch.Queue(advanceSQL, names, watermarks, next, blockers, since)
}

// Queue holds the queued ticks of one cron.
type Queue struct {
	// Oldest are the ticks that run first.
	Oldest []Tick
	// Length is the number of all queued ticks.
	Length int
}

// QueueWaiting adds a statement to a batch that reads the queues of the crons that
// have one, each with at most limit ticks.
func QueueWaiting(batch *pgx.Batch, crons []string, limit int, queues map[string]Queue) {
	batch.Queue(waitingSQL, crons, limit).Query(func(rows pgx.Rows) error {
		var (
			tick   Tick
			length int
		)
		_, err := pgx.ForEachRow(rows, append(tick.targets(), &length), func() error {
			tick.BlockedBy = blockerOf(tick.Reason)
			queues[tick.Cron] = Queue{Oldest: append(queues[tick.Cron].Oldest, tick), Length: length}
			return nil
		})
		if err != nil {
			return fmt.Errorf("read queued ticks: %w", err)
		}
		return nil
	})
}

// QueueSettle adds a statement to a batch that sets the Verdict and Reason of
// queued ticks in a term, and the job ids of those that fire.
func QueueSettle(batch *pgx.Batch, term int64, nodeID string, rows []Tick, written Written) {
	written.queue(batch, "settle queued ticks", settleSQL, rows, term, nodeID)
}

// MarkReplaced records that the runs of jobs were cancelled, and why.
func (s *Store) MarkReplaced(ctx context.Context, jobs []int64, reason string) error {
	return postgres.Exec(ctx, s.db, "mark replaced ticks", markReplacedSQL, jobs, reason)
}

// Edition identifies the state of all definitions: it changes whenever any of them
// is applied, paused, resumed or removed.
func (s *Store) Edition(ctx context.Context) (string, error) {
	edition, _, err := postgres.First(ctx, s.db, "read the crons' edition", pgx.RowTo[string], editionSQL)
	return edition, err
}
