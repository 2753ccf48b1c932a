package pages

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/cronstore"
)

func (s *Pages) formBackfill(w http.ResponseWriter, r *http.Request) {
	fields, ok := s.Form(w, r)
	if !ok {
		return
	}
	cron, err := s.Source.Crons.Get(r.Context(), r.PathValue("name"))
	if err != nil {
		s.AnswerError(w, r, err)
		return
	}
	span, err := spanOf(cron, fields.Get("from"), fields.Get("to"), fields.Get("limit"))
	if err != nil {
		s.Fail(w, r, http.StatusBadRequest, err.Error())
		return
	}
	_, ran, err := s.Backfill(r.Context(), span, auth.RequestOrigin(r, viaPage), false)
	if err != nil {
		s.AnswerError(w, r, err)
		return
	}
	redirectDone(w, r, "backfill", "n", strconv.Itoa(ran))
}

type backfillBody struct {
	base
	Cron, Path         string
	From, To           string
	Limit              string
	Backfill           *cronstore.Backfill
	Ticks              []upcomingRow
	Hidden             int
	Zone               string
	DefaultLimit, Most int
}

// shownBackfill is how many ticks of a backfill the page lists.
const shownBackfill = 200

// loadBackfill loads the form and, once it is filled in, the ticks.
func (s *Pages) loadBackfill(ctx context.Context, req *request) (body, error) {
	facts, err := s.cluster(ctx)
	if err != nil {
		return nil, err
	}
	cron, err := s.Source.Crons.Get(ctx, req.Values.Get("name"))
	if err != nil || !cron.RemovedAt.IsZero() {
		return nil, cmp.Or(err, cronstore.ErrNotFound)
	}
	zone := zoneOf(cron.Spec.Timezone)
	b := backfillBody{
		base: base{name: "Backfill of " + cron.Name, beat: s.pulseOf(facts)}, Cron: cron.Name, Path: CronPath(cron.Name),
		From: req.Values.Get("from"), To: req.Values.Get("to"), Limit: req.Values.Get("limit"),
		Zone: zone.String(), DefaultLimit: cluster.DefaultBackfill, Most: cluster.MaxBackfill,
	}
	if b.From == "" && b.To == "" {
		day := facts.now.In(zone)
		b.To, b.From = day.Format(localTime), day.AddDate(0, 0, -1).Format(localTime)
		return &b, nil
	}
	span, err := spanOf(cron, b.From, b.To, b.Limit)
	if err != nil {
		return nil, web.BadRequest(err)
	}
	found, err := s.CronOps.BackfillTicks(ctx, span)
	if err != nil {
		return nil, err
	}
	b.Backfill = &found
	listed := found.Ticks[:min(len(found.Ticks), shownBackfill)]
	b.Hidden = len(found.Ticks) - len(listed)
	for _, t := range listed {
		b.Ticks = append(b.Ticks, upcomingRow{Clock: weekday(t, zone), UTC: weekday(t, time.UTC)})
	}
	return &b, nil
}

// localTime is the format of a time without a zone in a browser's form.
const localTime = "2006-01-02T15:04"

// spanOf parses the form. Times without an offset are in the cron's zone.
func spanOf(cron cronstore.Cron, from, to, limit string) (cronstore.Span, error) {
	first, err := wallTime("from", from, cron.Spec.Timezone)
	if err != nil {
		return cronstore.Span{}, err
	}
	last, err := wallTime("to", to, cron.Spec.Timezone)
	if err != nil {
		return cronstore.Span{}, err
	}
	most := 0
	if limit != "" {
		if most, err = strconv.Atoi(limit); err != nil {
			return cronstore.Span{}, fmt.Errorf("limit must be from 1 to %d", cluster.MaxBackfill)
		}
	}
	return cluster.NewSpan(cron.Name, first, last, most)
}

func wallTime(what, text, zone string) (time.Time, error) {
	for _, layout := range []string{localTime, "2006-01-02T15:04:05", time.RFC3339} {
		if at, err := time.ParseInLocation(layout, text, zoneOf(zone)); err == nil && web.IsTime(at) {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("%s must be a time such as 2026-11-20T15:04 in the cron's zone", what)
}
