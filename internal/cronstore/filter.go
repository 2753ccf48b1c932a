package cronstore

import (
	"slices"
	"time"

	"github.com/forge-scheduler/forge/internal/filter"
)

// The conditions in which a cron may be.
const (
	IsPaused  = "paused"
	IsOverdue = "overdue"
	IsBlocked = "blocked"
)

// Conditions are the conditions of crons, in display order.
var Conditions = []string{IsPaused, IsOverdue, IsBlocked}

// overdueAfter is how long after its time a tick may wait for the commit that records it
// before its cron counts as overdue.
const overdueAfter = 2 * time.Second

// Overdue reports whether the next tick of an active cron is overdue.
func Overdue(now, next time.Time) bool {
	return !next.IsZero() && now.Sub(next) > overdueAfter
}

// Is reports whether a cron is in a condition.
func (o *Outlined) Is(condition string, now time.Time) bool {
	switch condition {
	case IsPaused:
		return o.Paused
	case IsOverdue:
		return !o.Paused && Overdue(now, o.NextTick)
	case IsBlocked:
		return !o.Paused && o.BlockedBy != 0
	default:
		return false
	}
}

// FilterTable declares the keys of the filters of crons.
var FilterTable = filter.Table[Outlined]{
	{
		Key:   filter.Key{Name: "cron", Example: "nightly*", About: "the name"},
		Texts: func(o *Outlined, _ time.Time) []string { return []string{o.Name} },
	},
	{
		Key:   filter.Key{Name: "job", Example: "report", About: "the job that it runs"},
		Texts: func(o *Outlined, _ time.Time) []string { return []string{o.Job} },
	},
	{
		Key: filter.Key{Name: "is", Type: filter.Choice, Values: Conditions, Example: IsPaused, About: "the condition"},
		Texts: func(o *Outlined, now time.Time) (is []string) {
			for _, condition := range Conditions {
				if o.Is(condition, now) {
					is = append(is, condition)
				}
			}
			return is
		},
	},
	{
		Key: filter.Key{Name: "next", Type: filter.Duration, Example: "<1h", About: "the time until the next tick"},
		Span: func(o *Outlined, now time.Time) (time.Duration, bool) {
			return o.NextTick.Sub(now), !o.Paused && !o.NextTick.IsZero()
		},
	},
}

// Orders declares the orders of crons.
var Orders = filter.Orders[Outlined]{
	{Name: "name", About: "by name"},
	{Name: "next", About: "the next tick first; paused crons and those without a tick last", Compare: func(a, b *Outlined) int {
		if order := last(a) - last(b); order != 0 || last(a) == 1 {
			return order
		}
		return a.NextTick.Compare(b.NextTick)
	}},
	{Name: ByVerdict, About: "by the last verdict: failed first, then skipped, queued, run late, fired, run by hand, none", Compare: func(a, b *Outlined) int {
		return verdictRank(a.Last) - verdictRank(b.Last)
	}},
}

// ByVerdict is the order of crons that needs Outlined.Last.
const ByVerdict = "verdict"

// verdictOrder has the verdicts in the order ByVerdict: those that need a look first.
var verdictOrder = []Verdict{
	Failed, SkippedLimit, SkippedWindow, SkippedOverlap, Replaced, SkippedDST, SkippedExcluded, SkippedPaused,
	Queued, CaughtUp, Fired, Backfilled, Triggered,
}

// verdictRank returns the place of a verdict in verdictOrder; unknown ones and none are last.
func verdictRank(v Verdict) int {
	if i := slices.Index(verdictOrder, v); i >= 0 {
		return i
	}
	return len(verdictOrder)
}

func last(o *Outlined) int {
	if o.Paused || o.NextTick.IsZero() {
		return 1
	}
	return 0
}

// Select returns the crons that match a filter, in an order of Orders.
func Select(where *filter.Filter, order string, now time.Time, crons []Cron) []Cron {
	outlined, at := make([]Outlined, len(crons)), map[string]int{}
	for i := range crons {
		outlined[i], at[crons[i].Name] = crons[i].outline(), i
	}
	found := []Cron{}
	for _, o := range Orders.Sort(order, FilterTable.Select(where, now, outlined)) {
		found = append(found, crons[at[o.Name]])
	}
	return found
}

// outline returns the part of the cron by which lists are filtered.
func (c *Cron) outline() Outlined {
	o := Outlined{Name: c.Name, Job: c.Spec.Job, Paused: c.Paused(), NextTick: c.NextTick, BlockedBy: c.Blocked.By}
	if c.Last != nil {
		o.Last = c.Last.Verdict
	}
	return o
}
