package rescue

import (
	"fmt"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/internal/nodestore"
)

const (
	// minLook and maxLook bound the pause between two looks at the nodes.
	minLook, maxLook = 150 * time.Millisecond, time.Second
	// hearing is how many heartbeat intervals a node is given to be heard
	// before anyone is judged.
	hearing = 1.25
	// silent is after how many intervals a node counts as silent.
	silent = 1.5
	// timesLate is how much later than this leader's own heartbeats and looks those of
	// others may be, which have the same machine or the same database.
	timesLate = 3
	// minLate is what happens on a machine that is merely busy.
	minLate = 100 * time.Millisecond
	// mostLate is how many dead thresholds that makes at most: where all are late, one
	// that hangs is found late as well.
	mostLate = 5
	// forgetLate is the part of a second by which lateness is forgotten in a second.
	forgetLate = 0.15
)

// watch remembers since when the nodes could have been heard without a break.
type watch struct {
	policy      nodestore.Policy
	since, last time.Time
	// patience is how long this watch listens before it judges.
	patience time.Duration
	// late is how late this leader itself, or a node that was heard again, was lately.
	late time.Duration
	// ages are how long the nodes had been silent at the last look.
	ages map[string]time.Duration
}

// noteLateness takes in how late this leader itself is: a look that was to come at
// planned came at began and was answered at now, and its own heartbeat is as old as
// that. What it suffers from, a busy machine or a slow database, others may suffer
// from, too. That is no sign of their death.
func (w *watch) noteLateness(planned, began, now time.Time, ownBeat time.Duration) {
	if w.listens() { // else the database was away, for which looked has its own rule
		forgotten := time.Duration(forgetLate * float64(now.Sub(w.last)))
		w.late = max(0, w.late-forgotten, began.Sub(planned), now.Sub(began), ownBeat-w.intervals(silent))
	}
}

// noteReturns takes in which nodes were heard again: as long as they were silent, one
// may be silent and live.
func (w *watch) noteReturns(nodes []nodestore.Liveness) {
	ages := make(map[string]time.Duration, len(nodes))
	for _, node := range nodes {
		ages[node.Incarnation] = node.HeartbeatAge
		if before := w.ages[node.Incarnation]; w.listens() && node.HeartbeatAge < before {
			w.late = max(w.late, before-w.intervals(silent))
		}
	}
	w.ages = ages
}

// allowance is how much longer than the policy has it a node may be silent.
func (w *watch) allowance() time.Duration {
	if w.late < minLate {
		return 0
	}
	return min(timesLate*w.late, mostLate*w.policy.DeadThreshold)
}

// judged is the policy with the allowance.
func (w *watch) judged(node nodestore.Liveness) nodestore.Liveness {
	node.HeartbeatAge -= w.allowance()
	return node
}

// looked notes a look that succeeded. One that comes long after the last begins
// a new watch: this process stood still meanwhile, or the database did. A watch
// that finds most nodes silent believes in an outage rather than in their
// death, and listens for a whole dead threshold; unless the leader's own session,
// which has stood for as long as steady says, has outlasted theirs.
func (w *watch) looked(now time.Time, nodes []nodestore.Liveness, steady time.Duration) {
	if w.since.IsZero() || now.Sub(w.last) > 3*maxLook {
		w.since, w.patience = now, w.intervals(hearing)
		if 2*w.silent(nodes, steady) > len(nodes) {
			w.patience = w.policy.DeadThreshold
		}
	}
	w.last = now
}

// silent counts the silent nodes, but for those that were heard since the leader's
// session began and lost theirs since: no outage of the database did that.
func (w *watch) silent(nodes []nodestore.Liveness, steady time.Duration) int {
	count := 0
	for _, node := range nodes {
		crashed := !w.policy.NoSessionLocks && !node.SessionLock && node.HeartbeatAge < steady
		if node.HeartbeatAge >= w.intervals(silent) && !crashed {
			count++
		}
	}
	return count
}

func (w *watch) intervals(n float64) time.Duration {
	return time.Duration(n * float64(w.policy.HeartbeatInterval))
}

// listens says that a watch is under way.
func (w *watch) listens() bool { return !w.since.IsZero() }

// broken notes a look that failed.
func (w *watch) broken() { w.since, w.late = time.Time{}, 0 }

// mayJudge says whether silence means anything yet.
func (w *watch) mayJudge(now time.Time) bool {
	return !w.since.IsZero() && now.Sub(w.since) >= w.patience
}

// dead returns the nodes to be buried.
func (w *watch) dead(now time.Time, nodes []nodestore.Liveness) []nodestore.Liveness {
	if !w.mayJudge(now) {
		return nil
	}
	var dead []nodestore.Liveness
	for _, node := range nodes {
		if w.judged(node).Dead(w.policy) {
			dead = append(dead, node)
		}
	}
	return dead
}

// nextLook is the pause until the first instant at which another look could
// find a node dead.
func (w *watch) nextLook(now time.Time, nodes []nodestore.Liveness) time.Duration {
	next := maxLook
	for _, node := range nodes {
		next = min(next, w.judged(node).UntilSuspect(w.policy))
	}
	if !w.mayJudge(now) {
		next = max(next, w.since.Add(w.patience).Sub(now))
	}
	return min(maxLook, max(minLook, next))
}

// signature is who ran a job, as the last element of its attempted_by says.
type signature struct{ nodeID, incarnation string }

// lostProcess is a process that is gone, and how.
type lostProcess struct {
	signature
	how string
}

// incarnationLength is in hex digits.
const incarnationLength = 16

// parseSignature reads <node id>-<incarnation>. Plain River clients sign with
// something else.
func parseSignature(text string) (signature, bool) {
	cut := len(text) - incarnationLength - 1
	if cut < 1 || text[cut] != '-' {
		return signature{}, false
	}
	incarnation := text[cut+1:]
	if strings.Trim(incarnation, "0123456789abcdef") != "" {
		return signature{}, false
	}
	return signature{nodeID: text[:cut], incarnation: incarnation}, true
}

// gone returns those signatures whose process is gone for good: it left, was
// fenced, or lost its node id to another. nodes must have been read after the
// signatures: a process is listed before it claims.
func gone(signatures []string, nodes []nodestore.Node, policy nodestore.Policy) []lostProcess {
	known := make(map[string]nodestore.Node, len(nodes))
	for _, node := range nodes {
		known[node.NodeID] = node
	}
	var lost []lostProcess
	for _, text := range signatures {
		s, ok := parseSignature(text)
		node, listed := known[s.nodeID]
		if !ok || !listed {
			continue
		}
		if node.Incarnation != s.incarnation || !node.FencedAt.IsZero() || !node.Present() {
			lost = append(lost, lostProcess{s, howLost(s, node, policy)})
		}
	}
	return lost
}

// howLost says how a process went, as far as the row of its node tells. A node that is
// fenced before the dead threshold had lost its session.
func howLost(s signature, node nodestore.Node, policy nodestore.Policy) string {
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
