package dashboard

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/cronstore"
)

// cronRow is a cron as the pages show it.
type cronRow struct {
	Name     string
	Path     string
	Job      string
	Schedule string
	English  string
	Timezone string
	Paused   bool
	Removed  bool
	Strip    tickStrip
	Last     *runCell
	Lateness string
	Next     stamp
	// Overdue reports that the next tick is past and not recorded.
	Overdue bool
	// Blocked describes the job because of which the newest tick was skipped; nil if there
	// is none.
	Blocked *blockedCell
}

type blockedCell struct {
	JobID int64
	Path  string
	Since stamp
	State badge
}

// runCell is the newest tick with a job.
type runCell struct {
	At    stamp
	JobID int64
	Path  string
	State badge
}

// overdueAfter is how long after its time a tick may wait for the commit that records it
// before the page reports it as overdue.
const overdueAfter = 2 * time.Second

func cronRows(now time.Time, crons []cronstore.Cron, ticks map[string][]cronstore.Tick, jobs map[int64]string) []cronRow {
	rows := make([]cronRow, 0, len(crons))
	for _, c := range crons {
		rows = append(rows, newCronRow(now, c, ticks[c.Name], jobs))
	}
	return rows
}

func newCronRow(now time.Time, c cronstore.Cron, ticks []cronstore.Tick, jobs map[int64]string) cronRow {
	row := cronRow{
		Name: c.Name, Path: cronPath(c.Name), Job: c.Spec.Job, Schedule: c.Spec.Schedule, English: c.Describe(),
		Timezone: c.Spec.Timezone, Paused: c.Paused(), Removed: !c.RemovedAt.IsZero(),
		Strip: drawTickStrip(ticks, jobs, stripLength), Next: newStamp(modeUntil, now, c.NextTick), Lateness: "–",
	}
	row.Overdue = !row.Paused && !row.Removed && isOverdue(now, c.NextTick)
	if by := c.Blocked.By; by != 0 && !row.Paused && !row.Removed {
		row.Blocked = &blockedCell{JobID: by, Path: jobPath(by), Since: newStamp(modeAgo, now, c.Blocked.Since), State: badgeOf(jobs[by])}
	}
	if t, ok := lastRun(ticks); ok {
		row.Last = &runCell{At: newStamp(modeAgo, now, t.RecordedAt), JobID: t.JobID, Path: jobPath(t.JobID), State: badgeOf(jobs[t.JobID])}
		if t.Verdict == cronstore.Fired || t.Verdict == cronstore.CaughtUp {
			row.Lateness = millis(t.LatenessMS)
		}
	}
	return row
}

// lastRun returns the newest tick with a job.
func lastRun(ticks []cronstore.Tick) (run cronstore.Tick, ok bool) {
	i := slices.IndexFunc(ticks, func(t cronstore.Tick) bool { return t.JobID != 0 })
	if i < 0 {
		return run, false
	}
	return ticks[i], true
}

// isOverdue reports whether the next tick of an active cron is overdue.
func isOverdue(now, next time.Time) bool {
	return !next.IsZero() && now.Sub(next) > overdueAfter
}

func cronPath(name string) string { return "/crons/" + url.PathEscape(name) }
func jobPath(id int64) string     { return "/jobs/" + strconv.FormatInt(id, 10) }

type tickRow struct {
	Tick  stamp
	Clock string
	Count int64
	Last  string
	Mark  tickMark
	// Why explains the verdict, Told names the receivers of notifications about the
	// failure.
	Why  string
	Told string
	// Blocker is the job at the beginning of Why; nil if there is none.
	Blocker *remark
	// Usual reports that the tick fired normally, so that Why is not shown.
	Usual    bool
	Lateness string
	Node     nodeName
	Term     int64
	JobID    int64
	Path     string
	State    badge
}

func tickRows(now time.Time, ticks []cronstore.Tick, told map[int64][]alerts.Notification, zone *time.Location, jobs map[int64]string, colors palette) []tickRow {
	rows := make([]tickRow, 0, len(ticks))
	for _, t := range ticks {
		row := tickRow{
			Tick: newStamp(modeAgo, now, t.Tick), Clock: clock(t.Tick, zone), Count: t.Count, Mark: markOf(t.Verdict),
			Why: whyOf(t), Told: plainText(alerts.StatusSentence(told[t.Tick.UnixMicro()])), Lateness: millis(t.LatenessMS), Node: nodeName{t.NodeID, colors.of(t.NodeID)},
			Term: t.Term, JobID: t.JobID, Path: jobPath(t.JobID),
		}
		if by := t.BlockedBy; by != 0 {
			row.Blocker = &remark{Text: fmt.Sprintf("job %d", by), Path: jobPath(by)}
			_, row.Why, _ = strings.Cut(row.Why, row.Blocker.Text)
		}
		row.Usual = t.Reason == "" && row.Told == ""
		if t.JobID != 0 {
			row.State = badgeOf(jobs[t.JobID])
		}
		if !t.LastTick.IsZero() && t.Count > 1 {
			row.Last = clock(t.LastTick, zone)
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

// clock formats an instant in the cron's zone, in which its schedule is defined.
func clock(t time.Time, zone *time.Location) string {
	return t.In(zone).Format("2006-01-02 15:04:05 MST")
}

// zoneOf returns UTC for a zone that this machine does not know.
func zoneOf(name string) *time.Location {
	zone, err := time.LoadLocation(name)
	if err != nil {
		return time.UTC
	}
	return zone
}

// fact is a row in a page's list of facts.
type fact struct{ Name, Value string }

func policies(spec cronstore.Spec) []fact {
	facts := []fact{
		{"Time zone", spec.Timezone},
		{"Overlap", spec.Overlap},
		{"Catch-up", spec.CatchUp},
		{"Queue", spec.Queue},
		{"Missing hour", spec.DSTMissing},
		{"Repeated hour", spec.DSTRepeated},
		{"Capability", spec.Capability},
		{"On failure", strings.Join(spec.OnFailure, ", ")},
	}
	if spec.CatchUp != "none" && spec.CatchUpSpan > 0 {
		facts = append(facts, fact{"Catch-up window", coarse(spec.CatchUpSpan.Std())})
	}
	if spec.MaxAttempts > 0 {
		facts = append(facts, fact{"Attempts", strconv.Itoa(spec.MaxAttempts)})
	}
	return withoutEmpty(facts)
}

func withoutEmpty(facts []fact) []fact {
	var full []fact
	for _, f := range facts {
		if f.Value != "" {
			full = append(full, f)
		}
	}
	return full
}
