package cronstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/forge-scheduler/forge/internal/postgres"
)

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

const takenSQL = `
SELECT cron, tick FROM forge_cron_ticks
WHERE cron = $1 AND tick >= $2 AND tick < $3 AND (job_id IS NOT NULL OR verdict = 'queued')`

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

func (s *Store) recordClaim(ctx context.Context, claimed Tick) error {
	sql, args := recordStatement(0, "", time.Time{}, []Tick{claimed})
	_, err := s.db.Exec(ctx, sql, args...)
	return err
}

// takeOut removes a tick from the range that counts it.
func (s *Store) takeOut(ctx context.Context, cron *Cron, row Tick, tick time.Time) error {
	first, last := row.Tick, row.LastTick
	if tick.Equal(first) || tick.Equal(last) || row.Count == 2 {
		own, err := postgres.Collect(ctx, s.db, scanKey, insideSQL, cron.Name, row.Tick, row.LastTick)
		if err != nil {
			return fmt.Errorf("look into a range: %w", err)
		}
		timeline, err := cron.Spec.Timeline(cron.Name)
		if err != nil {
			return err
		}
		first, last = timeline.ends(cron.Name, row, tick, set(own))
	}
	count := row.Count - 1
	end := &last
	if count == 1 {
		end = nil
	}
	if _, err := s.db.Exec(ctx, shrinkSQL, cron.Name, row.Tick, first, end, count); err != nil {
		return fmt.Errorf("shrink a range: %w", err)
	}
	return nil
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

// taken returns the ticks of a cron in [from, to) that have a job or wait for one.
func (s *Store) taken(ctx context.Context, cron string, from, to time.Time) (map[Key]bool, error) {
	keys, err := postgres.Collect(ctx, s.db, scanKey, takenSQL, cron, from, to)
	if err != nil {
		return nil, fmt.Errorf("read the ticks of %s that ran: %w", cron, err)
	}
	return set(keys), nil
}
