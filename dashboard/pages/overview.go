package pages

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/forge-scheduler/forge/dashboard/charts"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/dashboard/window"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

type overviewBody struct {
	base
	Health   health
	Tiles    []tile
	CountAge jobCountAge
	Cards    []leaderCard
	Lanes    charts.Swimlane
	Spans    []charts.SpanLink
	History  []tenureRow
	// Failover is the last change of leader that was not planned; nil if there is none.
	Failover  *failoverLink
	Nodes     []nodeRow
	Coming    []cronRow
	Failures  []deadGroupRow
	Crons     []cronRow
	MoreCrons int
	Jobs      []jobRow
}

// The limits of the due crons and of the failures on the overview.
const (
	overviewComing   = 5
	overviewFailures = 5
)

// upcoming returns the crons that are due next.
func (s *Pages) upcoming(ctx context.Context, now time.Time, crons []cronstore.Outlined) ([]cronRow, error) {
	due, err := s.ReadCrons(ctx, dueFirst(crons))
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(due, func(a, b cronstore.Cron) int { return a.NextTick.Compare(b.NextTick) })
	var next []cronRow
	for _, c := range due {
		next = append(next, newCronRow(now, c, nil, nil))
	}
	return next, nil
}

// dueFirst returns the few crons that are due next, soonest first.
func dueFirst(crons []cronstore.Outlined) []cronstore.Outlined {
	var due []cronstore.Outlined
	for _, c := range crons {
		if c.Paused || c.NextTick.IsZero() {
			continue
		}
		at := len(due)
		for at > 0 && c.NextTick.Before(due[at-1].NextTick) {
			at--
		}
		if at < overviewComing {
			due = slices.Insert(due, at, c)
			due = due[:min(len(due), overviewComing)]
		}
	}
	return due
}

// loadTrouble fills in the failures, the firing alerts and the hazards.
func (s *Pages) loadTrouble(ctx context.Context, b *overviewBody, facts clusterFacts) error {
	groups, err := s.Dead.Get(ctx)
	if err != nil {
		return fmt.Errorf("read dead letters: %w", err)
	}
	for _, g := range groups[:min(len(groups), overviewFailures)] {
		b.Failures = append(b.Failures, newDeadGroupRow(facts.now, g))
	}
	inForce, err := s.firing.Get(ctx)
	if err != nil {
		return fmt.Errorf("read alerts: %w", err)
	}
	b.Health.judgeReadiness(s.Self.NodeID, s.Readiness.Get(ctx))
	found, err := s.hazards.Get(ctx)
	if err != nil {
		return fmt.Errorf("read hazards: %w", err)
	}
	b.Health.judgeHazards(found)
	firing, pending := b.Health.judgeAlerts(inForce)
	b.Tiles = append(b.Tiles, alertsTile(firing, pending, len(inForce)))
	return nil
}

func (s *Pages) loadOverview(ctx context.Context, req *request) (body, error) {
	facts, err := s.cluster(ctx)
	if err != nil {
		return nil, err
	}
	tenures, err := s.Source.Leadership.History(ctx, "", historyDepth)
	if err != nil {
		return nil, fmt.Errorf("read the history of leaders: %w", err)
	}
	tenures = newestFirst(tenures)
	b := overviewBody{base: base{name: "Overview", beat: s.fullPulse(facts)}}
	b.Cards = leaderCards(facts, s.Self)
	sp := charts.ChooseSpan(req.Values.Get("span"), facts.now, tenures)
	b.Lanes = charts.DrawSwimlane(facts.now, window.Last(sp, facts.now, time.UTC), facts.leaders, tenures, facts.colors)
	b.Spans = charts.SpanLinks(charts.Spans, sp, func(name string) string { return "/?" + web.Encode("span", name) + "#history" })
	b.History = tenureRows(facts.now, tenures[:min(len(tenures), 8)], facts.leaders, facts.colors)
	b.Failover = lastFailover(facts.now, tenures)
	b.Nodes = nodeRows(facts, s.Self)
	return &b, s.loadWork(ctx, req, &b, facts)
}

// loadWork fills in the crons, the jobs and the health.
func (s *Pages) loadWork(ctx context.Context, req *request, b *overviewBody, facts clusterFacts) error {
	all, err := s.Outlines.Get(ctx)
	if err != nil {
		return err
	}
	crons, at := all.Crons, all.At(facts.now)
	jobs, err := s.Source.Jobs.List(ctx, jobstore.Filter{Limit: overviewJobs, Args: jobstore.ShortArgs})
	if err != nil {
		return fmt.Errorf("read jobs: %w", err)
	}
	counts := s.Counts.Latest(ctx, facts.now)
	b.CountAge = newJobCountAge(facts.now, counts)
	shown := crons[:min(len(crons), OverviewCrons)]
	if b.Crons, err = s.rowsOf(ctx, shown, facts.now); err != nil {
		return err
	}
	blockers, err := s.Source.Jobs.States(ctx, blockersOf(crons))
	if err != nil {
		return fmt.Errorf("read the jobs that block crons: %w", err)
	}
	b.Health, b.Tiles = judge(facts, crons, blockers, at), tiles(facts, crons, at, counts)
	b.Health.Act = s.applyAct(facts, req)
	if b.Coming, err = s.upcoming(ctx, facts.now, crons); err != nil {
		return err
	}
	if err := s.loadTrouble(ctx, b, facts); err != nil {
		return err
	}
	b.MoreCrons, b.Jobs = len(crons)-len(shown), jobRows(facts.now, jobs, facts.colors)
	return nil
}
