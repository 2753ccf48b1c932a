package pages

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/dashboard/charts"
	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	search "github.com/forge-scheduler/forge/internal/filter"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
)

// jobCountAge describes the age of the job counts on a page. It is zero for recent counts.
type jobCountAge struct {
	// Unknown reports that there is no count yet.
	Unknown bool
	At      format.Stamp
}

func newJobCountAge(now time.Time, counts cluster.CachedValue[[]jobstore.Count]) jobCountAge {
	switch {
	case counts.At.IsZero():
		return jobCountAge{Unknown: true}
	case counts.Slow || now.Sub(counts.At) > cluster.OldCount:
		return jobCountAge{At: format.NewStamp(format.ModeAgo, now, counts.At)}
	default:
		return jobCountAge{}
	}
}

type jobsBody struct {
	base
	Filter jobstore.Filter
	// Tabs filter the list by state.
	Tabs []tab
	// CountAge is the age of the numbers in the tabs.
	CountAge jobCountAge
	Heads    []head
	Jobs     []jobRow
	Older    string
	// Since is the end of the jobs that were not compared with the slowest ones.
	Since format.Stamp
	// Partial reports that the list ends before all jobs were searched.
	Partial bool
	// Bar is the whole filter but for the state, which the tabs show.
	Bar bar
	// Time shows and selects the terms about time.
	Time timeControl
	// Similar leads to the jobs of kinds that contain the kind of the filter.
	Similar string
	// Acts are the buttons for actions on all jobs that match the filter.
	Acts []act
	// Picks are the buttons for actions on the selected jobs.
	Picks    []act
	Notice   string
	Enqueues bool
}

// Narrowed reports whether the list is filtered.
func (b *jobsBody) Narrowed() bool {
	f := b.Filter
	return f.State != "" || f.Kind != "" || f.Queue != "" || f.Cron != "" || f.Where != nil
}

func (s *Pages) loadJobs(ctx context.Context, req *request) (body, error) {
	filter := jobFilter(req)
	filter.Args = jobstore.ShortArgs
	if err := req.err(); err != nil {
		return nil, err
	}
	if filter.State != "" && !slices.Contains(cluster.JobStates, filter.State) {
		return nil, web.BadRequest(fmt.Errorf("state must be one of %s", strings.Join(cluster.JobStates, ", ")))
	}
	facts, err := s.cluster(ctx)
	if err != nil {
		return nil, err
	}
	if filter, err = s.timedFilter(req, filter, facts.now); err != nil {
		return nil, err
	}
	found, err := s.Source.Jobs.Search(ctx, filter)
	if err != nil {
		return nil, fmt.Errorf("read jobs: %w", err)
	}
	counts := s.Counts.Latest(ctx, facts.now)
	b := jobsBody{base: base{name: "Jobs", beat: s.pulseOf(facts), past: filter.BeforeID != 0}, Filter: filter, Enqueues: s.Enqueuer != nil && req.may(route.Operator)}
	b.Tabs = stateTabs(filter, counts)
	b.Bar = newBar("/jobs", filterText(filter), jobstore.Keys, jobFields,
		map[string][]string{"kind": kindsOf(facts.nodes), "queue": queuesOf(facts.nodes, counts.Value), "node": nodesOf(facts.nodes)})
	b.Bar.keep("state", filter.State)
	if b.Time, err = s.jobTime(req, filter, facts.now); err != nil {
		return nil, err
	}
	b.Bar.keep("sort", string(filter.Sort))
	b.Bar.Views = jobViews
	b.Heads, b.Since = jobHeads(filter), format.NewStamp(format.ModeAgo, facts.now, found.Since)
	b.Bar.Example = "kind:send* took:>10s since:2h"
	if showsCounts(filter) {
		b.CountAge = newJobCountAge(facts.now, counts)
	}
	if s.JobOps != nil && req.may(route.Operator) {
		b.Picks = picks("/bulk/jobs/", jobstore.Actions)
	}
	b.Jobs, b.Acts, b.Notice = jobRows(facts.now, found.Jobs, facts.colors), s.bulkActs(req, filter, found), bulkNotice(req)
	if found.Next != 0 {
		b.Older = "/jobs?" + filterValues(filter, "before", strconv.FormatInt(found.Next, 10))
		b.Partial = len(found.Jobs) < filter.Limit
	}
	if filter.Kind != "" {
		similar := filter
		similar.Kind = ""
		b.Similar = "/jobs?" + filterValues(similar.Narrow(search.New(search.Written("kind", "*"+filter.Kind+"*"))))
	}
	return &b, nil
}

// jobViews are the saved views of the jobs.
var jobViews = []tab{
	{Name: "Failed in the last hour", Path: "/jobs?" + web.Encode("state", "discarded", "filter", "since:1h")},
	{Name: "Slowest of the last hour", Path: "/jobs?" + web.Encode("sort", string(jobstore.Slowest), "filter", "since:1h")},
	{Name: "Longest waiting", Path: "/jobs?" + web.Encode("sort", string(jobstore.Waiting))},
}

// jobHeads returns the heads of the table of jobs.
func jobHeads(filter jobstore.Filter) []head {
	columns := []head{{Text: "Job"}, {Text: "State"}, {Text: "Kind"}, {Text: "Queue"}, {Text: "Cron"}, {Text: "Node"}, {Text: "Attempt", Class: "num"}, {Text: "Took", Class: "num"}, {Text: "When", Class: "num"}}
	sorts := map[string]sortBy{
		"Job":  {string(jobstore.Newest), "descending", "Newest first"},
		"Took": {string(jobstore.Slowest), "descending", "Slowest first"},
		"When": {string(jobstore.Waiting), "ascending", "Available jobs, the longest waiting first"},
	}
	return heads(columns, sorts, cmp.Or(string(filter.Sort), string(jobstore.Newest)), func(sort string) string {
		sorted := filter
		sorted.Sort = jobstore.Sort(sort)
		return "/jobs?" + filterValues(sorted)
	})
}

// stateTabs returns tabs that filter the list by state and keep the other filters. The
// counts are known only by state and queue.
func stateTabs(filter jobstore.Filter, counts cluster.CachedValue[[]jobstore.Count]) []tab {
	by := sumByState(counts.Value, filter.Queue)
	counted := func(sum jobSum) string {
		if !showsCounts(filter) || counts.At.IsZero() {
			return ""
		}
		return sum.String()
	}
	in := func(state string) string {
		narrowed := filter
		narrowed.State = state
		return "/jobs?" + filterValues(narrowed)
	}
	tabs := []tab{{"all", in(""), counted(by[""]), filter.State == ""}}
	for _, state := range cluster.JobStates {
		if state != "pending" || by[state].jobs > 0 || filter.State == state { // few clusters have such jobs
			tabs = append(tabs, tab{state, in(state), counted(by[state]), filter.State == state})
		}
	}
	return tabs
}

// jobSum is a number of jobs, and whether there are more.
type jobSum struct {
	jobs int64
	more bool
}

func (s jobSum) String() string {
	if s.more {
		return format.Number(s.jobs) + "+"
	}
	return format.Number(s.jobs)
}

// sumByState sums the counts of a queue by state, and all of them for the state "". The queue ""
// means all queues. Counts of finished jobs stop for all queues together.
func sumByState(counts []jobstore.Count, queue string) map[string]jobSum {
	by := map[string]jobSum{}
	for _, c := range counts {
		counted := queue == "" || c.Queue == queue
		for _, state := range []string{c.State, ""} {
			sum := by[state]
			if counted {
				sum.jobs += c.Jobs
			}
			sum.more = sum.more || c.More && (counted || jobstore.Finished(c.State))
			by[state] = sum
		}
	}
	return by
}

// showsCounts reports whether the tabs have numbers.
func showsCounts(filter jobstore.Filter) bool {
	return filter.Kind == "" && filter.Cron == "" && filter.Where == nil
}

// kindsOf returns the kinds that a present node has a worker for.
func kindsOf(nodes []nodestore.Node) []string {
	kinds := map[string]bool{}
	for _, n := range nodes {
		if n.Present() {
			for _, kind := range n.Kinds {
				kinds[kind] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(kinds))
}

// nodesOf returns the present nodes.
func nodesOf(nodes []nodestore.Node) (ids []string) {
	for _, n := range nodes {
		if n.Present() {
			ids = append(ids, n.NodeID)
		}
	}
	return ids
}

// queuesOf returns the queues that have jobs or that a node works.
func queuesOf(nodes []nodestore.Node, counts []jobstore.Count) []string {
	queues := map[string]bool{}
	for _, n := range nodes {
		for queue := range n.Queues {
			queues[queue] = n.Present() || queues[queue]
		}
	}
	maps.DeleteFunc(queues, func(_ string, worked bool) bool { return !worked })
	for _, c := range counts {
		queues[c.Queue] = true
	}
	return slices.Sorted(maps.Keys(queues))
}

type jobRow struct {
	ID       int64
	Path     string
	State    charts.Badge
	Kind     string
	Cron     string
	CronPath string
	Node     charts.Node
	Attempt  string
	Duration string
	// Since counts up while the job runs. Duration is then empty.
	Since format.Stamp
	When  format.Stamp
	Error string
	Queue string
	// QueuePath is the address of the queue's page.
	QueuePath string
	// Note distinguishes this job from others of its kind: its last error, or its
	// arguments.
	Note  string
	Wrong bool
}

func jobRows(now time.Time, jobs []jobstore.Job, colors charts.Palette) []jobRow {
	rows := make([]jobRow, 0, len(jobs))
	for _, j := range jobs {
		rows = append(rows, newJobRow(now, j, colors))
	}
	return rows
}

func newJobRow(now time.Time, j jobstore.Job, colors charts.Palette) jobRow {
	row := jobRow{
		ID: j.ID, Path: jobPath(j.ID), State: charts.BadgeOf(j.State), Kind: j.Kind, Cron: j.Cron, CronPath: CronPath(j.Cron),
		Node: colors.Node(j.NodeID), Attempt: fmt.Sprintf("%d/%d", j.Attempt, j.MaxAttempts),
		Duration: "–", Error: j.LastError, When: jobWhen(now, j), Queue: j.Queue, QueuePath: queuePath(j.Queue),
	}
	row.Note, row.Wrong = jobNote(j)
	switch {
	case j.State == "running":
		row.Duration, row.Since = "", format.NewStamp(format.ModeSince, now, j.AttemptedAt)
	case !j.FinalizedAt.IsZero() && !j.AttemptedAt.IsZero():
		row.Duration = format.Precise(j.FinalizedAt.Sub(j.AttemptedAt))
	}
	return row
}

// longestNote bounds a note, in characters.
const longestNote = 100

func jobNote(j jobstore.Job) (text string, wrong bool) {
	text = compactJSON(j.Args)
	if wrong = j.LastError != "" && j.State != "completed"; wrong {
		text, _, _ = strings.Cut(j.LastError, "\n")
	}
	short := []rune(format.PlainText(text[:min(len(text), 8*longestNote)]))
	if len(short) > longestNote {
		short = append(short[:longestNote-1], '…')
	}
	return string(short), wrong
}

// compactJSON returns an empty text for no arguments. It returns truncated JSON unchanged.
func compactJSON(raw json.RawMessage) string {
	var out bytes.Buffer
	if json.Compact(&out, raw) != nil {
		return string(raw)
	}
	if out.String() == "{}" {
		return ""
	}
	return out.String()
}

// jobWhen returns the most relevant instant of the job's state: its end, its start, or when
// it is due.
func jobWhen(now time.Time, j jobstore.Job) format.Stamp {
	switch {
	case !j.FinalizedAt.IsZero():
		return format.NewStamp(format.ModeAgo, now, j.FinalizedAt)
	case j.State == "running":
		return format.NewStamp(format.ModeAgo, now, j.AttemptedAt)
	case j.ScheduledAt.After(now):
		return format.NewStamp(format.ModeUntil, now, j.ScheduledAt)
	default:
		return format.NewStamp(format.ModeAgo, now, j.ScheduledAt)
	}
}
