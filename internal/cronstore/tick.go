package cronstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// Verdict is the outcome of a due tick.
type Verdict string

// Verdicts of the ledger.
const (
	Fired           Verdict = "fired"
	CaughtUp        Verdict = "caught_up"
	Queued          Verdict = "queued"
	SkippedOverlap  Verdict = "skipped_overlap"
	SkippedWindow   Verdict = "skipped_window"
	SkippedLimit    Verdict = "skipped_limit"
	SkippedDST      Verdict = "skipped_dst"
	SkippedPaused   Verdict = "skipped_paused"
	SkippedExcluded Verdict = "skipped_excluded"
	Replaced        Verdict = "replaced"
	Failed          Verdict = "failed"
	Triggered       Verdict = "triggered"
	Backfilled      Verdict = "backfilled"
)

// Fires reports whether a tick with this verdict has a job that the leader
// inserted.
func (v Verdict) Fires() bool { return v == Fired || v == CaughtUp }

// Tick is a row of the ledger.
type Tick struct {
	Cron    string    `json:"cron"`
	Tick    time.Time `json:"tick"`
	Verdict Verdict   `json:"verdict"`
	Reason  string    `json:"reason,omitempty"`
	JobID   int64     `json:"job_id,omitempty"`
	// BlockedBy is the job of the earlier run because of which the tick was skipped
	// or queued.
	BlockedBy  int64     `json:"blocked_by,omitempty"`
	Term       int64     `json:"term"`
	NodeID     string    `json:"node_id"`
	RecordedAt time.Time `json:"recorded_at"`
	LatenessMS float64   `json:"lateness_ms"`
	LastTick   time.Time `json:"last_tick,omitzero"`
	Count      int64     `json:"tick_count"`
	// FiresAt is the tick plus its jitter, from which the lateness is computed.
	// Only QueueRecord reads it; zero means the tick itself.
	FiresAt time.Time `json:"-"`
}

const (
	blockerFormat = "Blocked by job %d"
	blockedFormat = blockerFormat + " (%s)."
)

// BlockedReason returns the Reason of a tick that could not overlap an earlier run:
// its job, and what the job is doing.
func BlockedReason(job int64, doing string) string { return fmt.Sprintf(blockedFormat, job, doing) }

// blockerOf returns the job in a reason, 0 for other reasons.
func blockerOf(reason string) int64 {
	var job int64
	if _, err := fmt.Sscanf(reason, blockerFormat, &job); err != nil {
		return 0
	}
	return job
}

// Late returns how much later than it should have fired a tick is at an instant.
func (t Tick) Late(now time.Time) time.Duration {
	if t.FiresAt.IsZero() {
		return now.Sub(t.Tick)
	}
	return now.Sub(t.FiresAt)
}

const tickColumns = `
t.cron, t.tick, t.verdict, t.reason, coalesce(t.job_id, 0), t.term, t.node_id, t.recorded_at, t.lateness_ms,
t.last_tick, t.tick_count`

const ticksSQL = `
SELECT ` + tickColumns + `
FROM forge_cron_ticks AS t
WHERE t.cron = $1 AND t.tick < coalesce($2::timestamptz, 'infinity')
ORDER BY t.tick DESC
LIMIT $3`

// The two statements below compare rows, so that only the key gives their order. Otherwise the
// planner might walk through the ticks of all crons in search of those of a rare one.
//
// Ranges do not overlap, so only the newest range that began before the first instant can have
// ticks after it.
const ticksBetweenSQL = `
SELECT ` + tickColumns + `
FROM forge_cron_ticks AS t
WHERE (t.cron, t.tick) < ($1::text, coalesce($3::timestamptz, 'infinity'))
  AND (t.cron, t.tick) >= ($1, coalesce((
      SELECT r.tick
      FROM (SELECT tick, last_tick FROM forge_cron_ticks WHERE cron = $1 AND tick < $2 AND last_tick IS NOT NULL ORDER BY tick DESC LIMIT 1) AS r
      WHERE r.last_tick >= $2), $2::timestamptz))
ORDER BY t.cron DESC, t.tick DESC
LIMIT $4`

const ticksFromSQL = `
SELECT ` + tickColumns + `
FROM forge_cron_ticks AS t
WHERE (t.cron, t.tick) >= ($1::text, $2::timestamptz) AND (t.cron, t.tick) <= ($1, 'infinity'::timestamptz) AND t.tick >= $2
ORDER BY t.cron, t.tick
LIMIT $3`

const newestTicksSQL = `
SELECT ` + tickColumns + `
FROM unnest($1::text[]) AS wanted (name),
     LATERAL (SELECT * FROM forge_cron_ticks WHERE cron = wanted.name ORDER BY tick DESC LIMIT $2) AS t
ORDER BY t.cron, t.tick DESC`

// A tick has its own row or is in a range; its own row comes first. Ranges of one
// cron do not overlap, so only the newest range that began before the tick can
// contain it.
const findTickSQL = `
SELECT ` + tickColumns + `
FROM (
    (SELECT * FROM forge_cron_ticks WHERE cron = $1 AND tick = $2)
    UNION ALL
    (SELECT * FROM forge_cron_ticks WHERE cron = $1 AND tick < $2 AND last_tick IS NOT NULL ORDER BY tick DESC LIMIT 1)
) AS t
WHERE t.tick = $2 OR t.last_tick >= $2
ORDER BY t.tick DESC
LIMIT 1`

// Manual runs were not due in the stretch.
const dueInSQL = `
SELECT g.n - 1, t.verdict, sum(t.tick_count)::bigint
FROM unnest($1::timestamptz[], $2::timestamptz[]) WITH ORDINALITY AS g (after, until, n)
JOIN forge_cron_ticks AS t ON t.tick > g.after AND t.tick <= g.until
WHERE t.verdict NOT IN ('triggered', 'backfilled')
GROUP BY g.n, t.verdict`

// Ticks returns at most limit ledger rows of a cron with ticks before an instant
// (zero: the newest), newest first.
func (s *Store) Ticks(ctx context.Context, cron string, before time.Time, limit int) ([]Tick, error) {
	return postgres.Select(ctx, s.db, "list ticks of "+cron, scanTick, ticksSQL, cron, nullTime(before), limit)
}

// TicksBetween returns at most limit ledger rows of a cron with ticks from an instant on and
// before another one (zero: the newest), newest first.
func (s *Store) TicksBetween(ctx context.Context, cron string, from, before time.Time, limit int) ([]Tick, error) {
	return postgres.Select(ctx, s.db, "list ticks of "+cron, scanTick, ticksBetweenSQL, cron, from, nullTime(before), limit)
}

// TicksFrom returns at most limit ledger rows of a cron with ticks from an instant on, oldest
// first.
func (s *Store) TicksFrom(ctx context.Context, cron string, from time.Time, limit int) ([]Tick, error) {
	return postgres.Select(ctx, s.db, "list ticks of "+cron, scanTick, ticksFromSQL, cron, from, limit)
}

// NewestTicks returns at most limit of the newest ledger rows of each of these
// crons, newest first.
func (s *Store) NewestTicks(ctx context.Context, crons []string, limit int) (map[string][]Tick, error) {
	ticks, err := postgres.Collect(ctx, s.db, scanTick, newestTicksSQL, crons, limit)
	if err != nil {
		return nil, fmt.Errorf("list the newest ticks: %w", err)
	}
	byCron := make(map[string][]Tick, len(crons))
	for _, tick := range ticks {
		byCron[tick.Cron] = append(byCron[tick.Cron], tick)
	}
	return byCron, nil
}

// FindTick returns the ledger row that contains a tick, alone or in a range, or
// ErrNotFound. It does not check whether the cron was due at that instant of a
// range.
func (s *Store) FindTick(ctx context.Context, cron string, tick time.Time) (Tick, error) {
	row, found, err := postgres.First(ctx, s.db, "find a tick of "+cron, scanTick, findTickSQL, cron, tick)
	if err == nil && !found {
		err = fmt.Errorf("tick %s of cron %s: %w", tick.UTC().Format(time.RFC3339Nano), cron, ErrNotFound)
	}
	return row, err
}

// Stretch is a period: after After, up to and including Until.
type Stretch struct{ After, Until time.Time }

// DueIn counts by verdict the recorded ticks that were due in each stretch. A row
// for several ticks counts in the stretch of its first tick.
func (s *Store) DueIn(ctx context.Context, stretches []Stretch) ([]map[Verdict]int64, error) {
	after, until := make([]time.Time, len(stretches)), make([]time.Time, len(stretches))
	for i, s := range stretches {
		after[i], until[i] = s.After, s.Until
	}
	counts := make([]map[Verdict]int64, len(stretches))
	var n, ticks int64
	var verdict Verdict
	err := postgres.ForEach(ctx, s.db, "count the ticks of stretches", []any{&n, &verdict, &ticks}, func() error {
		if counts[n] == nil {
			counts[n] = map[Verdict]int64{}
		}
		counts[n][verdict] = ticks
		return nil
	}, dueInSQL, after, until)
	return counts, err
}

// targets are the variables for tickColumns.
func (t *Tick) targets() []any {
	return []any{
		&t.Cron, &t.Tick, &t.Verdict, &t.Reason, &t.JobID, &t.Term, &t.NodeID,
		&t.RecordedAt, &t.LatenessMS, (*nullTime)(&t.LastTick), &t.Count,
	}
}

func scanTick(row pgx.CollectableRow) (t Tick, err error) {
	err = row.Scan(t.targets()...)
	t.BlockedBy = blockerOf(t.Reason)
	return t, err
}
