package dashboard

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

func (s *pageServer) pulseOf(facts clusterFacts) pulse {
	return pulse{Now: facts.now.UnixMilli(), Peers: peersOf(facts.nodes, s.Self)}
}

// fullPulse returns the pulse of a page with leases and heartbeats.
func (s *pageServer) fullPulse(facts clusterFacts) pulse {
	p := s.pulseOf(facts)
	p.Ages = facts.ages()
	return p
}

// base holds what the bodies of all pages share.
type base struct {
	name string
	beat pulse
	// past reports that the page is not the newest one of a list.
	past bool
}

func (b base) title() string { return b.name }
func (b base) pulse() pulse  { return b.beat }
func (b base) Past() bool    { return b.past }

type overviewBody struct {
	base
	Health    health
	Tiles     []tile
	CountAge  jobCountAge
	Cards     []leaderCard
	Lanes     swimlane
	Spans     []spanLink
	History   []tenureRow
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
func (s *pageServer) upcoming(ctx context.Context, now time.Time, crons []cronstore.Outlined) ([]cronRow, error) {
	due, err := s.readCrons(ctx, dueFirst(crons))
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
func (s *pageServer) loadTrouble(ctx context.Context, b *overviewBody, facts clusterFacts) error {
	groups, err := s.dead.get(ctx)
	if err != nil {
		return fmt.Errorf("read dead letters: %w", err)
	}
	for _, g := range groups[:min(len(groups), overviewFailures)] {
		b.Failures = append(b.Failures, newDeadGroupRow(facts.now, g))
	}
	inForce, err := s.firing.get(ctx)
	if err != nil {
		return fmt.Errorf("read alerts: %w", err)
	}
	b.Health.judgeReadiness(s.Self.NodeID, s.readiness.get(ctx))
	found, err := s.hazards.get(ctx)
	if err != nil {
		return fmt.Errorf("read hazards: %w", err)
	}
	b.Health.judgeHazards(found)
	firing, pending := b.Health.judgeAlerts(inForce)
	b.Tiles = append(b.Tiles, alertsTile(firing, pending, len(inForce)))
	return nil
}

func (s *pageServer) loadOverview(ctx context.Context, req *request) (body, error) {
	facts, err := s.cluster(ctx)
	if err != nil {
		return nil, err
	}
	tenures, err := s.Source.Leadership.History(ctx, "", historyDepth)
	if err != nil {
		return nil, fmt.Errorf("read the history of leaders: %w", err)
	}
	tenures = newestFirst(tenures)
	facts.colors = newPalette(nodeIDs(facts.nodes, tenures))
	b := overviewBody{base: base{name: "Overview", beat: s.fullPulse(facts)}}
	b.Cards = leaderCards(facts, s.Self)
	sp := chooseSpan(req.values.Get("span"), facts.now, tenures)
	b.Lanes = drawSwimlane(facts.now, sp, facts.leaders, tenures, facts.colors)
	b.Spans = spanLinks(spans, sp, func(name string) string { return "/?" + values("span", name) + "#history" })
	b.History = tenureRows(facts.now, tenures[:min(len(tenures), 8)], facts.leaders, facts.colors)
	b.Nodes = nodeRows(facts, s.Self)
	return &b, s.loadWork(ctx, &b, facts)
}

// loadWork fills in the crons, the jobs and the health.
func (s *pageServer) loadWork(ctx context.Context, b *overviewBody, facts clusterFacts) error {
	all, err := s.outlines.get(ctx)
	if err != nil {
		return err
	}
	crons, at := all.crons, all.at(facts.now)
	jobs, err := s.Source.Jobs.List(ctx, jobstore.Filter{Limit: overviewJobs, Args: jobstore.ShortArgs})
	if err != nil {
		return fmt.Errorf("read jobs: %w", err)
	}
	counts := s.counts.get(ctx, facts.now)
	b.CountAge = newJobCountAge(facts.now, counts)
	shown := crons[:min(len(crons), overviewCrons)]
	if b.Crons, err = s.rowsOf(ctx, shown, facts.now); err != nil {
		return err
	}
	blockers, err := s.Source.Jobs.States(ctx, blockersOf(crons))
	if err != nil {
		return fmt.Errorf("read the jobs that block crons: %w", err)
	}
	b.Health, b.Tiles = judge(facts, crons, blockers, at), tiles(facts, crons, at, counts)
	if b.Coming, err = s.upcoming(ctx, facts.now, crons); err != nil {
		return err
	}
	if err := s.loadTrouble(ctx, b, facts); err != nil {
		return err
	}
	b.MoreCrons, b.Jobs = len(crons)-len(shown), jobRows(facts.now, jobs, facts.colors)
	return nil
}

type cronsBody struct {
	base
	Query string
	Is    string
	Tabs  []tab
	Crons []cronRow
	Next  string
}

func (s *pageServer) loadCrons(ctx context.Context, req *request) (body, error) {
	facts, err := s.cluster(ctx)
	if err != nil {
		return nil, err
	}
	all, err := s.outlines.get(ctx)
	if err != nil {
		return nil, err
	}
	filter := newCronFilter(req.values)
	b := cronsBody{base: base{name: "Crons", beat: s.pulseOf(facts)}, Query: filter.Text, Is: filter.Is}
	shown, err := b.choose(all.at(facts.now), all.crons, filter)
	if err != nil {
		return nil, err
	}
	b.Crons, err = s.rowsOf(ctx, shown, facts.now)
	return &b, err
}

type jobBody struct {
	base
	Job    jobRow
	Notice string
	Acts   []act
	Facts  []fact
	// Placement is set for a waiting job.
	Placement placementBody
	Tick      string
	Args      string
	Attempts  []attemptRow
	// Timeline shows the attempts from the job's creation to its end.
	Timeline       []attemptBar
	TimelineLabel  string
	TimelineAxis   []axisMark
	TimelineHeight int
	Shown          int
	Output         []piece
	Cut            bool
	Running        bool
}

func (s *pageServer) loadJob(ctx context.Context, req *request) (body, error) {
	id, ok := jobID(req.values.Get("id"))
	if !ok {
		return nil, jobstore.ErrNotFound
	}
	shown := req.atMost("attempt", maxAttempt)
	if err := req.err(); err != nil {
		return nil, err
	}
	facts, err := s.cluster(ctx)
	if err != nil {
		return nil, err
	}
	job, err := s.Source.Jobs.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	if shown == 0 {
		shown = job.LastAttempt()
	}
	if err := req.out.update(ctx, s.Source.Jobs, id, shown); err != nil {
		return nil, err
	}
	b := jobBody{base: base{name: fmt.Sprintf("Job %d", id), beat: s.pulseOf(facts)}, Shown: shown}
	b.Job, b.Args = newJobRow(facts.now, job, facts.colors), prettyJSON(job.Args)
	b.Job.Error = plainText(job.LastError)
	b.Facts = jobFacts(job)
	b.Attempts = attemptRows(facts.now, job, shown, facts.colors)
	b.Timeline, b.TimelineAxis, b.TimelineLabel = drawAttempts(facts.now, job)
	b.TimelineHeight = attemptHeight * len(b.Timeline)
	b.Output, b.Cut = req.out.pieces(), req.out.Cut
	b.Running = job.State == "running" && shown == job.Attempt
	b.Acts, b.Notice = s.acts(req, job), jobNotice(req, job)
	b.Placement, err = s.placementOf(ctx, job, facts.colors)
	return &b, err
}

func jobFacts(job jobstore.Job) []fact {
	due := utc(job.ScheduledAt)
	if due == utc(job.CreatedAt) {
		due = "at once"
	}
	facts := []fact{
		{"Queue", job.Queue},
		{"Priority", strconv.Itoa(job.Priority)},
		{"Attempt", fmt.Sprintf("%d of %d", job.Attempt, job.MaxAttempts)},
		{"Created", utc(job.CreatedAt)},
		{"Due", due},
		{"Started", utc(job.AttemptedAt)},
		{"Finished", utc(job.FinalizedAt)},
	}
	if !job.Tick.IsZero() {
		facts = append(facts, fact{"Tick", utc(job.Tick)})
	}
	if job.Snoozes > 0 {
		facts = append(facts, fact{"Snoozed", plural(job.Snoozes, "time", "times")})
	}
	if round := job.SecondRound; round != nil {
		facts = append(facts, fact{"Second round", fmt.Sprintf("after attempt %d, %s", round.Attempt, utc(round.At))})
	}
	return withoutEmpty(facts)
}

func utc(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05.000 UTC")
}

// values encodes pairs of parameters without the empty ones.
func values(pairs ...string) string {
	v := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			v.Set(pairs[i], pairs[i+1])
		}
	}
	return v.Encode()
}
