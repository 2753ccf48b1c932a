package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/explain"
)

// DefaultUpcoming is how many upcoming ticks are shown by default.
const DefaultUpcoming = 5

// UpcomingTicks returns the next ticks of a cron. There are none if the cron is paused or
// removed, or if its schedule cannot be parsed.
func (s *Cluster) UpcomingTicks(cron cronstore.Cron, now time.Time) []explain.Coming {
	none := []explain.Coming{}
	if cron.Paused() || !cron.RemovedAt.IsZero() {
		return none
	}
	ticks, err := explain.Next(cron.Name, cron.Spec, now, DefaultUpcoming)
	if err != nil {
		return none
	}
	return ticks
}

// CronOps pauses and resumes crons, and finds the ticks that a backfill would run.
type CronOps interface {
	// Pause and Resume return the cron and whether its state changed. They return
	// cronstore.ErrNotFound for a cron that is not configured.
	Pause(ctx context.Context, cron string, order cronstore.PauseOrder) (cronstore.Cron, bool, error)
	Resume(ctx context.Context, cron string, order cronstore.PauseOrder) (cronstore.Cron, bool, error)
	// PauseMany pauses or resumes crons. UndoPauses undoes that, and returns whether it paused
	// them.
	PauseMany(ctx context.Context, names []string, paused bool, order cronstore.PauseOrder) (cronstore.PausedMany, error)
	UndoPauses(ctx context.Context, operation string, order cronstore.PauseOrder) (done cronstore.PausedMany, paused bool, err error)
	BackfillTicks(ctx context.Context, span cronstore.Span) (cronstore.Backfill, error)
}

// CronRunner runs ticks on behalf of an operator.
type CronRunner interface {
	// Trigger returns the row of the tick. It returns ErrNotFound, ErrTaken (with the row),
	// ErrFuture or ErrNotDue of cronstore if it refuses.
	Trigger(ctx context.Context, t cronstore.Trigger) (cronstore.Tick, error)
	// Backfill runs the ticks that BackfillTicks returned, and returns how many it ran.
	// progress may be nil.
	Backfill(ctx context.Context, b cronstore.Backfill, by string, progress func(done int)) (int, error)
}

const (
	// DefaultBackfill is how many ticks a backfill runs by default.
	DefaultBackfill = 1000
	// MaxBackfill is the maximum number of ticks that one request runs. It bounds the
	// duration of the request.
	MaxBackfill = 10_000
	maxSpan     = 366 * 24 * time.Hour
)

// NewSpan checks the arguments of a backfill.
func NewSpan(cron string, from, to time.Time, limit int) (cronstore.Span, error) {
	span := cronstore.Span{Cron: cron, From: from, To: to, Limit: limit}
	if limit == 0 {
		span.Limit = DefaultBackfill
	}
	var wrong []web.FieldError
	if from.IsZero() {
		wrong = append(wrong, web.WrongField("from", "is missing"))
	}
	switch {
	case to.IsZero():
		wrong = append(wrong, web.WrongField("to", "is missing"))
	case from.IsZero():
	case !to.After(from):
		wrong = append(wrong, web.WrongField("to", "must be after from"))
	case to.Sub(from) > maxSpan:
		wrong = append(wrong, web.WrongField("to", "must be at most 366 days after from"))
	}
	if span.Limit < 1 || span.Limit > MaxBackfill {
		wrong = append(wrong, web.WrongField("limit", fmt.Sprintf("must be from 1 to %d (got %d)", MaxBackfill, limit)))
	}
	return span, web.WrongFields(wrong...)
}

// Trigger runs a cron now, or one of its ticks.
func (s *Cluster) Trigger(ctx context.Context, t cronstore.Trigger) (cronstore.Tick, error) {
	row, err := s.CronRunner.Trigger(ctx, t)
	switch {
	case !errors.Is(err, cronstore.ErrTaken):
		return row, err
	case row.JobID == 0:
		return row, web.Refuse(http.StatusConflict, "The tick is queued already.")
	default:
		return row, web.Refuse(http.StatusConflict, fmt.Sprintf("The tick already has job %d (%s), and a tick runs once.", row.JobID, row.Verdict))
	}
}

// Backfill finds the ticks of a backfill and, unless dryRun is set, runs them.
func (s *Cluster) Backfill(ctx context.Context, span cronstore.Span, by string, dryRun bool) (b cronstore.Backfill, ran int, err error) {
	if b, err = s.CronOps.BackfillTicks(ctx, span); err == nil && !dryRun {
		ran, err = s.CronRunner.Backfill(ctx, b, by, nil)
	}
	if err != nil && ran > 0 {
		err = web.Refuse(http.StatusServiceUnavailable, "The backfill stopped after "+format.Plural(ran, "tick", "ticks")+". Repeat the request to continue.")
	}
	return b, ran, err
}

// Operates reports whether crons can be changed.
func (s *Cluster) Operates() bool { return s.CronOps != nil && s.CronRunner != nil }

// outline is a summary of all crons in force, by name.
type outline struct {
	Crons []cronstore.Outlined
	read  time.Time
}

// At returns when the outline was read, by the clock of now. With a later time, crons would
// wrongly appear overdue.
func (o outline) At(now time.Time) time.Time { return now.Add(-time.Since(o.read)) }

// keepOutline is how long pages share an outline.
const keepOutline = time.Second

// outline reads the crons. Only the cache calls it, and never concurrently.
func (s *Cluster) outline(ctx context.Context) (outline, error) {
	o := outline{read: time.Now()}
	crons, err := s.Source.Crons.Outline(ctx, s.Outlines.last.Value.Crons)
	if err != nil {
		return o, fmt.Errorf("read crons: %w", err)
	}
	s.Ticks.keep(crons)
	o.Crons = crons
	return o, nil
}

// Outline returns the outline of the crons with what a filter needs. Only the order by the last
// verdict needs the ledger.
func (s *Cluster) Outline(ctx context.Context, filter CronFilter) (outline, error) {
	all, err := s.Outlines.Get(ctx)
	if err != nil || filter.Sort != cronstore.ByVerdict {
		return all, err
	}
	last, err := s.verdicts.Get(ctx)
	if err != nil {
		return all, fmt.Errorf("read the last verdicts of crons: %w", err)
	}
	all.Crons = slices.Clone(all.Crons)
	for i := range all.Crons {
		all.Crons[i].Last = last[all.Crons[i].Name]
	}
	return all, nil
}

// ReadCrons reads all fields of the crons that a page shows, in their order.
func (s *Cluster) ReadCrons(ctx context.Context, outlined []cronstore.Outlined) ([]cronstore.Cron, error) {
	names, at := make([]string, len(outlined)), map[string]int{}
	for i, c := range outlined {
		names[i], at[c.Name] = c.Name, i
	}
	crons, err := s.Source.Crons.Some(ctx, names)
	if err != nil {
		return nil, fmt.Errorf("read crons: %w", err)
	}
	slices.SortFunc(crons, func(a, b cronstore.Cron) int { return at[a.Name] - at[b.Name] })
	return crons, nil
}
