package assign

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/internal/explain"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/internal/wire"
	"github.com/forge-scheduler/forge/leaderstore"
)

// Rules are the leader's settings for placing jobs.
type Rules struct {
	Strategy string
	// Policy decides when a silent node is dead.
	Policy nodestore.Policy
}

// Explainer explains where jobs run. It reads only the database, so no node has to be up.
type Explainer struct {
	db    postgres.DB
	rules Rules
}

// NewExplainer returns an Explainer.
func NewExplainer(db postgres.DB, rules Rules) *Explainer { return &Explainer{db, rules} }

// facts are the rows in the database that determine the placement of a job.
type facts struct {
	job          jobstore.Job
	requirements job
	pausedAt     time.Time
	pause        *jobstore.JobPause
	now          time.Time
	leader       string
	inForce      definitions
	full         fullLimit
	// fullOn are the limits that hold the job back on nodes, by nodestore.ClientID.
	fullOn map[string]fullLimit
	nodes  []nodestore.Node
	// slowStarts contains the nodes that take no jobs because they start commands slowly.
	slowStarts map[string]nodestore.Starts
	// running contains the running jobs by nodestore.ClientID.
	running map[string][]jobCount
}

// Placement returns where a job goes and why, why it waits, or which node ran it. It
// returns jobstore.ErrNotFound if the job does not exist.
func (e *Explainer) Placement(ctx context.Context, id int64) (explain.Placement, error) {
	f, err := gather(ctx, e.db, id, e.rules.Policy)
	if err != nil {
		return explain.Placement{}, fmt.Errorf("explain job %d: %w", id, err)
	}
	return f.explain(e.rules.Strategy), nil
}

// explain places the job as the leader would, and returns the reasons.
func (f facts) explain(strategy string) explain.Placement {
	p := explain.Placement{
		JobID: f.job.ID, Kind: f.job.Kind, Queue: f.job.Queue, State: f.job.State,
		Capability: f.requirements.capability, Tags: f.requirements.tags, QueuePausedAt: f.pausedAt, Pause: f.pause, Leader: f.leader, Strategy: strategy,
		Candidates: []explain.Candidate{}, Attempts: f.job.Runs(),
	}
	if p.Attempts == nil {
		p.Attempts = []jobstore.Attempt{}
	}
	if !jobstore.Finished(f.job.State) && f.job.State != "running" {
		p.Candidates, p.Limit, p.LimitHolders = f.candidates(strategy), f.full.say(), f.full.holders
		p.LimitUntil, p.LimitAhead = f.full.freeAt, f.full.ahead
	}
	p.Sentence = p.Say(f.job, f.now)
	return p
}

func (f facts) candidates(strategy string) []explain.Candidate {
	candidates := []explain.Candidate{}
	var all, available []*member
	for _, n := range f.nodes {
		if n.State == nodestore.Left {
			continue
		}
		m := f.member(n)
		all = append(all, m)
		rejected := append(unavailabilities(n), m.rejections(f.requirements, n)...)
		starts, slow := f.slowStarts[n.NodeID]
		if slow {
			rejected = append(rejected, explain.Rejection{Reason: explain.SlowStarts, Detail: fmt.Sprintf(
				"starts commands slowly (%d wait to be started, a start takes %s)", starts.Waiting, explain.Span(starts.Took))})
		}
		if full, ok := f.fullOn[m.clientID]; ok {
			rejected = append(rejected, explain.Rejection{Reason: explain.AtLimit, Detail: full.say()})
		}
		if unavailability(n) == "" && !slow {
			available = append(available, m)
		}
		candidates = append(candidates, explain.Candidate{
			NodeID: n.NodeID, Running: m.used(), OfKind: m.runningByKind[f.requirements.kind], Slots: m.slots,
			Capabilities: n.Capabilities, Rejected: rejected,
		})
	}
	best, _, _ := pick(f.requirements, available, strategy, "", f.fullFor)
	for i, m := range all {
		candidates[i].Chosen = best != nil && len(candidates[i].Rejected) == 0 && !better(best, m, f.requirements.kind, strategy, "")
	}
	return candidates
}

// fullFor reports whether a limit holds the job back on a member.
func (f facts) fullFor(m *member, _ job) (refusal, bool) {
	_, ok := f.fullOn[m.clientID]
	return refusal{}, ok
}

// member returns a node as the leader would track it after a credit report.
func (f facts) member(n nodestore.Node) *member {
	m := &member{}
	m.update(n, f.inForce)
	credit := wire.Credit{Slots: n.Slots, Free: maps.Clone(n.Queues), Reserved: maps.Clone(n.Reserved)}
	for _, s := range f.running[m.clientID] {
		credit.Slots -= s.jobs
		if _, worked := credit.Free[s.queue]; worked {
			credit.Free[s.queue] -= s.jobs
		}
		if reserved, ok := credit.Reserved[s.queue]; ok {
			credit.Reserved[s.queue] = max(0, reserved-s.jobs)
		}
	}
	m.report, m.runningByKind = credit, countByKind(f.running[m.clientID])
	m.computeFree()
	return m
}

func unavailabilities(n nodestore.Node) []explain.Rejection {
	switch unavailability(n) {
	case nodestore.Draining:
		return []explain.Rejection{{Reason: explain.Draining, Detail: "is draining"}}
	case nodestore.Dead:
		silent := n.Now.Sub(n.LastHeartbeatAt)
		return []explain.Rejection{{Reason: explain.Dead, Detail: "is dead: nothing was heard from it for " + explain.Span(silent)}}
	default:
		return nil
	}
}

// rejections returns all reasons why pick would not choose the member for j.
func (m *member) rejections(j job, n nodestore.Node) []explain.Rejection {
	var found []explain.Rejection
	reject := func(reason, detail string, args ...any) {
		found = append(found, explain.Rejection{Reason: reason, Detail: fmt.Sprintf(detail, args...)})
	}
	switch {
	case m.works(j):
	case slices.Contains(n.Kinds, j.kind):
		reject(explain.Differs, "defines %s differently from the configuration in force", j.kind)
	default:
		reject(explain.NoWorker, "has no worker for kind %s", j.kind)
	}
	if !m.hasCapability(j) {
		reject(explain.NoAbility, "lacks capability %s", j.capability)
	}
	switch {
	case j.unreadable:
		reject(explain.Unreadable, "cannot match tags that are not strings")
	case !m.hasTags(j):
		reject(explain.OtherTags, "%s", m.missingTags(j))
	}
	maxJobs, worked := m.queues[j.queue]
	switch {
	case !worked:
		reject(explain.NoQueue, "does not work queue %s", j.queue)
	case m.freeSlots <= 0:
		reject(explain.Full, "has %d of %d slots in use", m.used(), m.slots)
	case m.free[j.queue] > 0 && m.room(j.queue) <= 0:
		reject(explain.Full, "has %d of %d slots in use and reserves the others for other queues", m.used(), m.slots)
	case m.room(j.queue) <= 0:
		reject(explain.Full, "has %d of %d places of queue %s in use", maxJobs-m.free[j.queue], maxJobs, j.queue)
	}
	return found
}

// missingTags describes the tags that the job requires and the member lacks.
func (m *member) missingTags(j job) string {
	var missing []string
	for _, key := range slices.Sorted(maps.Keys(j.tags)) {
		switch found, ok := m.tags[key]; {
		case !ok:
			missing = append(missing, fmt.Sprintf("lacks tag %s=%s", key, j.tags[key]))
		case found != j.tags[key]:
			missing = append(missing, fmt.Sprintf("has tag %s=%s, not %s", key, found, j.tags[key]))
		}
	}
	return strings.Join(missing, ", ")
}

func gather(ctx context.Context, db postgres.DB, id int64, policy nodestore.Policy) (f facts, err error) {
	if f.job, err = jobstore.New(db).Get(ctx, id); err != nil {
		return f, err
	}
	f.requirements = job{
		position: position{int16(f.job.Priority), f.job.ScheduledAt, id}, kind: f.job.Kind, queue: f.job.Queue,
	}
	if err := f.readRequirements(ctx, db); err != nil {
		return f, fmt.Errorf("read its requirements: %w", err)
	}
	if f.inForce, err = f.inForce.refresh(ctx, db); err != nil {
		return f, err
	}
	if f.running, err = readRunning(ctx, db, nil); err != nil {
		return f, err
	}
	if err := f.readNodes(ctx, db, policy); err != nil {
		return f, err
	}
	if err := f.readFullLimits(ctx, db); err != nil {
		return f, err
	}
	leaders, err := leaderstore.New(db).Leaders(ctx)
	for _, l := range leaders {
		if l.Role == "scheduler" && l.Leads() {
			f.leader = l.NodeID
		}
	}
	return f, err
}

func (f *facts) readRequirements(ctx context.Context, db postgres.DB) error {
	r, pausedAt, now, err := jobstore.New(db).Requirements(ctx, f.job.ID)
	f.pausedAt, f.now, f.requirements.capability = pausedAt, now, r.Capability
	f.requirements.tags, f.requirements.unreadable = parseTags(r.Tags)
	if err != nil {
		return err
	}
	f.pause, err = jobstore.New(db).JobPause(ctx, f.job.ID)
	return err
}

// readNodes reads the nodes. It marks dead nodes that are not fenced yet, for example
// because all nodes died at once.
func (f *facts) readNodes(ctx context.Context, db postgres.DB, policy nodestore.Policy) (err error) {
	if f.nodes, err = nodestore.New(db).Recorded(ctx); err != nil {
		return err
	}
	if f.slowStarts, err = nodestore.New(db).SlowStarts(ctx); err != nil {
		return err
	}
	alive, err := nodestore.New(db).Alive(ctx)
	if err != nil {
		return err
	}
	for i := range f.nodes {
		for _, l := range alive {
			if l.Incarnation == f.nodes[i].Incarnation && l.Dead(policy) {
				f.nodes[i].State = nodestore.Dead
			}
		}
	}
	return nil
}
