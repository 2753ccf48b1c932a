package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/eventstore"
)

// PauseManyDocument is the result of pausing or resuming many crons.
type PauseManyDocument struct {
	// Crons is how many crons were to change.
	Crons int `json:"crons"`
	cronstore.PausedMany
	DryRun bool `json:"dry_run"`
}

// UndonePauses is the result of an undo. Paused is whether it paused crons that had been
// resumed.
type UndonePauses struct {
	cronstore.PausedMany
	Paused bool `json:"paused"`
}

// SetCronPaused pauses or resumes a cron.
func (s *Cluster) SetCronPaused(ctx context.Context, cron string, paused bool, order cronstore.PauseOrder) (cronstore.Cron, bool, error) {
	defer s.Outlines.Forget(ctx) // this node reads its own writes
	change := s.CronOps.Resume
	if paused {
		change = s.CronOps.Pause
	}
	held, changed, err := change(ctx, cron, order)
	return held, changed, refuseReason(err)
}

// CronsToPause returns the crons that match a filter and are not paused, or those to resume,
// and when they were read.
func (s *Cluster) CronsToPause(ctx context.Context, filter CronFilter, paused bool) (names []string, asOf time.Time, err error) {
	all, err := s.Outlines.Get(ctx)
	if err != nil {
		return nil, asOf, err
	}
	asOf = all.At(s.Now())
	for _, c := range filter.Select(asOf, all.Crons) {
		if c.Paused != paused && Matches(filter.Is, asOf, &c) {
			names = append(names, c.Name)
		}
	}
	return names, asOf, nil
}

// CheckPauseCount rejects filters that match no cron to change, or more than one request may
// change.
func CheckPauseCount(crons int, paused bool) error {
	switch {
	case crons == 0 && paused:
		return web.Refuse(http.StatusConflict, "No cron matches that is not paused.")
	case crons == 0:
		return web.Refuse(http.StatusConflict, "No paused cron matches.")
	case crons > MaxBulk:
		return web.Refuse(http.StatusUnprocessableEntity, fmt.Sprintf(
			"The filter matches %s crons, more than the maximum of one request, %s. Narrow the filter, or use forge cron pause or forge cron resume.",
			format.Number(int64(crons)), format.Number(MaxBulk)))
	default:
		return nil
	}
}

// PauseAll pauses or resumes the crons that match a filter, unless they are more than the
// reader has counted. counted 0 means that nobody has.
func (s *Cluster) PauseAll(ctx context.Context, filter CronFilter, paused bool, order cronstore.PauseOrder, counted int, dryRun bool) (done PauseManyDocument, err error) {
	names, asOf, err := s.CronsToPause(ctx, filter, paused)
	done = PauseManyDocument{Crons: len(names), DryRun: dryRun}
	if err != nil || dryRun || len(names) == 0 {
		return done, err
	}
	if err := CheckPauseCount(len(names), paused); err != nil {
		return done, err
	}
	if counted > 0 && len(names) > counted {
		return done, web.Refuse(http.StatusConflict, fmt.Sprintf("The filter matches %s by now, but %d were counted. Count them again.", format.Plural(len(names), "cron", "crons"), counted))
	}
	if order.AsOf.IsZero() || asOf.Before(order.AsOf) {
		order.AsOf = asOf
	}
	defer s.Outlines.Forget(ctx)
	done.PausedMany, err = s.CronOps.PauseMany(ctx, names, paused, order)
	auth.NoteAction(ctx, fmt.Sprintf("names=%v q=%s is=%s filter=%s reason=%q, changed %d, operation %s",
		filter.Names, filter.Text, filter.Is, filter.Where, order.Reason, done.Changed, done.Operation))
	return done, stoppedAfter(done.Changed, err)
}

// UndoPauses undoes an operation on many crons.
func (s *Cluster) UndoPauses(ctx context.Context, operation string, order cronstore.PauseOrder) (done UndonePauses, err error) {
	defer s.Outlines.Forget(ctx)
	done.PausedMany, done.Paused, err = s.CronOps.UndoPauses(ctx, operation, order)
	if errors.Is(err, cronstore.ErrNotFound) {
		return done, web.Refuse(http.StatusConflict, "Nothing is left to undo: each cron of the operation was paused or resumed since, or there is no such operation.")
	}
	auth.NoteAction(ctx, fmt.Sprintf("operation %s, changed %d", operation, done.Changed))
	return done, stoppedAfter(done.Changed, err)
}

func stoppedAfter(changed int, err error) error {
	if err != nil && changed > 0 {
		return web.Refuse(http.StatusServiceUnavailable, "The request stopped after "+format.Plural(changed, "cron", "crons")+". Repeat it to continue.")
	}
	return refuseReason(err)
}

// refuseReason refuses a reason that is too long.
func refuseReason(err error) error {
	if errors.Is(err, eventstore.ErrReasonTooLong) {
		return web.WrongFields(web.WrongField("reason", fmt.Sprintf("must have at most %d characters", eventstore.MaxReason)))
	}
	return err
}

// CheckCondition rejects a condition that is not one of CronFilters.
func (f CronFilter) CheckCondition() error {
	if f.Is != "" && !slices.Contains(CronFilters, f.Is) {
		return web.BadRequest(fmt.Errorf("is must be one of %s", strings.Join(CronFilters, ", ")))
	}
	return nil
}
