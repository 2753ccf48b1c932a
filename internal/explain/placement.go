package explain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/internal/jobstore"
)

// Reasons for which a node is not offered a job.
const (
	Dead       = "dead"
	Draining   = "draining"
	NoWorker   = "kind"
	Differs    = "definition"
	NoQueue    = "queue"
	NoAbility  = "capability"
	OtherTags  = "tags"
	Unreadable = "unreadable_tags"
	Full       = "slots"
	AtLimit    = "limit"
	SlowStarts = "slow_starts"
)

// Rejection is why a node is not offered a job.
type Rejection struct {
	Reason string `json:"reason"` // one of the above
	// Detail continues a sentence that starts with the node's name: "is draining".
	Detail string `json:"detail"`
}

// Candidate is a node with the reasons against it.
type Candidate struct {
	NodeID  string `json:"node_id"`
	Running int    `json:"running"`
	// OfKind is the number of running jobs of the job's kind.
	OfKind       int      `json:"running_of_kind"`
	Slots        int      `json:"slots"`
	Capabilities []string `json:"capabilities"`
	// Rejected is empty for a node that could take the job now.
	Rejected []Rejection `json:"rejected,omitempty"`
	// Chosen is set for the node that the leader would offer the job to, and for
	// equally good nodes.
	Chosen bool `json:"chosen"`
}

// Placement is where a job goes, why it waits, or which node ran it.
type Placement struct {
	JobID    int64  `json:"job_id"`
	Kind     string `json:"kind"`
	Queue    string `json:"queue"`
	State    string `json:"state"`
	Sentence string `json:"sentence"`
	// Capability and Tags are what the job requires of a node.
	Capability    string            `json:"capability,omitempty"`
	Tags          map[string]string `json:"tags,omitempty"`
	QueuePausedAt time.Time         `json:"queue_paused_at,omitzero"`
	// Pause is the pause of a part of the queue's jobs that holds the job back.
	Pause *jobstore.JobPause `json:"pause,omitempty"`
	// Limit is the cluster-wide limit that is reached; empty: none.
	Limit string `json:"limit,omitempty"`
	// LimitHolders are running jobs that hold its places, at most ten.
	LimitHolders []int64 `json:"limit_holders,omitempty"`
	// LimitAhead is a job of several units for which a rate holds this one back.
	LimitAhead int64 `json:"limit_ahead,omitempty"`
	// LimitUntil is when a rate next allows the start of the job, or of the one ahead of it.
	LimitUntil time.Time `json:"limit_until,omitzero"`
	// Leader is the node that assigns jobs now.
	Leader string `json:"leader,omitempty"`
	// Strategy is how the leader chooses among nodes that can take the job.
	Strategy string `json:"strategy"`
	// Candidates are the nodes that have not left; none for a job that runs or has
	// ended.
	Candidates []Candidate `json:"candidates"`
	// Attempts are the attempts of the job, oldest first.
	Attempts []jobstore.Attempt `json:"attempts"`
}

// chosen returns the nodes that the job may be offered to.
func (p Placement) chosen() []Candidate {
	return slices.DeleteFunc(slices.Clone(p.Candidates), func(c Candidate) bool { return !c.Chosen })
}

// Say describes the placement in one sentence. now is the time of the database's
// clock.
func (p Placement) Say(job jobstore.Job, now time.Time) string {
	name := fmt.Sprintf("Job %d (%s)", job.ID, job.Kind)
	switch {
	case jobstore.Finished(job.State):
		return name + " is " + job.State + "; " + p.lastRun(job) + "."
	case job.State == "running":
		return fmt.Sprintf("%s runs on %s since %s, attempt %d of %d.", name, job.NodeID, Instant(job.AttemptedAt), job.Attempt, job.MaxAttempts)
	case job.State == "pending":
		return name + " is pending: nothing runs it until it is made available."
	case job.ScheduledAt.After(now):
		said := fmt.Sprintf("%s waits until %s, in %s", name, Instant(job.ScheduledAt), Span(job.ScheduledAt.Sub(now)))
		if job.State == "retryable" {
			said += ", for its next attempt; " + p.lastRun(job)
		}
		return said + "; as things are, " + p.nextStep(job) + "."
	default:
		return name + " waits: " + p.nextStep(job) + "."
	}
}

func (p Placement) lastRun(job jobstore.Job) string {
	if len(p.Attempts) == 0 && job.Attempt == 0 {
		return "it never ran"
	}
	last := jobstore.Attempt{Attempt: job.Attempt, NodeID: job.NodeID} // from the job's row if the attempt was not recorded
	if len(p.Attempts) > 0 {
		last = p.Attempts[len(p.Attempts)-1]
	}
	node := cmp.Or(last.NodeID, "a node that is not known any more")
	if last.Outcome == "" {
		return fmt.Sprintf("attempt %d of %d ran on %s", last.Attempt, job.MaxAttempts, node)
	}
	return fmt.Sprintf("attempt %d of %d ran on %s and ended as %s", last.Attempt, job.MaxAttempts, node, last.Outcome)
}

// nextStep says where a waiting job goes, or what it waits for.
func (p Placement) nextStep(job jobstore.Job) string {
	chosen := p.chosen()
	switch {
	case !p.QueuePausedAt.IsZero():
		return fmt.Sprintf("queue %s is paused since %s; forge queue resume %s lets it go on", job.Queue, Instant(p.QueuePausedAt), job.Queue)
	case p.Pause != nil:
		return fmt.Sprintf("jobs of queue %s (%s) are paused since %s; forge queue resume %s%s lets them go on",
			job.Queue, p.Pause.JobSelection, Instant(p.Pause.PausedAt), job.Queue, p.Pause.Flags())
	case len(chosen) == 0:
		return p.obstacle(job)
	case p.Limit != "":
		return p.Limit
	case p.Leader == "":
		return "nobody leads the scheduler, so it is offered to no node; it would go to " + p.choice(chosen)
	default:
		return "it goes to " + p.choice(chosen)
	}
}

// choice names the chosen nodes and the reason for the choice.
func (p Placement) choice(chosen []Candidate) string {
	names := make([]string, len(chosen))
	for i, c := range chosen {
		names[i] = c.NodeID
	}
	able := 0
	for _, c := range p.Candidates {
		if len(c.Rejected) == 0 {
			able++
		}
	}
	said := strings.Join(names, " or ")
	switch {
	case able == 1:
		return said + ", the only node that can take it"
	case p.Strategy == "round_robin":
		return said + ", which take turns"
	case p.Strategy == "spread":
		return fmt.Sprintf("%s, with the fewest jobs of kind %s of %d nodes that can take it: %d", said, p.Kind, able, chosen[0].OfKind)
	case len(chosen) > 1:
		return fmt.Sprintf("%s, equally loaded: %d of %d slots in use", said, chosen[0].Running, chosen[0].Slots)
	default:
		return fmt.Sprintf("%s, the least loaded of %d nodes that can take it: %d of %d slots in use", said, able, chosen[0].Running, chosen[0].Slots)
	}
}

// obstacle says why no node can take the job: the most lasting reason that applies
// to all nodes, or the reason of each node.
func (p Placement) obstacle(job jobstore.Job) string {
	live := slices.DeleteFunc(slices.Clone(p.Candidates), func(c Candidate) bool { return c.has(Dead) })
	if len(live) == 0 {
		return "no node is alive"
	}
	for _, reason := range []string{Unreadable, NoWorker, Differs, NoQueue, NoAbility, OtherTags, Draining, Full, AtLimit, SlowStarts} {
		if !slices.ContainsFunc(live, func(c Candidate) bool { return !c.has(reason) }) {
			return p.shared(reason, job, live)
		}
	}
	return none(live)
}

func (c Candidate) has(reason string) bool {
	return slices.ContainsFunc(c.Rejected, func(r Rejection) bool { return r.Reason == reason })
}

// shared describes a reason that applies to every live node.
func (p Placement) shared(reason string, job jobstore.Job, live []Candidate) string {
	switch reason {
	case Unreadable:
		return "its tags cannot be read: want an object of strings"
	case NoWorker:
		return "no node has a worker for kind " + job.Kind
	case Differs:
		return "no node defines " + job.Kind + " as the configuration in force does"
	case NoQueue:
		return "no node works queue " + job.Queue
	case NoAbility:
		return "no node has capability " + p.Capability + "; " + abilities(live)
	case OtherTags:
		return "no node has the tags " + tagList(p.Tags)
	case Draining:
		return "every node is draining"
	case AtLimit:
		return "no node may run more such jobs at once: " + details(live)
	case SlowStarts:
		return "no node takes more jobs now: " + details(live)
	default:
		return "no node has a free slot: " + details(live)
	}
}

func abilities(live []Candidate) string {
	var known []string
	for _, c := range live {
		known = append(known, c.Capabilities...)
	}
	slices.Sort(known)
	if known = slices.Compact(known); len(known) == 0 {
		return "nodes have none"
	}
	return "nodes have " + strings.Join(known, ", ")
}

func tagList(tags map[string]string) string {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		list = append(list, key+"="+tags[key])
	}
	return strings.Join(list, ", ")
}

func none(live []Candidate) string {
	return fmt.Sprintf("none of %d nodes can take it: %s", len(live), details(live))
}

// shownNodes bounds the number of nodes named in a sentence.
const shownNodes = 5

// details lists the first reason against each node.
func details(live []Candidate) string {
	var said []string
	for _, c := range live[:min(len(live), shownNodes)] {
		said = append(said, c.NodeID+" "+c.Rejected[0].Detail)
	}
	if more := len(live) - len(said); more > 0 {
		said = append(said, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(said, "; ")
}
