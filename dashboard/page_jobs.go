package dashboard

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
)

type jobsBody struct {
	base
	Filter jobstore.Filter
	// Tabs filter the list by state.
	Tabs []tab
	// CountAge is the age of the numbers in the tabs.
	CountAge jobCountAge
	Jobs     []jobRow
	Older    string
	// Kinds and Queues are the choices of the filter.
	Kinds, Queues []string
	// Acts are the buttons for actions on all jobs that match the filter.
	Acts     []act
	Notice   string
	Enqueues bool
}

// jobStates are the job states of River, in the order of a job's life.
var jobStates = []string{"available", "pending", "scheduled", "running", "retryable", "completed", "cancelled", "discarded"}

// Narrowed reports whether the list is filtered.
func (b *jobsBody) Narrowed() bool {
	f := b.Filter
	return f.State != "" || f.Kind != "" || f.Queue != "" || f.Cron != ""
}

func (s *pageServer) loadJobs(ctx context.Context, req *request) (body, error) {
	filter := jobFilter(&req.query)
	filter.Args = jobstore.ShortArgs
	if err := req.err(); err != nil {
		return nil, err
	}
	if filter.State != "" && !slices.Contains(jobStates, filter.State) {
		return nil, &requestError{fmt.Errorf("state must be one of %s", strings.Join(jobStates, ", "))}
	}
	facts, err := s.cluster(ctx)
	if err != nil {
		return nil, err
	}
	jobs, err := s.Source.Jobs.List(ctx, filter)
	if err != nil {
		return nil, fmt.Errorf("read jobs: %w", err)
	}
	counts := s.counts.get(ctx, facts.now)
	b := jobsBody{base: base{name: "Jobs", beat: s.pulseOf(facts), past: filter.BeforeID != 0}, Filter: filter, Enqueues: s.Enqueuer != nil && req.may(operator)}
	b.Tabs, b.Kinds, b.Queues = stateTabs(filter, counts), kindsOf(facts.nodes), queuesOf(facts.nodes, counts.value)
	if showsCounts(filter) {
		b.CountAge = newJobCountAge(facts.now, counts)
	}
	b.Jobs, b.Acts, b.Notice = jobRows(facts.now, jobs, facts.colors), s.bulkActs(req, filter), bulkNotice(req)
	if len(jobs) == filter.Limit {
		b.Older = "/jobs?" + filterValues(filter, "before", strconv.FormatInt(jobs[len(jobs)-1].ID, 10))
	}
	return &b, nil
}

// stateTabs returns tabs that filter the list by state and keep the other filters. The
// counts are known only by state and queue.
func stateTabs(filter jobstore.Filter, counts cachedValue[[]jobstore.Count]) []tab {
	by, all := map[string]int64{}, int64(0)
	for _, c := range counts.value {
		if filter.Queue == "" || c.Queue == filter.Queue {
			by[c.State] += c.Jobs
			all += c.Jobs
		}
	}
	counted := func(jobs int64) string {
		if !showsCounts(filter) || counts.at.IsZero() {
			return ""
		}
		return number(jobs)
	}
	in := func(state string) string {
		narrowed := filter
		narrowed.State = state
		return "/jobs?" + filterValues(narrowed)
	}
	tabs := []tab{{"all", in(""), counted(all), filter.State == ""}}
	for _, state := range jobStates {
		if state != "pending" || by[state] > 0 || filter.State == state { // few clusters have such jobs
			tabs = append(tabs, tab{state, in(state), counted(by[state]), filter.State == state})
		}
	}
	return tabs
}

// showsCounts reports whether the tabs have numbers.
func showsCounts(filter jobstore.Filter) bool { return filter.Kind == "" && filter.Cron == "" }

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
