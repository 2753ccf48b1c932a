package cronstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// ErrFuture means that a tick is not due yet.
var ErrFuture = errors.New("the tick lies in the future, and fires by itself")

// ErrNotDue means that a cron is not due at an instant.
var ErrNotDue = errors.New("the cron is not due at that instant")

// ErrTaken means that a tick has a job, or will get one.
var ErrTaken = errors.New("the tick has its run")

const takeOverSQL = `
UPDATE forge_cron_ticks
SET verdict = $3, reason = $4, term = 0, node_id = '', recorded_at = clock_timestamp(),
    lateness_ms = greatest(0, extract(epoch FROM clock_timestamp() - tick) * 1000)
WHERE cron = $1 AND tick = $2`

const shrinkSQL = `
UPDATE forge_cron_ticks SET tick = $3, last_tick = $4, tick_count = $5 WHERE cron = $1 AND tick = $2`

const insideSQL = `SELECT cron, tick FROM forge_cron_ticks WHERE cron = $1 AND tick > $2 AND tick <= $3`

// The ticks that have a job or wait for one.
const takenSQL = `
SELECT tick FROM forge_cron_ticks
WHERE cron = $1 AND tick >= $2 AND tick < $3 AND (job_id IS NOT NULL OR verdict = 'queued')
ORDER BY tick
LIMIT $4`

// Trigger is a requested run.
type Trigger struct {
	Cron string
	// At is the tick that runs; zero means now.
	At time.Time
	// Args replace the cron's args; empty means the cron's args.
	Args json.RawMessage
	// By is who requests the run, for the ledger and the event log.
	By string
}

// TickToRun returns the tick of a Trigger at an instant, or ErrFuture or ErrNotDue.
// A cron with the schedule @manual accepts any past instant.
func (c *Cron) TickToRun(at, now time.Time) (time.Time, error) {
	if at.IsZero() {
		return now, nil
	}
	if at.After(now) {
		return at, ErrFuture
	}
	timeline, err := c.Spec.Timeline(c.Name)
	if err != nil {
		return at, err
	}
	if _, due := timeline.At(at); !due && !timeline.Manual() {
		return at, ErrNotDue
	}
	return at, nil
}

// Span is the time to be backfilled, [From, To).
type Span struct {
	Cron     string
	From, To time.Time
	// Limit is the maximum number of ticks that run, the oldest first.
	Limit int
}

// Backfill lists what a backfill would run.
type Backfill struct {
	Cron string `json:"cron"`
	// Ticks are the ticks without a job.
	Ticks []time.Time `json:"ticks"`
	// Left is the number of ticks in the span that do not change: they have a job,
	// wait for one, or are excluded.
	Left int `json:"left"`
	// More is whether the limit truncated the list.
	More bool `json:"more"`
}

// BackfillTicks finds the ticks of a span that did not run. It ignores ticks that
// the leader has not settled yet.
func (s *Store) BackfillTicks(ctx context.Context, span Span) (Backfill, error) {
	b := Backfill{Cron: span.Cron, Ticks: []time.Time{}}
	cron, err := s.Get(ctx, span.Cron)
	if err == nil && !cron.RemovedAt.IsZero() {
		err = ErrNotFound
	}
	if err != nil {
		return b, fmt.Errorf("find the ticks to backfill of cron %s: %w", span.Cron, err)
	}
	timeline, err := cron.Spec.Timeline(span.Cron)
	if err != nil {
		return b, err
	}
	ran := takenTicks{store: s, cron: span.Cron, from: span.From, to: span.To, more: true}
	last := span.To.Add(-time.Nanosecond)
	if cron.Watermark.Before(last) {
		last = cron.Watermark
	}
	for due := range timeline.Ticks(span.From.Add(-time.Nanosecond), last) {
		taken, err := ran.has(ctx, due.At)
		switch {
		case err != nil:
			return b, err
		case due.SkippedDST || due.Excluded != "" || taken:
			b.Left++
		case len(b.Ticks) == span.Limit:
			b.More = true
			return b, nil
		default:
			b.Ticks = append(b.Ticks, due.At.UTC())
		}
	}
	return b, nil
}

// takenTicks reads in pages which ticks of a span have a job or wait for one: a month of a cron
// that fires each second has millions.
type takenTicks struct {
	store    *Store
	cron     string
	from, to time.Time   // what is left to be read
	page     []time.Time // in order
	more     bool        // there may be further pages
}

// takenPage is how many ticks a page has.
const takenPage = 10_000

// has reports whether a tick is among them. Callers pass ascending ticks.
func (t *takenTicks) has(ctx context.Context, at time.Time) (bool, error) {
	for {
		for len(t.page) > 0 && t.page[0].Before(at) {
			t.page = t.page[1:]
		}
		if len(t.page) > 0 || !t.more {
			return len(t.page) > 0 && t.page[0].Equal(at), ctx.Err()
		}
		page, err := postgres.Select(ctx, t.store.db, "read the ticks of "+t.cron+" that ran", pgx.RowTo[time.Time], takenSQL,
			t.cron, latest(t.from, at), t.to, takenPage)
		if err != nil {
			return false, err
		}
		t.page, t.more = page, len(page) == takenPage
		if t.more {
			t.from = page[len(page)-1].Add(time.Microsecond)
		}
	}
}

// Claim records that a tick runs by request and not by the schedule: verdict is
// Triggered or Backfilled. The earlier verdict of the tick is kept in the reason.
// It returns ErrTaken if the tick has a job, or waits for one. The caller holds the
// lock on the cron's row.
func (s *Store) Claim(ctx context.Context, cron *Cron, tick time.Time, verdict Verdict, reason string) (Tick, error) {
	claimed := Tick{Cron: cron.Name, Tick: tick, Verdict: verdict, Reason: reason + ".", Count: 1}
	row, err := s.FindTick(ctx, cron.Name, tick)
	switch {
	case errors.Is(err, ErrNotFound):
		return claimed, s.recordClaim(ctx, claimed)
	case err != nil:
		return Tick{}, err
	case row.Count > 1 && !tick.Equal(row.Tick) && !cron.isDue(tick):
		return claimed, s.recordClaim(ctx, claimed) // the range does not count this instant
	case row.JobID != 0 || row.Verdict == Queued:
		return row, ErrTaken
	}
	claimed.Reason = fmt.Sprintf("%s; before that it was %s.", reason, row.Verdict)
	if row.Reason != "" {
		claimed.Reason = fmt.Sprintf("%s; before that it was %s: %s", reason, row.Verdict, row.Reason)
	}
	if row.Count == 1 {
		_, err = s.db.Exec(ctx, takeOverSQL, cron.Name, tick, string(verdict), claimed.Reason)
	} else if err = s.takeOut(ctx, cron, row, tick); err == nil {
		err = s.recordClaim(ctx, claimed)
	}
	if err != nil {
		return Tick{}, fmt.Errorf("claim a tick of %s: %w", cron.Name, err)
	}
	return claimed, nil
}

// isDue reports whether the schedule gives a tick at an instant.
func (c *Cron) isDue(at time.Time) bool {
	timeline, err := c.Spec.Timeline(c.Name)
	if err != nil {
		return false
	}
	_, due := timeline.At(at)
	return due
}

func (s *Store) recordClaim(ctx context.Context, claimed Tick) error {
	sql, args := recordStatement(0, "", time.Time{}, []Tick{claimed})
	_, err := s.db.Exec(ctx, sql, args...)
	return err
}

// takeOut removes a tick from the range that counts it.
func (s *Store) takeOut(ctx context.Context, cron *Cron, row Tick, tick time.Time) error {
	first, last := row.Tick, row.LastTick
	if tick.Equal(first) || tick.Equal(last) || row.Count == 2 {
		own, err := s.keys(ctx, "look into a range", insideSQL, cron.Name, row.Tick, row.LastTick)
		if err != nil {
			return err
		}
		timeline, err := cron.Spec.Timeline(cron.Name)
		if err != nil {
			return err
		}
		first, last = timeline.ends(cron.Name, row, tick, own)
	}
	if row.Count == 2 {
		last = time.Time{}
	}
	return postgres.Exec(ctx, s.db, "shrink a range", shrinkSQL, cron.Name, row.Tick, first, nullTime(last), row.Count-1)
}

// ends returns the first and the last tick that a range still counts without one
// tick. own are the ticks in the range that have their own rows. If the cron had
// another schedule when the range was written, the ticks are unknown, and ends
// returns the seconds next to the range's own ends.
func (t *Timeline) ends(cron string, row Tick, without time.Time, own map[Key]bool) (first, last time.Time) {
	gone := func(at time.Time) bool { return at.Equal(without) || own[KeyOf(cron, at)] }
	for tick := range t.Ticks(row.Tick.Add(-time.Nanosecond), row.LastTick) {
		if gone(tick.At) || tick.Excluded != "" && row.Verdict != SkippedExcluded {
			continue
		}
		if first.IsZero() {
			first = tick.At
		}
		last = tick.At
	}
	if !first.IsZero() {
		return first, last
	}
	first, last = row.Tick, row.LastTick
	for gone(first) && first.Before(last) {
		first = first.Add(time.Second)
	}
	for gone(last) && last.After(first) {
		last = last.Add(-time.Second)
	}
	return first, last
}
