// Package explain describes in words the outcome of the ticks of crons, and lists
// the next ticks: for commands, the API and pages.
package explain

import (
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/cronstore"
)

// Standings of a tick: its place relative to the ledger.
const (
	Recorded  = "recorded"
	Future    = "future"
	NotDue    = "not_due"
	Before    = "before_first_seen"
	Removed   = "after_removal"
	Unsettled = "not_recorded_yet"
	Unknown   = "not_in_the_ledger"
)

// Explanation is the outcome of a tick with its reason.
type Explanation struct {
	Cron     string    `json:"cron"`
	Tick     time.Time `json:"tick"`
	Standing string    `json:"standing"`
	Sentence string    `json:"sentence"`
	// Row is the ledger row of the tick, or of the range that contains it.
	Row      *cronstore.Tick `json:"row,omitempty"`
	JobState string          `json:"job_state,omitempty"`
	// Told are the notifications about the failed run, sent or pending.
	Told []alerts.Notification `json:"notifications,omitempty"`
	// Previous and Next are the nearest due ticks.
	Previous time.Time `json:"previous,omitzero"`
	Next     time.Time `json:"next,omitzero"`
}

// Facts is the data about a tick in the database.
type Facts struct {
	Cron cronstore.Cron
	Tick time.Time
	Now  time.Time
	// Row is nil if there is none.
	Row      *cronstore.Tick
	JobState string
	Told     []alerts.Notification
}

// Explain returns the explanation of a tick.
func Explain(facts Facts) (Explanation, error) {
	timeline, err := facts.Cron.Spec.Timeline(facts.Cron.Name)
	if err != nil {
		return Explanation{}, err
	}
	e := Explanation{Cron: facts.Cron.Name, Tick: facts.Tick}
	tick, due := timeline.At(facts.Tick)
	if row := facts.Row; row != nil && (due || row.Tick.Equal(facts.Tick) || row.LastTick.Equal(facts.Tick)) {
		e.Standing, e.Row, e.JobState, e.Told = Recorded, row, facts.JobState, facts.Told
		e.Sentence = Row(facts, *row)
		return e, nil
	}
	if previous, ok := timeline.Before(facts.Tick); ok {
		e.Previous = previous.At.UTC()
	}
	for next := range timeline.After(facts.Tick) {
		e.Next = next.At.UTC()
		break
	}
	var what string
	e.Standing, what = standing(facts, tick, due)
	e.Sentence = fmt.Sprintf("The tick %s of %s %s.", Instant(facts.Tick), facts.Cron.Name, what)
	if e.Standing == NotDue {
		e.Sentence = strings.TrimSuffix(e.Sentence, ".") + "; " + nearest(e.Previous, e.Next) + "."
	}
	return e, nil
}

// standing returns why a tick has no row in the ledger.
func standing(facts Facts, at cronstore.Due, due bool) (standing, what string) {
	cron, tick := facts.Cron, facts.Tick
	switch {
	case !due:
		return NotDue, fmt.Sprintf("is not due by the schedule %q in %s%s", cron.Spec.Schedule, cron.Spec.Timezone, bounds(cron.Spec))
	case !cron.RemovedAt.IsZero() && tick.After(cron.RemovedAt):
		return Removed, "was never due: the cron was removed at " + Instant(cron.RemovedAt)
	case tick.After(facts.Now):
		return Future, "lies in the future: it is due in " + Span(tick.Sub(facts.Now))
	case tick.Before(cron.CreatedAt):
		return Before, "was never due: the cron was first seen at " + Instant(cron.CreatedAt)
	case tick.After(cron.Watermark) && at.FiresAt.After(facts.Now):
		return Unsettled, "is due, and its jitter lets it fire at " + Instant(at.FiresAt)
	case tick.After(cron.Watermark):
		return Unsettled, "is due and not recorded yet; see forge leader status for who schedules"
	default:
		return Unknown, "is not in the ledger: its row is past retention.cron_ticks, or the cron had another schedule then" +
			" (its definition is of " + Instant(cron.UpdatedAt) + ")"
	}
}

// bounds describes the period in which a schedule is valid.
func bounds(spec cronstore.Spec) string {
	said := ""
	if !spec.StartAt.IsZero() {
		said += " from " + Instant(spec.StartAt)
	}
	if !spec.EndAt.IsZero() {
		said += " until " + Instant(spec.EndAt)
	}
	return said
}

func nearest(previous, next time.Time) string {
	switch {
	case previous.IsZero() && next.IsZero():
		return "it is never due"
	case previous.IsZero():
		return "the nearest due tick is " + Instant(next)
	case next.IsZero():
		return "the nearest due tick is " + Instant(previous)
	default:
		return fmt.Sprintf("the nearest due ticks are %s and %s", Instant(previous), Instant(next))
	}
}

// Row describes a row of the ledger in words.
func Row(facts Facts, row cronstore.Tick) string {
	said := fmt.Sprintf("The tick %s of %s was recorded as %s", Instant(facts.Tick), facts.Cron.Name, row.Verdict)
	if row.Count > 1 {
		said += fmt.Sprintf(", one of %d from %s to %s", row.Count, Instant(row.Tick), Instant(row.LastTick))
	}
	var parts []string
	if row.Reason != "" {
		parts = append(parts, clause(row.Reason))
	}
	if row.JobID != 0 {
		parts = append(parts, fmt.Sprintf("job %d is %s", row.JobID, facts.JobState))
	}
	if told := alerts.StatusSentence(facts.Told); told != "" {
		parts = append(parts, told)
	}
	by := "by hand"
	if row.NodeID != "" {
		by = fmt.Sprintf("by node %s in term %d", row.NodeID, row.Term)
	}
	if row.Count <= 1 {
		by += ", " + Milliseconds(row.LatenessMS) + " late"
	}
	return said + ": " + strings.Join(append(parts, by), "; ") + "."
}

// clause turns a reason, which is a sentence, into a clause.
func clause(reason string) string {
	first, size := utf8.DecodeRuneInString(reason)
	return string(unicode.ToLower(first)) + strings.TrimSuffix(reason[size:], ".")
}

// Coming is one future tick, in the cron's zone and in UTC.
type Coming struct {
	Tick time.Time `json:"tick"`
	UTC  time.Time `json:"utc"`
	// FiresAt is the tick plus the cron's jitter, if it has one.
	FiresAt time.Time `json:"fires_at,omitzero"`
	// Excluded is why the tick does not fire.
	Excluded string `json:"excluded,omitempty"`
}

// Next returns the next ticks of a definition after an instant.
func Next(name string, spec cronstore.Spec, after time.Time, count int) ([]Coming, error) {
	timeline, err := spec.Timeline(name)
	if err != nil {
		return nil, err
	}
	ticks := []Coming{}
	for due := range timeline.After(after) {
		if due.SkippedDST {
			continue
		}
		tick := Coming{Tick: due.At, UTC: due.At.UTC(), Excluded: due.Excluded}
		if spec.Jitter > 0 {
			tick.FiresAt = due.FiresAt.UTC()
		}
		ticks = append(ticks, tick)
		if len(ticks) == count {
			break
		}
	}
	return ticks, nil
}

// Instant formats an instant in UTC.
func Instant(at time.Time) string { return at.UTC().Format(time.RFC3339Nano) }

// Milliseconds formats a number of milliseconds as Span does. A Duration cannot hold more than
// 292 years.
func Milliseconds(ms float64) string {
	d := ms * float64(time.Millisecond)
	if d >= math.MaxInt64 {
		return "over 292 years"
	}
	return Span(time.Duration(d))
}

// Span formats a duration with at most three significant digits.
func Span(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(100 * time.Microsecond).String()
	case d < time.Minute:
		return d.Round(10 * time.Millisecond).String()
	default:
		return d.Round(time.Second).String()
	}
}
