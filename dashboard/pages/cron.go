package pages

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/charts"
	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/dashboard/window"
	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/cronexpr"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/explain"
)

// viaPage names the dashboard in whoAsks.
const viaPage = "the dashboard"

// redirectDone redirects from a form to the cron's page, which shows what was done. The
// redirect makes a reload harmless.
func redirectDone(w http.ResponseWriter, r *http.Request, did string, more ...string) {
	to := CronPath(r.PathValue("name")) + "?" + web.Encode(append([]string{"did", did}, more...)...)
	redirectWithNotice(w, r, to)
}

func (s *Pages) formPause(w http.ResponseWriter, r *http.Request) { s.formHold(w, r, true) }

func (s *Pages) formResume(w http.ResponseWriter, r *http.Request) { s.formHold(w, r, false) }

func (s *Pages) formHold(w http.ResponseWriter, r *http.Request, pause bool) {
	if _, ok := s.Form(w, r); !ok {
		return
	}
	if _, _, err := s.SetCronPaused(r.Context(), r.PathValue("name"), pause, cronstore.PauseOrder{By: auth.RequestOrigin(r, viaPage)}); err != nil {
		s.AnswerError(w, r, err)
		return
	}
	did := "resume"
	if pause {
		did = "pause"
	}
	redirectDone(w, r, did)
}

type cronBody struct {
	base
	Cron     cronRow
	Held     string
	Operates bool
	Notice   *notice
	Coming   []upcomingRow
	Policies []fact
	// Queue is that of its jobs, QueuePath the address of its page.
	Queue, QueuePath string
	Args             string
	// About, Owner and Runbook are what the cron says about itself.
	About, Owner string
	Runbook      remark
	Ticks        []tickRow
	Zone         string
	Newer        string
	Older        string
	// Waits is the job for which the oldest queued tick waits; nil if no tick is queued.
	Waits *remark
	// Chosen is the tick that the reader has jumped to; nil if the page shows the newest.
	Chosen *chosenTick
	// Field is the content of the field to jump to another tick.
	Field string
	// Time selects the window of the ledger. Timed reports that the reader has selected one.
	Time  timeControl
	Timed bool
	times window.Window
}

// upcomingRow is one of the next runs.
type upcomingRow struct {
	Clock, UTC string
	In         format.Stamp
	// Note adds what the tick's time does not show.
	Note string
}

func (s *Pages) loadCron(ctx context.Context, req *request) (body, error) {
	before := req.Time("before")
	said := noticeOf(req)
	if err := req.err(); err != nil {
		return nil, err
	}
	facts, err := s.cluster(ctx)
	if err != nil {
		return nil, err
	}
	cron, err := s.Source.Crons.Get(ctx, req.Values.Get("name"))
	if err != nil {
		return nil, err
	}
	newest, err := s.Source.Crons.Ticks(ctx, cron.Name, time.Time{}, cluster.StripLong)
	if err != nil {
		return nil, fmt.Errorf("read ticks of %s: %w", cron.Name, err)
	}
	b := cronBody{base: base{name: cron.Name, beat: s.pulseOf(facts), past: !before.IsZero()}}
	b.Notice, b.Operates = said, s.Operates() && req.may(route.Operator) && cron.RemovedAt.IsZero()
	b.Policies, b.Args, b.Held = policies(cron.Spec), format.PrettyJSON(cron.Spec.Args), pauseReason(cron)
	b.Queue, b.QueuePath = cron.Spec.Queue, queuePath(cron.Spec.Queue)
	b.About, b.Owner, b.Runbook = cron.Spec.Description, cron.Spec.Owner, runbookOf(cron.Spec)
	zone := zoneOf(cron.Spec.Timezone)
	b.Zone = zone.String()
	b.Coming = upcomingRows(facts.now, s.UpcomingTicks(cron, facts.now), zone)
	if b.times, err = window.ParseIn(zone, req.Values, facts.now, usualLedger); err != nil {
		return nil, web.BadRequest(err)
	}
	b.Timed = req.Values.Has("span") || req.Values.Has("from") || req.Values.Has("to")
	b.Time = s.timeControl(b.times, facts.now, CronPath(cron.Name), "#h-ticks", longSpans, nil, cron.Spec.Timezone)
	if !b.Timed {
		b.Time.anyTime()
	}
	shown := newest[:min(len(newest), web.DefaultLimit)]
	b.Field = fieldOf(newest, zone)
	if shown, err = s.shownTicks(ctx, req, &b, cron, shown); err != nil {
		return nil, err
	}
	return &b, s.loadLedger(ctx, &b, facts, cron, newest, shown)
}

// shownTicks returns the ticks that the page shows: the newest ones, those before an instant, or
// those around the one that the reader has jumped to.
func (s *Pages) shownTicks(ctx context.Context, req *request, b *cronBody, cron cronstore.Cron, newest []cronstore.Tick) ([]cronstore.Tick, error) {
	switch {
	case req.Values.Has("outcome"):
		return s.loadFound(ctx, req, b, cron, newest)
	case req.Values.Has("at"):
		at, err := wallTime("at", req.Values.Get("at"), cron.Spec.Timezone)
		if err != nil {
			return nil, web.BadRequest(err)
		}
		return s.loadChosen(ctx, b, cron, at)
	case b.Timed:
		return s.timedTicks(ctx, b, cron, req.Time("before"))
	case b.past:
		return s.Source.Crons.Ticks(ctx, cron.Name, req.Time("before"), web.DefaultLimit)
	default:
		return newest, nil
	}
}

// loadLedger fills in the verdicts of the ticks and the ends of their jobs.
func (s *Pages) loadLedger(ctx context.Context, b *cronBody, facts clusterFacts, cron cronstore.Cron, newest, shown []cronstore.Tick) error {
	ticks := make([]time.Time, len(shown))
	ids := cluster.JobsOf(newest)
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
	b.Cron.Strip = charts.DrawTickStrip(newest, ends, min(cluster.StripLong, len(newest)))
	b.Ticks = tickRows(facts.now, shown, told, b.times.Zone, ends, facts.colors)
	b.markRows(shown, zoneOf(cron.Spec.Timezone))
	b.Waits = waitsFor(newest)
	if len(shown) >= web.DefaultLimit {
		b.Older = b.Cron.Path + "?" + web.Encode(append(b.kept(), "before", shown[len(shown)-1].Tick.UTC().Format(time.RFC3339Nano))...)
	}
	return nil
}

// pauseReason describes why a cron is paused; empty if it is not.
func pauseReason(c cronstore.Cron) string {
	switch {
	case !c.PausedAt.IsZero():
		return "Paused by hand since " + format.UTC(c.PausedAt) + c.PauseChange.String() + ". Ticks that are due meanwhile are recorded and not caught up."
	case c.Spec.Paused:
		return "Paused by the configuration. Ticks that are due meanwhile are recorded and not caught up."
	default:
		return ""
	}
}

func upcomingRows(now time.Time, ticks []explain.Coming, zone *time.Location) []upcomingRow {
	rows := make([]upcomingRow, 0, len(ticks))
	for _, t := range ticks {
		row := upcomingRow{Clock: weekday(t.Tick, zone), UTC: weekday(t.Tick, time.UTC), In: format.NewStamp(format.ModeUntil, now, t.Tick)}
		switch {
		case t.Excluded != "":
			row.Note = "excluded by " + t.Excluded
		case !t.FiresAt.IsZero():
			row.Note = "fires " + format.Precise(t.FiresAt.Sub(t.Tick)) + " later"
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
	n, job := req.Number("n"), req.Number("job")
	switch req.Values.Get("did") {
	case "trigger":
		return &notice{Text: "It runs now, as", Path: jobPath(job), Job: job}
	case "pause":
		return &notice{Text: "It is paused."}
	case "resume":
		return &notice{Text: "It is resumed."}
	case "backfill":
		return &notice{Text: "Backfilled: " + format.Plural(int(n), "tick runs", "ticks run") + "."}
	default:
		return nil
	}
}

type tickRow struct {
	Tick  format.Stamp
	Clock string
	Count int64
	Last  string
	Mark  charts.TickMark
	// Why explains the verdict, Told names the receivers of notifications about the
	// failure.
	Why  string
	Told string
	// Blocker is the job at the beginning of Why; nil if there is none.
	Blocker *remark
	// Usual reports that the tick fired normally, so that Why is not shown.
	Usual    bool
	Lateness string
	Node     charts.Node
	Term     int64
	JobID    int64
	Path     string
	State    charts.Badge
	// At is the address of the tick. Run is that of the form that runs it, if it has no job.
	At, Run string
	Chosen  bool
	// Before leads to what happened before a tick that failed.
	Before string
}

func tickRows(now time.Time, ticks []cronstore.Tick, told map[int64][]alerts.Notification, zone *time.Location, jobs map[int64]string, colors charts.Palette) []tickRow {
	rows := make([]tickRow, 0, len(ticks))
	for _, t := range ticks {
		row := tickRow{
			Tick: format.NewStamp(format.ModeAgo, now, t.Tick), Clock: format.Clock(t.Tick, zone), Count: t.Count, Mark: charts.MarkOf(t.Verdict),
			Why: whyOf(t), Told: format.PlainText(alerts.StatusSentence(told[t.Tick.UnixMicro()])), Lateness: format.Millis(t.LatenessMS), Node: colors.Node(t.NodeID),
			Term: t.Term, JobID: t.JobID, Path: jobPath(t.JobID),
		}
		if by := t.BlockedBy; by != 0 {
			row.Blocker = &remark{Text: fmt.Sprintf("job %d", by), Path: jobPath(by)}
			_, row.Why, _ = strings.Cut(row.Why, row.Blocker.Text)
		}
		row.Usual = t.Reason == "" && row.Told == ""
		if t.JobID != 0 {
			row.State = charts.BadgeOf(jobs[t.JobID])
		}
		if row.Mark.Tone == "bad" || row.State.Tone == "bad" {
			row.Before = changesBefore(t.Tick)
		}
		if !t.LastTick.IsZero() && t.Count > 1 {
			row.Last = format.Clock(t.LastTick, zone)
		}
		rows = append(rows, row)
	}
	return rows
}

// whyOf returns the reason in the ledger, or what a missing reason means.
func whyOf(t cronstore.Tick) string {
	switch {
	case t.Reason != "":
		return t.Reason
	case t.Verdict == cronstore.Fired:
		return "Fired on time."
	case t.Verdict == cronstore.CaughtUp:
		return "It did not fire at its time, and was caught up later."
	default:
		return ""
	}
}

// zoneOf returns UTC for a zone that this program does not know.
func zoneOf(name string) *time.Location {
	zone, err := cronexpr.LoadZone(name)
	if err != nil {
		return time.UTC
	}
	return zone
}

// runbookOf returns the runbook, as a link if it is an address of the web: another version of forge
// may have written it.
func runbookOf(spec cronstore.Spec) remark {
	if u, err := url.Parse(spec.Runbook); err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https") {
		return remark{spec.Runbook, spec.Runbook}
	}
	return remark{Text: spec.Runbook}
}

func policies(spec cronstore.Spec) []fact {
	facts := []fact{
		{"Time zone", spec.Timezone},
		{"Overlap", spec.Overlap},
		{"Catch-up", spec.CatchUp},
		{"Missing hour", spec.DSTMissing},
		{"Repeated hour", spec.DSTRepeated},
		{"Capability", spec.Capability},
		{"On failure", strings.Join(spec.OnFailure, ", ")},
	}
	if spec.CatchUp != "none" && spec.CatchUpSpan > 0 {
		facts = append(facts, fact{"Catch-up window", format.Coarse(spec.CatchUpSpan.Std())})
	}
	if spec.MaxAttempts > 0 {
		facts = append(facts, fact{"Attempts", strconv.Itoa(spec.MaxAttempts)})
	}
	return withoutEmpty(facts)
}
