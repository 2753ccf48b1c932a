package cronstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// Bounds of a search for ticks without a ledger row.
const (
	unrecordedPage  = 1000
	unrecordedCrons = 20_000
	unrecordedTicks = 20_000
	// unrecordedListed is how many ticks a list has.
	unrecordedListed = 100
)

// Reading ten thousand whole definitions takes more than a tenth of a second. Few of them have
// more that matters than the fields read here.
const definedPageSQL = `
SELECT c.name, c.updated_at, c.removed_at, c.paused_at, c.watermark, coalesce(c.spec ->> 'schedule', ''), coalesce(c.spec ->> 'timezone', ''),
       coalesce(c.spec ->> 'dst_missing', ''), coalesce(c.spec ->> 'dst_repeated', ''), coalesce(c.spec ->> 'paused', ''),
       CASE WHEN c.spec ?| '{start_at,end_at,exclude,jitter,earlier}' THEN c.spec END
FROM forge_crons AS c
WHERE c.name > $1 AND c.created_at < $2 AND c.removed_at IS NULL
ORDER BY c.name
LIMIT $3`

// A tick has its own row or is in a range; see findTickSQL.
const unrecordedSQL = `
SELECT u.cron, u.tick
FROM unnest($1::text[], $2::timestamptz[]) AS u (cron, tick)
WHERE NOT EXISTS (SELECT FROM forge_cron_ticks AS t WHERE t.cron = u.cron AND t.tick = u.tick AND t.tick > $3 AND t.tick <= $4)
  AND coalesce((SELECT r.last_tick FROM forge_cron_ticks AS r
                WHERE r.cron = u.cron AND r.tick < u.tick AND r.last_tick IS NOT NULL
                ORDER BY r.tick DESC LIMIT 1) < u.tick, true)
ORDER BY u.tick, u.cron`

// DueTick is a tick that a cron's schedule gives.
type DueTick struct {
	Cron string    `json:"cron"`
	Tick time.Time `json:"tick"`
}

// Unrecorded is the result of a search for due ticks that the ledger does not have.
type Unrecorded struct {
	// Crons is how many crons were checked, Ticks how many of their ticks were due.
	Crons int `json:"crons_checked"`
	Ticks int `json:"ticks_checked"`
	// Changed is how many crons were not checked because their definition has changed since.
	Changed int `json:"crons_changed"`
	// More reports that there were too many crons or ticks to check all.
	More bool `json:"more"`
	// LostCount is how many due ticks have no row although the ledger is complete up to a later
	// time, and Lost are the first of them.
	LostCount int       `json:"lost_count"`
	Lost      []DueTick `json:"lost"`
	// WaitingCount is how many due ticks the leader has not recorded yet, and Waiting are the
	// first of them.
	WaitingCount int       `json:"waiting_count"`
	Waiting      []DueTick `json:"waiting"`
}

// Unrecorded computes the ticks that were due in a stretch from the crons' schedules, and
// returns those that the ledger does not have. It leaves out ticks that do not fire: of paused
// crons, excluded ones and those that daylight saving omits.
func (s *Store) Unrecorded(ctx context.Context, in Stretch) (Unrecorded, error) {
	found, known := Unrecorded{Lost: []DueTick{}, Waiting: []DueTick{}}, schedules{}
	for after := ""; ; {
		if found.Crons >= unrecordedCrons || found.Ticks >= unrecordedTicks {
			found.More = true
			return found, nil
		}
		page, err := postgres.Select(ctx, s.db, "read when crons are due", scanTiming, definedPageSQL, after, in.Until, unrecordedPage)
		if err != nil {
			return found, err
		}
		if err := s.checkPage(ctx, page, known, in, &found); err != nil {
			return found, err
		}
		if len(page) < unrecordedPage {
			return found, nil
		}
		after = page[len(page)-1].Name
	}
}

// checkPage adds the result for some crons.
func (s *Store) checkPage(ctx context.Context, crons []Cron, known schedules, in Stretch, found *Unrecorded) error {
	var names []string
	var ticks []time.Time
	watermarks := map[string]time.Time{}
	for i := range crons {
		c := &crons[i]
		timeline, err := c.timeline(known)
		if err != nil || !c.UpdatedAt.Before(in.Until) {
			found.Changed++
			continue
		}
		from := in.After
		if c.UpdatedAt.After(from) {
			from = c.UpdatedAt // its definition before is not known
		}
		found.Crons++
		watermarks[c.Name] = c.Watermark
		for due := range timeline.Ticks(from, in.Until) {
			if len(ticks)+found.Ticks >= unrecordedTicks {
				found.More = true
				break
			}
			if due.fires() && !due.FiresAt.After(in.Until) {
				names, ticks = append(names, c.Name), append(ticks, due.At)
			}
		}
	}
	found.Ticks += len(ticks)
	if len(ticks) == 0 {
		return nil
	}
	missing, err := postgres.Select(ctx, s.db, "find unrecorded ticks", pgx.RowToStructByPos[DueTick], unrecordedSQL, names, ticks, in.After, in.Until)
	if err != nil {
		return err
	}
	for _, tick := range missing {
		list, count := &found.Lost, &found.LostCount
		if tick.Tick.After(watermarks[tick.Cron]) {
			list, count = &found.Waiting, &found.WaitingCount
		}
		if *count++; len(*list) < unrecordedListed {
			*list = append(*list, tick)
		}
	}
	return nil
}

// fires reports whether nothing keeps the tick from firing.
func (d Due) fires() bool {
	return d.mayFire() && !d.Unconfigured
}

// scanTiming reads what the ticks of a cron depend on. It returns a cron even if this binary
// cannot decode that; Timeline returns the error.
func scanTiming(row pgx.CollectableRow) (c Cron, err error) {
	var paused string
	var whole []byte
	if err := row.Scan(&c.Name, &c.UpdatedAt, (*nullTime)(&c.RemovedAt), (*nullTime)(&c.PausedAt), &c.Watermark, &c.Spec.Schedule, &c.Spec.Timezone,
		&c.Spec.DSTMissing, &c.Spec.DSTRepeated, &paused, &whole); err != nil {
		return c, fmt.Errorf("read when a cron is due: %w", err)
	}
	if c.Spec.Paused = paused == "true"; whole != nil {
		_ = c.decode(whole)
	}
	return c, nil
}
