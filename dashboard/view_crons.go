package dashboard

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/outbox"
)

type cronRow struct {
	Name     string
	Path     string
	Job      string
	Schedule string
	English  string
	Timezone string
	Paused   bool
	Removed  bool
	Strip    strip
	Last     *runCell
	Lateness string
	Next     stamp
	// Overdue is set when the next tick is past and nobody fired it.
	Overdue bool
	// Blocked is the job because of which the newest tick was skipped, and since when
	// ticks are; nil: none.
	Blocked *blockedCell
}

type blockedCell struct {
	JobID int64
	Path  string
	Since stamp
	State badge
}

// runCell is the newest tick that became a job.
type runCell struct {
	At    stamp
	JobID int64
	Path  string
	State badge
}

// overdueAfter is how long after its time a tick may be waiting for the commit
// that records it before the page says so.
const overdueAfter = 2 * time.Second

func (s *server) cronRows(now time.Time, crons []cronstore.Cron, ticks map[string][]cronstore.Tick, jobs map[int64]string) []cronRow {
	rows := make([]cronRow, 0, len(crons))
	for _, c := range crons {
		rows = append(rows, newCronRow(now, c, ticks[c.Name], jobs, s.describe(c)))
	}
	return rows
}

func newCronRow(now time.Time, c cronstore.Cron, ticks []cronstore.Tick, jobs map[int64]string, english string) cronRow {
	row := cronRow{
		Name: c.Name, Path: cronPath(c.Name), Job: c.Spec.Job, Schedule: c.Spec.Schedule, English: english,
		Timezone: c.Spec.Timezone, Paused: c.Paused(), Removed: !c.RemovedAt.IsZero(),
		Strip: drawStrip(ticks, jobs, stripLength), Next: newStamp(modeUntil, now, c.NextTick), Lateness: "–",
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

// lastRun is the newest tick that became a job.
func lastRun(ticks []cronstore.Tick) (run cronstore.Tick, ok bool) {
	i := slices.IndexFunc(ticks, func(t cronstore.Tick) bool { return t.JobID != 0 })
	if i < 0 {
		return run, false
	}
	return ticks[i], true
}

// isOverdue is of the next tick of a cron that is in force and not paused.
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
	Mark  mark
	// Why says in a sentence why the tick became what it did, Told who heard of
	// its failure.
	Why  string
	Told string
	// Blocker is the job that Why begins with, nil if it names none.
	Blocker *remark
	// Usual: it fired as it should, and why is no news.
	Usual    bool
	Lateness string
	Node     nodeName
	Term     int64
	JobID    int64
	Path     string
	State    badge
}

func tickRows(now time.Time, ticks []cronstore.Tick, told map[int64][]outbox.Notification, zone *time.Location, jobs map[int64]string, colors palette) []tickRow {
	rows := make([]tickRow, 0, len(ticks))
	for _, t := range ticks {
		row := tickRow{
			Tick: newStamp(modeAgo, now, t.Tick), Clock: clock(t.Tick, zone), Count: t.Count, Mark: markOf(t.Verdict),
			Why: whyOf(t), Told: plainText(outbox.Sentence(told[t.Tick.UnixMicro()])), Lateness: millis(t.LatenessMS), Node: nodeName{t.NodeID, colors.of(t.NodeID)},
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

// whyOf is the ledger's reason, or what its silence means.
func whyOf(t cronstore.Tick) string {
	switch {
	case t.Reason != "":
		return t.Reason
	case t.Verdict == cronstore.Fired:
		return "It was due, and nothing stood in its way."
	case t.Verdict == cronstore.CaughtUp:
		return "Nobody fired it at its time, and it was caught up."
	default:
		return ""
	}
}

// clock writes an instant in the cron's own zone: its schedule is read there.
func clock(t time.Time, zone *time.Location) string {
	return t.In(zone).Format("2006-01-02 15:04:05 MST")
}

// zoneOf falls back to UTC for a zone that this machine does not know.
func zoneOf(name string) *time.Location {
	zone, err := time.LoadLocation(name)
	if err != nil {
		return time.UTC
	}
	return zone
}

// fact is a line of a page's list of facts.
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
