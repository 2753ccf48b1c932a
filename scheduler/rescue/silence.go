package rescue

import (
	"fmt"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/internal/nodestore"
)

const (
	// minCheckInterval and maxCheckInterval bound the pause between two checks of the
	// nodes.
	minCheckInterval, maxCheckInterval = 150 * time.Millisecond, time.Second
	// lockCheckIntervals is the maximum pause, in heartbeat intervals, while a missing session
	// lock may show a crash.
	lockCheckIntervals = 0.25
	// silentIntervals is the number of heartbeat intervals after which a node counts as
	// silent.
	silentIntervals = 1.5
	// graceIntervals is how many heartbeat intervals every node gets before any node is
	// fenced. The node that led until now has been silent for longer.
	graceIntervals = silentIntervals - lockCheckIntervals
	// latenessFactor is how much later than this leader's own heartbeats and checks those
	// of other nodes may be, which may share its machine or database.
	latenessFactor = 3
	// minLateness is lateness that is normal on a busy machine.
	minLateness = 100 * time.Millisecond
	// maxAllowanceThresholds is the maximum allowance, in dead thresholds. If all nodes
	// are late, a hung node is also found late.
	maxAllowanceThresholds = 5
	// latenessDecay is how much the lateness decreases, in seconds per second.
	latenessDecay = 0.15
)

// silenceDetector decides which silent nodes are dead. It tracks since when it has been able
// to observe heartbeats without interruption.
type silenceDetector struct {
	policy                   nodestore.Policy
	observedSince, lastCheck time.Time
	// gracePeriod is how long the current observation lasts before any node is fenced.
	gracePeriod time.Duration
	// lateness is the recent lateness of this leader, or of a node that returned.
	lateness time.Duration
	// ages are the heartbeat ages at the last check.
	ages map[string]time.Duration
	// sessions contains what this observation knows of the nodes' sessions, by incarnation.
	sessions map[string]session
}

// session is what is known of a node's session. A crash ends it, and releases its lock.
type session struct {
	held   bool
	lostAt time.Time // when it was first missing; zero if it is not
}

// noteLateness records the lateness of this leader. The check was due at planned, began
// at began and ended at now. ownBeat is the age of the leader's own heartbeat. A busy
// machine or a slow database may delay other nodes too, and is no sign of their death.
func (d *silenceDetector) noteLateness(planned, began, now time.Time, ownBeat time.Duration) {
	if d.observing() { // otherwise the database was unavailable: see recordCheck
		forgotten := time.Duration(latenessDecay * float64(now.Sub(d.lastCheck)))
		d.lateness = max(0, d.lateness-forgotten, began.Sub(planned), now.Sub(began), ownBeat-d.intervals(silentIntervals))
	}
}

// noteReturns records the nodes that returned. Other nodes may be silent for as long as
// those were, and still be alive.
func (d *silenceDetector) noteReturns(nodes []nodestore.Liveness) {
	ages := make(map[string]time.Duration, len(nodes))
	for _, node := range nodes {
		ages[node.Incarnation] = node.HeartbeatAge
		if before := d.ages[node.Incarnation]; d.observing() && node.HeartbeatAge < before {
			d.lateness = max(d.lateness, before-d.intervals(silentIntervals))
		}
	}
	d.ages = ages
}

// allowance returns how much longer than the policy's limit a node may be silent.
func (d *silenceDetector) allowance() time.Duration {
	if d.lateness < minLateness {
		return 0
	}
	return min(latenessFactor*d.lateness, maxAllowanceThresholds*d.policy.DeadThreshold)
}

// counted returns the node with the heartbeat age that counts: less the allowance, and not more
// than this observation has lasted, or than the node has been without its session. An outage of
// the database or of a proxy may have silenced the node, and it may need longer than others to
// come back.
func (d *silenceDetector) counted(node nodestore.Liveness, now time.Time) nodestore.Liveness {
	since := d.observedSince
	lostAt := d.sessions[node.Incarnation].lostAt
	if node.SessionLock = lostAt.IsZero(); !node.SessionLock {
		since = lostAt
	}
	node.HeartbeatAge = min(node.HeartbeatAge, now.Sub(since)) - d.allowance()
	return node
}

// noteSessions records since when sessions have been missing: at the beginning of an observation,
// since before it. A node that has just joined may not have opened its session yet.
func (d *silenceDetector) noteSessions(now time.Time, nodes []nodestore.Liveness, first bool) {
	if d.policy.NoSessionLocks {
		return
	}
	before := d.sessions
	d.sessions = make(map[string]session, len(nodes))
	if first {
		before, now = nil, now.Add(-d.intervals(lockCheckIntervals))
	}
	for _, node := range nodes {
		known := before[node.Incarnation]
		switch {
		case node.SessionLock:
			known = session{held: true}
		case known.lostAt.IsZero() && (known.held || !d.justJoined(node)):
			known.lostAt = now
		}
		d.sessions[node.Incarnation] = known
	}
}

// justJoined reports whether a node has sent no heartbeat since it joined.
func (d *silenceDetector) justJoined(node nodestore.Liveness) bool {
	return node.LastHeartbeatAt.Sub(node.StartedAt) < d.policy.HeartbeatInterval/4
}

// recordCheck records a successful check. If the last one was long ago, this process or
// the database was interrupted, and a new observation begins. If most nodes are silent
// then, an outage is more likely than their death, and the grace period is the dead
// threshold. Nodes that lost their sessions within sessionAge, the age of the leader's
// session, do not count as silent: they crashed.
func (d *silenceDetector) recordCheck(now time.Time, nodes []nodestore.Liveness, sessionAge time.Duration) {
	first := d.observedSince.IsZero() || now.Sub(d.lastCheck) > 3*maxCheckInterval
	if first {
		d.observedSince, d.gracePeriod = now, d.intervals(graceIntervals)
		if 2*d.countSilent(nodes, sessionAge) > len(nodes) {
			d.gracePeriod = d.policy.DeadThreshold
		}
	}
	d.noteSessions(now, nodes, first)
	d.lastCheck = now
}

// countSilent counts the silent nodes. It leaves out nodes that sent a heartbeat after
// the leader's session began and lost their session since: an outage of the database
// would have ended the leader's session too.
func (d *silenceDetector) countSilent(nodes []nodestore.Liveness, sessionAge time.Duration) int {
	count := 0
	for _, node := range nodes {
		crashed := !d.policy.NoSessionLocks && !node.SessionLock && node.HeartbeatAge < sessionAge
		if node.HeartbeatAge >= d.intervals(silentIntervals) && !crashed {
			count++
		}
	}
	return count
}

func (d *silenceDetector) intervals(n float64) time.Duration {
	return time.Duration(n * float64(d.policy.HeartbeatInterval))
}

// observing reports whether an observation is in progress.
func (d *silenceDetector) observing() bool { return !d.observedSince.IsZero() }

// reset records a failed check.
func (d *silenceDetector) reset() { d.observedSince, d.lateness = time.Time{}, 0 }

// graceOver reports whether the grace period is over.
func (d *silenceDetector) graceOver(now time.Time) bool {
	return !d.observedSince.IsZero() && now.Sub(d.observedSince) >= d.gracePeriod
}

// dead returns the nodes to fence.
func (d *silenceDetector) dead(now time.Time, nodes []nodestore.Liveness) []nodestore.Liveness {
	if !d.graceOver(now) {
		return nil
	}
	var dead []nodestore.Liveness
	for _, node := range nodes {
		if d.counted(node, now).Dead(d.policy) {
			dead = append(dead, node)
		}
	}
	return dead
}

// nextCheck returns the pause until the first time at which a check could find a node
// dead, or without its session.
func (d *silenceDetector) nextCheck(now time.Time, nodes []nodestore.Liveness) time.Duration {
	next := maxCheckInterval
	if !d.policy.NoSessionLocks {
		next = min(next, d.intervals(lockCheckIntervals))
	}
	for _, node := range nodes {
		next = min(next, d.counted(node, now).UntilDead(d.policy))
	}
	if !d.graceOver(now) {
		next = max(next, d.observedSince.Add(d.gracePeriod).Sub(now))
	}
	return min(maxCheckInterval, max(minCheckInterval, next))
}

// ownerID identifies the process that runs a job, from the last element of its
// attempted_by.
type ownerID struct{ nodeID, incarnation string }

// lostProcess is a lost process and the cause of its loss.
type lostProcess struct {
	ownerID
	clientID string // of its jobs; empty for jobs without an owner, which have no process
	cause    string
}

// incarnationLength is the number of hex digits.
const incarnationLength = 16

// parseOwnerID parses <node id>-<incarnation>. Plain River clients use other ids.
func parseOwnerID(text string) (ownerID, bool) {
	cut := len(text) - incarnationLength - 1
	if cut < 1 || text[cut] != '-' {
		return ownerID{}, false
	}
	incarnation := text[cut+1:]
	if strings.Trim(incarnation, "0123456789abcdef") != "" {
		return ownerID{}, false
	}
	return ownerID{nodeID: text[:cut], incarnation: incarnation}, true
}

// lostOwners returns the owners whose process is lost: it left, was fenced, or another
// process has taken over its node id. nodes must be read after the owners, because a
// process is listed before it claims jobs.
func lostOwners(owners []string, nodes []nodestore.Node, policy nodestore.Policy) []lostProcess {
	known := make(map[string]nodestore.Node, len(nodes))
	for _, node := range nodes {
		known[node.NodeID] = node
	}
	var lost []lostProcess
	for _, text := range owners {
		if text == "" {
			lost = append(lost, lostProcess{cause: "the row names no node, and the job has been running for an hour"})
			continue
		}
		s, ok := parseOwnerID(text)
		node, listed := known[s.nodeID]
		if !ok || !listed {
			continue
		}
		if node.Incarnation != s.incarnation || !node.FencedAt.IsZero() || !node.Present() {
			lost = append(lost, lostProcess{s, text, lossCause(s, node, policy)})
		}
	}
	return lost
}

// lossCause describes the loss of a process, as far as the row of its node shows it. A
// node that was fenced before the dead threshold had lost its session.
func lossCause(s ownerID, node nodestore.Node, policy nodestore.Policy) string {
	silence := node.FencedAt.Sub(node.LastHeartbeatAt).Round(100 * time.Millisecond)
	switch {
	case node.Incarnation != s.incarnation:
		return "a new process with the same node id took its place"
	case node.FencedAt.IsZero():
		return "the node left the cluster while the job ran"
	case silence < policy.WithDefaults().DeadThreshold:
		return fmt.Sprintf("its database session ended, and there was no heartbeat for %s", silence)
	default:
		return fmt.Sprintf("no heartbeat for %s: the process ended, hung or was cut off", silence)
	}
}
