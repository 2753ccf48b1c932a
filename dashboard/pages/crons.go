package pages

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/forge-scheduler/forge/dashboard/charts"
	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/internal/cronstore"
)

// Narrowed reports whether the list is filtered.
func (b *cronsBody) Narrowed() bool { return b.Bar.Narrowed }

// choose filters the crons and returns one page of them.
func (b *cronsBody) choose(now time.Time, crons []cronstore.Outlined, filter cluster.CronFilter) ([]cronstore.Outlined, error) {
	if err := filter.CheckCondition(); err != nil {
		return nil, err
	}
	found := filter.Select(now, crons)
	counts := cluster.CountCrons(now, found)
	in := func(is string, more ...string) string {
		narrowed := filter
		narrowed.Is = is
		return "/crons?" + cronValues(narrowed, more...)
	}
	b.all, b.paused = len(found), counts[cronstore.IsPaused]
	if filter.Is != "" {
		b.all = counts[filter.Is]
	}
	if filter.Is != "" && filter.Is != cronstore.IsPaused { // the others are not paused
		b.paused = 0
	}
	b.Heads = heads([]head{{Text: "Name"}, {Text: "Schedule"}, {Text: "Last ticks"}, {Text: "Last run"}, {Text: "Late by", Class: "num"}, {Text: "Next run", Class: "num"}},
		map[string]sortBy{"Name": {"name", "ascending", "By name"}, "Last ticks": {cronstore.ByVerdict, "other", "By the last verdict: failed first, then skipped"}, "Next run": {"next", "ascending", "The next run first"}},
		cmp.Or(filter.Sort, cronstore.Orders[0].Name), func(sort string) string {
			sorted := filter
			sorted.Sort = sort
			return "/crons?" + cronValues(sorted)
		})
	b.Tabs = []tab{{"all", in(""), format.Number(int64(len(found))), filter.Is == ""}}
	for _, is := range cluster.CronFilters {
		b.Tabs = append(b.Tabs, tab{is, in(is), format.Number(int64(counts[is])), filter.Is == is})
	}
	shown, next := filter.Page(now, found, cronsPerPage)
	if next != "" {
		b.Next = in(filter.Is, "after", next)
	}
	return shown, nil
}

// rowsOf returns the crons of a page with their newest ticks and the states of their last
// runs.
func (s *Pages) rowsOf(ctx context.Context, outlined []cronstore.Outlined, now time.Time) ([]cronRow, error) {
	crons, err := s.ReadCrons(ctx, outlined)
	if err != nil {
		return nil, err
	}
	ticks, states, err := s.Ticks.Get(ctx, crons, now)
	if err != nil {
		return nil, fmt.Errorf("read ticks: %w", err)
	}
	var ids []int64
	for _, own := range ticks {
		if run, ok := lastRun(own); ok {
			ids = append(ids, run.JobID)
		}
	}
	newest, err := s.Source.Jobs.States(ctx, ids)
	if err != nil {
		return nil, err
	}
	maps.Copy(states, newest)
	return cronRows(now, crons, ticks, states), nil
}

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
	Strip    charts.TickStrip
	Last     *runCell
	Lateness string
	Next     format.Stamp
	// Overdue reports that the next tick is past and not recorded.
	Overdue bool
	// Blocked describes the job because of which the newest tick was skipped; nil if there
	// is none.
	Blocked *blockedCell
}

type blockedCell struct {
	JobID int64
	Path  string
	Since format.Stamp
	State charts.Badge
}

// runCell is the newest tick with a job.
type runCell struct {
	At    format.Stamp
	JobID int64
	Path  string
	State charts.Badge
}

func cronRows(now time.Time, crons []cronstore.Cron, ticks map[string][]cronstore.Tick, jobs map[int64]string) []cronRow {
	rows := make([]cronRow, 0, len(crons))
	for _, c := range crons {
		rows = append(rows, newCronRow(now, c, ticks[c.Name], jobs))
	}
	return rows
}

func newCronRow(now time.Time, c cronstore.Cron, ticks []cronstore.Tick, jobs map[int64]string) cronRow {
	row := cronRow{
		Name: c.Name, Path: CronPath(c.Name), Job: c.Spec.Job, Schedule: c.Spec.Schedule, English: c.Describe(),
		Timezone: c.Spec.Timezone, Paused: c.Paused(), Removed: !c.RemovedAt.IsZero(),
		Strip: charts.DrawTickStrip(ticks, jobs, cluster.StripLength), Next: format.NewStamp(format.ModeUntil, now, c.NextTick), Lateness: "–",
	}
	row.Overdue = !row.Paused && !row.Removed && cronstore.Overdue(now, c.NextTick)
	if by := c.Blocked.By; by != 0 && !row.Paused && !row.Removed {
		row.Blocked = &blockedCell{JobID: by, Path: jobPath(by), Since: format.NewStamp(format.ModeAgo, now, c.Blocked.Since), State: charts.BadgeOf(jobs[by])}
	}
	if t, ok := lastRun(ticks); ok {
		row.Last = &runCell{At: format.NewStamp(format.ModeAgo, now, t.RecordedAt), JobID: t.JobID, Path: jobPath(t.JobID), State: charts.BadgeOf(jobs[t.JobID])}
		if t.Verdict == cronstore.Fired || t.Verdict == cronstore.CaughtUp {
			row.Lateness = format.Millis(t.LatenessMS)
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

type cronsBody struct {
	base
	Bar   bar
	Tabs  []tab
	Heads []head
	Crons []cronRow
	Next  string
	// Query is the text in the names of crons or jobs.
	Query string
	// Acts are the buttons for actions on all crons that match the filter, Picks those for
	// the selected ones.
	Acts, Picks []act
	Notice      *undoable

	// all and paused count the crons that match the filter.
	all, paused int
}

func (s *Pages) loadCrons(ctx context.Context, req *request) (body, error) {
	facts, err := s.cluster(ctx)
	if err != nil {
		return nil, err
	}
	filter := cronFilterOf(req)
	if err := req.err(); err != nil {
		return nil, err
	}
	all, err := s.Outline(ctx, filter)
	if err != nil {
		return nil, err
	}
	b := cronsBody{base: base{name: "Crons", beat: s.pulseOf(facts)}, Bar: cronBar(filter, all.Crons), Query: filter.Text, Notice: undoableOf(req)}
	shown, err := b.choose(all.At(facts.now), all.Crons, filter)
	if err != nil {
		return nil, err
	}
	if s.Operates() && req.may(route.Operator) {
		b.holdAll(filter, b.all, b.paused)
	}
	b.Crons, err = s.rowsOf(ctx, shown, facts.now)
	return &b, err
}

// mostSuggested bounds the crons and jobs that the bar suggests.
const mostSuggested = 100

// cronBar returns the filter bar of the crons. The field for names and jobs at once is
// older than the filter.
func cronBar(filter cluster.CronFilter, crons []cronstore.Outlined) bar {
	var names []string
	jobs := map[string]bool{}
	for _, c := range crons[:min(len(crons), mostSuggested)] {
		names, jobs[c.Job] = append(names, c.Name), true
	}
	b := newBar("/crons", filter.Where.String(), cronstore.FilterTable.Keys(), cronFields,
		map[string][]string{"cron": names, "job": slices.Sorted(maps.Keys(jobs))})
	b.keep("is", filter.Is)
	b.keep("sort", filter.Sort)
	b.Fields = append([]barField{{Name: "q", Label: "Name or job", Value: filter.Text, Example: "backup", About: "A part of the name of the cron or of its job, in any case"}}, b.Fields...)
	b.Narrowed = b.Narrowed || filter.Text != ""
	return b
}
