package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/explain"
)

type cronBody struct {
	base
	Cron     cronRow
	Held     string
	Operates bool
	Notice   *notice
	Coming   []upcomingRow
	Policies []fact
	Args     string
	Ticks    []tickRow
	Zone     string
	Older    string
}

// upcomingRow is one of the next runs.
type upcomingRow struct {
	Clock, UTC string
	In         stamp
	// Note adds what the tick's time does not show.
	Note string
}

func (s *pageServer) loadCron(ctx context.Context, req *request) (body, error) {
	before := req.time("before")
	said := noticeOf(req)
	if err := req.err(); err != nil {
		return nil, err
	}
	facts, err := s.cluster(ctx)
	if err != nil {
		return nil, err
	}
	cron, err := s.Source.Crons.Get(ctx, req.values.Get("name"))
	if err != nil {
		return nil, err
	}
	newest, err := s.Source.Crons.Ticks(ctx, cron.Name, time.Time{}, stripLong)
	if err != nil {
		return nil, fmt.Errorf("read ticks of %s: %w", cron.Name, err)
	}
	b := cronBody{base: base{name: cron.Name, beat: s.pulseOf(facts), past: !before.IsZero()}}
	b.Notice, b.Operates = said, s.operates() && req.may(operator) && cron.RemovedAt.IsZero()
	b.Policies, b.Args, b.Held = policies(cron.Spec), prettyJSON(cron.Spec.Args), pauseReason(cron)
	zone := zoneOf(cron.Spec.Timezone)
	b.Zone = zone.String()
	b.Coming = upcomingRows(facts.now, s.upcomingTicks(cron, facts.now), zone)
	shown := newest[:min(len(newest), defaultLimit)]
	if b.past {
		if shown, err = s.Source.Crons.Ticks(ctx, cron.Name, before, defaultLimit); err != nil {
			return nil, fmt.Errorf("read ticks of %s: %w", cron.Name, err)
		}
	}
	return &b, s.loadLedger(ctx, &b, facts, cron, newest, shown)
}

// loadLedger fills in the verdicts of the ticks and the ends of their jobs.
func (s *pageServer) loadLedger(ctx context.Context, b *cronBody, facts clusterFacts, cron cronstore.Cron, newest, shown []cronstore.Tick) error {
	ticks := make([]time.Time, len(shown))
	ids := jobsOf(newest)
	for i, t := range shown {
		ticks[i] = t.Tick
		ids = append(ids, t.JobID)
	}
	ends, err := s.Source.Jobs.States(ctx, ids)
	if err != nil {
		return err
	}
	notifications, err := s.Source.Explain.Notifications(ctx, cron.Name, ticks)
	if err != nil {
		return err
	}
	told := map[int64][]alerts.Notification{}
	for _, n := range notifications {
		told[n.Tick.UnixMicro()] = append(told[n.Tick.UnixMicro()], n)
	}
	b.Cron = newCronRow(facts.now, cron, newest, ends)
	b.Cron.Strip = drawTickStrip(newest, ends, min(stripLong, len(newest)))
	b.Ticks = tickRows(facts.now, shown, told, zoneOf(cron.Spec.Timezone), ends, facts.colors)
	if len(shown) == defaultLimit {
		b.Older = b.Cron.Path + "?" + values("before", shown[len(shown)-1].Tick.UTC().Format(time.RFC3339Nano))
	}
	return nil
}

// pauseReason describes why a cron is paused; empty if it is not.
func pauseReason(c cronstore.Cron) string {
	switch {
	case !c.PausedAt.IsZero():
		return "Paused by hand since " + utc(c.PausedAt) + ". Ticks that are due meanwhile are recorded and not caught up."
	case c.Spec.Paused:
		return "Paused by the configuration. Ticks that are due meanwhile are recorded and not caught up."
	default:
		return ""
	}
}

func upcomingRows(now time.Time, ticks []explain.Coming, zone *time.Location) []upcomingRow {
	rows := make([]upcomingRow, 0, len(ticks))
	for _, t := range ticks {
		row := upcomingRow{Clock: weekday(t.Tick, zone), UTC: weekday(t.Tick, time.UTC), In: newStamp(modeUntil, now, t.Tick)}
		switch {
		case t.Excluded != "":
			row.Note = "excluded by " + t.Excluded
		case !t.FiresAt.IsZero():
			row.Note = "fires " + precise(t.FiresAt.Sub(t.Tick)) + " later"
		}
		rows = append(rows, row)
	}
	return rows
}

func weekday(t time.Time, zone *time.Location) string {
	return t.In(zone).Format("Mon 2006-01-02 15:04:05 MST")
}

// notice reports the result of the form that redirected to the page.
type notice struct {
	Text string
	Path string // of the job, if there is one
	Job  int64
}

func noticeOf(req *request) *notice {
	n, job := req.number("n"), req.number("job")
	switch req.values.Get("did") {
	case "trigger":
		return &notice{Text: "It runs now, as", Path: jobPath(job), Job: job}
	case "pause":
		return &notice{Text: "It is paused."}
	case "resume":
		return &notice{Text: "It is resumed."}
	case "backfill":
		return &notice{Text: "Backfilled: " + plural(int(n), "tick runs", "ticks run") + "."}
	default:
		return nil
	}
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
func (s *pageServer) loadBackfill(ctx context.Context, req *request) (body, error) {
	facts, err := s.cluster(ctx)
	if err != nil {
		return nil, err
	}
	cron, err := s.Source.Crons.Get(ctx, req.values.Get("name"))
	if err != nil || !cron.RemovedAt.IsZero() {
		return nil, cmp.Or(err, cronstore.ErrNotFound)
	}
	zone := zoneOf(cron.Spec.Timezone)
	b := backfillBody{
		base: base{name: "Backfill of " + cron.Name, beat: s.pulseOf(facts)}, Cron: cron.Name, Path: cronPath(cron.Name),
		From: req.values.Get("from"), To: req.values.Get("to"), Limit: req.values.Get("limit"),
		Zone: zone.String(), DefaultLimit: defaultBackfill, Most: maxBackfill,
	}
	if b.From == "" && b.To == "" {
		day := facts.now.In(zone)
		b.To, b.From = day.Format(localTime), day.AddDate(0, 0, -1).Format(localTime)
		return &b, nil
	}
	span, err := spanOf(cron, b.From, b.To, b.Limit)
	if err != nil {
		return nil, &requestError{err}
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
			return cronstore.Span{}, fmt.Errorf("limit must be from 1 to %d", maxBackfill)
		}
	}
	return newSpan(cron.Name, first, last, most)
}

func wallTime(what, text, zone string) (time.Time, error) {
	for _, layout := range []string{localTime, "2006-01-02T15:04:05", time.RFC3339} {
		if at, err := time.ParseInLocation(layout, text, zoneOf(zone)); err == nil {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("%s must be a time such as 2026-11-20T15:04 in the cron's zone", what)
}
