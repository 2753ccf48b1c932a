package assign

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/explain"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/queuestore"
	"github.com/forge-scheduler/forge/internal/wire"
	"github.com/forge-scheduler/forge/leaderstore"
)

// What a job asks of a node, and whether its queue is held.
const wantsSQL = `
SELECT coalesce(j.metadata ->> 'forge:capability', ''), j.metadata -> 'forge:tags', q.paused_at, clock_timestamp()
FROM river_job AS j LEFT JOIN river_queue AS q ON q.name = j.queue
WHERE j.id = $1`

// Queryer is what Explain reads through: a pool or a connection.
type Queryer interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Rules are those by which the leader places jobs.
type Rules struct {
	Strategy string
	// Policy says when a silent node is dead.
	Policy nodestore.Policy
}

// facts are what the database says that bears on the placement of a job.
type facts struct {
	job      jobstore.Job
	asks     job
	pausedAt time.Time
	now      time.Time
	leader   string
	inForce  definitions
	limits   *limits
	nodes    []nodestore.Node
	// running is what runs, by who signed it.
	running map[string][]share
}

// Explain says where a job goes and why, why it waits, or who ran it, by what
// stands in the database: no node has to be up. The error is
// jobstore.ErrNotFound when there is no such job.
func Explain(ctx context.Context, db Queryer, id int64, rules Rules) (explain.Placement, error) {
	f, err := gather(ctx, db, id, rules.Policy)
	if err != nil {
		return explain.Placement{}, fmt.Errorf("explain job %d: %w", id, err)
	}
	return f.explain(rules.Strategy), nil
}

// explain places the job as the leader would, and writes down why.
func (f facts) explain(strategy string) explain.Placement {
	p := explain.Placement{
		JobID: f.job.ID, Kind: f.job.Kind, Queue: f.job.Queue, State: f.job.State,
		Capability: f.asks.capability, Tags: f.asks.tags, QueuePausedAt: f.pausedAt, Leader: f.leader, Strategy: strategy,
		Candidates: []explain.Candidate{}, Attempts: f.job.Runs(),
	}
	if p.Attempts == nil {
		p.Attempts = []jobstore.Attempt{}
	}
	if !jobstore.Finished(f.job.State) && f.job.State != "running" {
		p.Candidates, p.Limit = f.candidates(strategy), f.limit()
	}
	p.Sentence = p.Say(f.job, f.now)
	return p
}

// limit says which limit of the cluster holds the job back, or nothing.
func (f facts) limit() string {
	g, full := f.limits.full(f.limits.on(f.asks))
	if !full {
		return ""
	}
	what := "queue " + g.name
	if g.scope == queuestore.ScopeJob {
		what = "kind " + g.name
	}
	return fmt.Sprintf("%s runs as many jobs as its global_limit of %d lets the whole cluster", what, f.limits.most[g])
}

func (f facts) candidates(strategy string) []explain.Candidate {
	candidates := []explain.Candidate{}
	var all, seated []*member
	for _, n := range f.nodes {
		if n.State == nodestore.Left {
			continue
		}
		m := f.member(n)
		all = append(all, m)
		rejected := append(absences(n), m.rejections(f.asks, n)...)
		if absence(n) == "" {
			seated = append(seated, m)
		}
		candidates = append(candidates, explain.Candidate{
			NodeID: n.NodeID, Running: m.used(), OfKind: m.crowd[f.asks.kind], Slots: m.slots,
			Capabilities: n.Capabilities, Rejected: rejected,
		})
	}
	best, _ := pick(f.asks, seated, strategy, "")
	for i, m := range all {
		candidates[i].Chosen = best != nil && len(candidates[i].Rejected) == 0 && !better(best, m, f.asks.kind, strategy, "")
	}
	return candidates
}

// member is a node as the leader would account for it once it has reported.
func (f facts) member(n nodestore.Node) *member {
	m := &member{}
	m.become(n, f.inForce)
	credit := wire.Credit{Slots: n.Slots, Free: maps.Clone(n.Queues)}
	for _, s := range f.running[m.clientID] {
		credit.Slots -= s.jobs
		if _, worked := credit.Free[s.queue]; worked {
			credit.Free[s.queue] -= s.jobs
		}
	}
	m.report, m.crowd = credit, crowdOf(f.running[m.clientID])
	m.account()
	return m
}

func absences(n nodestore.Node) []explain.Rejection {
	switch absence(n) {
	case nodestore.Draining:
		return []explain.Rejection{{Reason: explain.Draining, Detail: "is draining"}}
	case nodestore.Dead:
		silent := n.Now.Sub(n.LastHeartbeatAt)
		return []explain.Rejection{{Reason: explain.Dead, Detail: "is dead: nothing was heard from it for " + explain.Span(silent)}}
	default:
		return nil
	}
}

// rejections are all that keeps the member from being picked for j.
func (m *member) rejections(j job, n nodestore.Node) []explain.Rejection {
	var found []explain.Rejection
	reject := func(reason, detail string, args ...any) {
		found = append(found, explain.Rejection{Reason: reason, Detail: fmt.Sprintf(detail, args...)})
	}
	switch {
	case m.works(j):
	case slices.Contains(n.Kinds, j.kind):
		reject(explain.Differs, "defines %s otherwise than the configuration in force", j.kind)
	default:
		reject(explain.NoWorker, "has no worker for kind %s", j.kind)
	}
	if !m.able(j) {
		reject(explain.NoAbility, "lacks capability %s", j.capability)
	}
	switch {
	case j.unreadable:
		reject(explain.Unreadable, "cannot have tags that are no strings")
	case !m.tagged(j):
		reject(explain.OtherTags, "%s", m.otherTags(j))
	}
	most, worked := m.queues[j.queue]
	switch {
	case !worked:
		reject(explain.NoQueue, "does not work queue %s", j.queue)
	case m.slotsLeft <= 0:
		reject(explain.Full, "has %d of %d slots in use", m.used(), m.slots)
	case m.room(j.queue) <= 0:
		reject(explain.Full, "has %d of %d places of queue %s in use", most-m.left[j.queue], most, j.queue)
	}
	return found
}

// otherTags says which of the tags that the job asks for the member lacks.
func (m *member) otherTags(j job) string {
	var said []string
	for _, key := range slices.Sorted(maps.Keys(j.tags)) {
		switch found, ok := m.tags[key]; {
		case !ok:
			said = append(said, fmt.Sprintf("lacks tag %s=%s", key, j.tags[key]))
		case found != j.tags[key]:
			said = append(said, fmt.Sprintf("has tag %s=%s, not %s", key, found, j.tags[key]))
		}
	}
	return strings.Join(said, ", ")
}

func gather(ctx context.Context, db Queryer, id int64, policy nodestore.Policy) (f facts, err error) {
	if f.job, err = jobstore.Get(ctx, db, id); err != nil {
		return f, err
	}
	f.asks = job{kind: f.job.Kind, queue: f.job.Queue}
	if err := f.readWants(ctx, db); err != nil {
		return f, fmt.Errorf("read what it asks for: %w", err)
	}
	if f.inForce, err = f.inForce.refresh(ctx, db); err != nil {
		return f, err
	}
	if f.running, err = readRunning(ctx, db, nil); err != nil {
		return f, err
	}
	if err := f.readLimits(ctx, db); err != nil {
		return f, err
	}
	if err := f.readNodes(ctx, db, policy); err != nil {
		return f, err
	}
	leaders, err := leaderstore.Leaders(ctx, db)
	for _, l := range leaders {
		if l.Role == "scheduler" && l.Leads() {
			f.leader = l.NodeID
		}
	}
	return f, err
}

func (f *facts) readWants(ctx context.Context, db Queryer) error {
	rows, err := db.Query(ctx, wantsSQL, f.job.ID)
	if err != nil {
		return err
	}
	var tags []byte
	var paused *time.Time
	_, err = pgx.ForEachRow(rows, []any{&f.asks.capability, &tags, &paused, &f.now}, func() error {
		f.asks.tags, f.asks.unreadable = parseTags(tags)
		if paused != nil {
			f.pausedAt = *paused
		}
		return nil
	})
	return err
}

func (f *facts) readLimits(ctx context.Context, db Queryer) error {
	inForce, err := queuestore.Limits(ctx, db)
	if err != nil {
		return err
	}
	f.limits = newLimits()
	f.limits.set(inForce)
	if len(f.limits.on(f.asks)) == 0 {
		return nil
	}
	return f.limits.count(ctx, db, f.now, 0)
}

// readNodes calls those dead that nobody has fenced yet, as when all died at
// once.
func (f *facts) readNodes(ctx context.Context, db Queryer, policy nodestore.Policy) (err error) {
	if f.nodes, err = nodestore.List(ctx, db); err != nil {
		return err
	}
	alive, err := nodestore.Alive(ctx, db)
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
