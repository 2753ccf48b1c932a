package rescue

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/riverqueue/river/rivertype"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
)

const (
	incA = "00000000000000aa"
	incB = "00000000000000bb"
)

func TestParseOwnerID(t *testing.T) {
	t.Parallel()
	tests := []struct {
		text string
		want ownerID
		ok   bool
	}{
		{text: "a-" + incA, want: ownerID{"a", incA}, ok: true},
		{text: "web-1.eu-" + incA, want: ownerID{"web-1.eu", incA}, ok: true},
		{text: "-" + incA},
		{text: incA},
		{text: ""},
		{text: "a-00000000000000AA"},
		{text: "a-0000000000000aa"},
		{text: "a_" + incA},
		{text: "host_2026_11_20T15_04_05_000000"},
	}
	for _, test := range tests {
		t.Run(test.text, func(t *testing.T) {
			t.Parallel()
			got, ok := parseOwnerID(test.text)
			if got != test.want || ok != test.ok {
				t.Errorf("parseOwnerID() = %v, %v; want %v, %v", got, ok, test.want, test.ok)
			}
		})
	}
}

// Most nodes are silent. The sessions show whether they crashed or the database had an
// outage.
func TestManyCrashesAreDistinguishedFromOutage(t *testing.T) {
	t.Parallel()
	ages := []time.Duration{0, 2 * time.Second, 3 * time.Second}
	for name, test := range map[string]struct {
		sessionAge time.Duration
		locks      bool
		byLease    bool
		want       time.Duration
	}{
		"both crashed during this session":    {4 * time.Second, false, false, 1250 * time.Millisecond},
		"one of them before this session":     {2500 * time.Millisecond, false, false, 1250 * time.Millisecond},
		"both before this session":            {2 * time.Second, false, false, 5 * time.Second},
		"the leader's session is not visible": {0, false, false, 5 * time.Second},
		"their sessions are alive":            {time.Hour, true, false, 5 * time.Second},
		"nodes without sessions":              {time.Hour, false, true, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var nodes []nodestore.Liveness
			for _, age := range ages {
				nodes = append(nodes, nodestore.Liveness{HeartbeatAge: age, SessionLock: test.locks || age == 0})
			}
			d := silenceDetector{policy: nodestore.Policy{NoSessionLocks: test.byLease}.WithDefaults()}
			if d.recordCheck(time.Now(), nodes, test.sessionAge); d.gracePeriod != test.want {
				t.Errorf("waits for %v, want %v", d.gracePeriod, test.want)
			}
		})
	}
}

func TestLostOwners(t *testing.T) {
	t.Parallel()
	beat := time.Now()
	fenced := func(silence time.Duration) []nodestore.Node {
		return []nodestore.Node{{NodeID: "a", Incarnation: incA, State: nodestore.Dead, LastHeartbeatAt: beat, FencedAt: beat.Add(silence)}}
	}
	lost := func(how string) []lostProcess { return []lostProcess{{ownerID{"a", incA}, "a-" + incA, how}} }
	tests := []struct {
		name  string
		nodes []nodestore.Node
		want  []lostProcess
	}{
		{name: "alive", nodes: []nodestore.Node{{NodeID: "a", Incarnation: incA, State: nodestore.Active}}},
		{name: "draining", nodes: []nodestore.Node{{NodeID: "a", Incarnation: incA, State: nodestore.Draining}}},
		{name: "unknown node id"},
		{
			name: "left", nodes: []nodestore.Node{{NodeID: "a", Incarnation: incA, State: nodestore.Left}},
			want: lost("the node left the cluster while the job ran"),
		},
		{
			name: "crashed", nodes: fenced(1510 * time.Millisecond),
			want: lost("its database session ended, and there was no heartbeat for 1.5s"),
		},
		{
			name: "silent", nodes: fenced(5 * time.Second),
			want: lost("no heartbeat for 5s: the process ended, hung or was cut off"),
		},
		{
			name: "restarted", nodes: []nodestore.Node{{NodeID: "a", Incarnation: incB, State: nodestore.Active}},
			want: lost("a new process with the same node id took its place"),
		},
		{name: "another node has gone", nodes: []nodestore.Node{
			{NodeID: "a", Incarnation: incA, State: nodestore.Active}, {NodeID: "b", Incarnation: incB, State: nodestore.Left},
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got := lostOwners([]string{"a-" + incA, "host_2026_11_20T15_04_05_000000"}, test.nodes, nodestore.Policy{})
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(ownerID{}, lostProcess{}), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("lostOwners() (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNoNodeIsFencedDuringGracePeriod(t *testing.T) {
	t.Parallel()
	age := func(ages ...time.Duration) (nodes []nodestore.Liveness) {
		for _, a := range ages {
			nodes = append(nodes, nodestore.Liveness{Node: nodestore.Node{LastHeartbeatAt: time.Now()}, HeartbeatAge: a})
		}
		return nodes
	}
	oneDead, allSilent := age(10*time.Second, 0, 0), age(10*time.Second, 10*time.Second, 0)
	start := time.Now()
	after := start.Add
	d := silenceDetector{policy: nodestore.Policy{}.WithDefaults()}
	if d.dead(start, oneDead) != nil {
		t.Error("found dead before the first check")
	}
	d.recordCheck(start, oneDead, 0)
	if d.dead(after(1200*time.Millisecond), oneDead) != nil {
		t.Error("found dead before the end of the grace period")
	}
	d.recordCheck(after(1250*time.Millisecond), oneDead, 0)
	if got := len(d.dead(after(1250*time.Millisecond), oneDead)); got != 1 {
		t.Errorf("found %d dead nodes, want 1", got)
	}
	d.reset()
	d.recordCheck(after(2*time.Second), allSilent, 0)
	if d.dead(after(6*time.Second), allSilent) != nil {
		t.Error("an outage was mistaken for the death of most nodes")
	}
	for at := 2 * time.Second; at <= 7*time.Second; at += time.Second {
		d.recordCheck(after(at), allSilent, 0)
	}
	if got := len(d.dead(after(7*time.Second), allSilent)); got != 2 {
		t.Errorf("found %d dead nodes after the outage, want 2", got)
	}
	d.recordCheck(after(time.Minute), oneDead, 0)
	if d.dead(after(time.Minute), oneDead) != nil {
		t.Error("found dead right after this process was interrupted")
	}
}

// After an outage of the database, nodes come back one after the other. The silence before counts
// only for a node whose session has ended too.
func TestLastNodeToReturnIsNotDead(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		lock, byLease bool
		beats         time.Duration // from when it joined to its last heartbeat
		dead          time.Duration // since the beginning of the observation
	}{
		"it has not opened one yet": {beats: time.Millisecond, dead: 5 * time.Second},
		"its session has come back": {lock: true, beats: time.Hour, dead: 5 * time.Second},
		"it has no session":         {byLease: true, beats: time.Hour, dead: 5 * time.Second},
		"its session has ended":     {beats: time.Second, dead: 1250 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := silenceDetector{policy: nodestore.Policy{NoSessionLocks: test.byLease}.WithDefaults()}
			start := time.Now()
			joined := nodestore.Node{StartedAt: start, LastHeartbeatAt: start.Add(test.beats)}
			for at := time.Duration(0); at <= test.dead; at += 50 * time.Millisecond {
				nodes := []nodestore.Liveness{{SessionLock: true}, {SessionLock: true}, {Node: joined, SessionLock: test.lock, HeartbeatAge: 21*time.Second + at}}
				d.recordCheck(start.Add(at), nodes, 0)
				if found := len(d.dead(start.Add(at), nodes)) == 1; found != (at == test.dead) {
					t.Fatalf("dead after %s: %t", at, found)
				}
			}
		})
	}
}

func TestNextCheckIsWhenANodeCouldBeDead(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		node nodestore.Liveness
		lost time.Duration // ago
		want time.Duration
	}{
		{name: "fresh", node: nodestore.Liveness{SessionLock: true}, want: 250 * time.Millisecond},
		{name: "silent", node: nodestore.Liveness{SessionLock: true, HeartbeatAge: 4800 * time.Millisecond}, want: 200 * time.Millisecond},
		{name: "overdue", node: nodestore.Liveness{SessionLock: true, HeartbeatAge: 6 * time.Second}, want: minCheckInterval},
		{name: "without its session", node: nodestore.Liveness{HeartbeatAge: 2 * time.Second}, lost: 1300 * time.Millisecond, want: 200 * time.Millisecond},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			now := time.Now()
			d := silenceDetector{policy: nodestore.Policy{}.WithDefaults(), observedSince: now.Add(-time.Minute), lastCheck: now}
			if test.lost > 0 {
				d.sessions = map[string]session{"": {lostAt: now.Add(-test.lost)}}
			}
			if got := d.nextCheck(now, []nodestore.Liveness{test.node}); got != test.want {
				t.Errorf("nextCheck() = %v, want %v", got, test.want)
			}
			d.policy.NoSessionLocks, d.sessions = true, nil
			if got := d.nextCheck(now, nil); got != maxCheckInterval {
				t.Errorf("nextCheck() = %v without session locks, want %v", got, maxCheckInterval)
			}
		})
	}
}

// A proxy that restarts ends the sessions of living nodes, some of whose last heartbeats are older
// than others'. A node that has crashed is found as soon as those would be back, also if it crashed
// right after it joined.
func TestNodeWithoutSessionIsDeadOnlyAfterAWhile(t *testing.T) {
	t.Parallel()
	const interval, want = 250 * time.Millisecond, 1750 * time.Millisecond
	for lastBeat := time.Duration(0); lastBeat < time.Second; lastBeat += 50 * time.Millisecond {
		start := time.Now()
		d := silenceDetector{policy: nodestore.Policy{}.WithDefaults(), observedSince: start.Add(-time.Minute), lastCheck: start}
		var dead [2]time.Duration
		for at := time.Duration(0); at <= 2*time.Second; at += interval {
			settled := nodestore.Liveness{Node: nodestore.Node{Incarnation: incA, LastHeartbeatAt: start}, HeartbeatAge: at + lastBeat, SessionLock: at == 0}
			joined := settled
			joined.Incarnation, joined.StartedAt = incB, start
			nodes := []nodestore.Liveness{settled, joined}
			d.recordCheck(start.Add(at), nodes, 0)
			for i, node := range nodes {
				if dead[i] == 0 && d.counted(node, start.Add(at)).Dead(d.policy) {
					dead[i] = at
				}
			}
		}
		if dead != [2]time.Duration{want, want} {
			t.Errorf("with last heartbeats %s before their sessions ended, the nodes were found dead after %s, want %s", lastBeat, dead, want)
		}
		back := nodestore.Liveness{Node: nodestore.Node{Incarnation: incA, LastHeartbeatAt: start}, SessionLock: true}
		d.recordCheck(start.Add(3*time.Second), []nodestore.Liveness{back}, 0)
		if got := d.sessions; len(got) != 1 || got[incA] != (session{held: true}) {
			t.Errorf("after a node came back, its session counts as %+v", got)
		}
	}
}

func TestOrphanVerdict(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	tests := []struct {
		name   string
		orphan jobstore.Orphan
		want   rivertype.JobState
	}{
		{"attempts left", jobstore.Orphan{Attempt: 2, MaxAttempts: 3}, rivertype.JobStateAvailable},
		{"no attempts left", jobstore.Orphan{Attempt: 3, MaxAttempts: 3}, rivertype.JobStateDiscarded},
		{"cancellation requested", jobstore.Orphan{Attempt: 1, MaxAttempts: 3, CancelRequested: true}, rivertype.JobStateCancelled},
		{"both", jobstore.Orphan{Attempt: 3, MaxAttempts: 3, CancelRequested: true}, rivertype.JobStateCancelled},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.orphan.AttemptedAt = now.Add(-1500 * time.Millisecond)
			v, err := verdictOn(test.orphan, lostProcess{ownerID{"a", incA}, "a-" + incA, "it left"}, now)
			if err != nil || v.State != string(test.want) {
				t.Fatalf("judge() = %+v, %v; want %s", v, err, test.want)
			}
			var attempts map[string]jobstore.Attempt
			if err := json.Unmarshal(v.Metadata, &attempts); err != nil || len(attempts) != 1 {
				t.Fatalf("metadata %s: %v", v.Metadata, err)
			}
			for _, a := range attempts {
				if a.Outcome != "lost" || a.Error != "node lost: it left" || a.NodeID != "a" || a.DurationMS != 1500 || a.Attempt != test.orphan.Attempt {
					t.Errorf("attempt: %+v", a)
				}
			}
		})
	}
}

// A leader that is late itself, on a busy machine or a slow database, does not fence a
// node that may be late for the same reason. It still finds a node that hangs.
func TestLateLeaderAllowsForLateHeartbeats(t *testing.T) {
	t.Parallel()
	policy := nodestore.Policy{}.WithDefaults()
	at := time.Now()
	newDetector := func() *silenceDetector {
		return &silenceDetector{policy: policy, observedSince: at.Add(-time.Minute), lastCheck: at.Add(-time.Second)}
	}
	silent := func(age time.Duration) []nodestore.Liveness {
		return []nodestore.Liveness{{HeartbeatAge: age, SessionLock: true}, {}}
	}
	tests := []struct {
		name                  string
		late, answer, ownBeat time.Duration
		age                   time.Duration
		dead                  int
	}{
		{name: "in time, hung node", age: 5 * time.Second, dead: 1},
		{name: "slightly late, hung node", late: 90 * time.Millisecond, age: 5 * time.Second, dead: 1},
		{name: "the check was late", late: time.Second, age: 7900 * time.Millisecond},
		{name: "the database answered late", answer: time.Second, age: 7900 * time.Millisecond},
		{name: "its own heartbeat is late", ownBeat: 2500 * time.Millisecond, age: 7900 * time.Millisecond},
		{name: "late, and a node that hangs", late: time.Second, age: 8 * time.Second, dead: 1},
		{name: "very late, and a node that hangs", late: time.Minute, age: 30 * time.Second, dead: 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := newDetector()
			d.noteLateness(at, at.Add(test.late), at.Add(test.late+test.answer), test.ownBeat)
			if got := len(d.dead(at, silent(test.age))); got != test.dead {
				t.Errorf("%d nodes are dead after %s, want %d", got, test.age, test.dead)
			}
		})
	}
	d := newDetector()
	d.noteLateness(at, at.Add(time.Second), at.Add(time.Second), 0)
	for range 7 {
		d.recordCheck(at, silent(0), 0)
		at = at.Add(time.Second)
		d.noteLateness(at, at, at, 0)
	}
	if got := len(d.dead(at, silent(5*time.Second))); got != 1 {
		t.Error("the lateness does not decrease when the machine is on time again")
	}
}

// If a node returns after some silence, another node may be silent for as long.
func TestReturningNodeRaisesAllowance(t *testing.T) {
	t.Parallel()
	at := time.Now()
	d := silenceDetector{policy: nodestore.Policy{}.WithDefaults(), observedSince: at.Add(-time.Minute), lastCheck: at}
	check := func(a, b time.Duration) []nodestore.Liveness {
		nodes := []nodestore.Liveness{{HeartbeatAge: a}, {HeartbeatAge: b}}
		nodes[0].Incarnation, nodes[1].Incarnation = incA, incB
		nodes[0].SessionLock, nodes[1].SessionLock = true, true
		d.noteReturns(nodes)
		return nodes
	}
	if got := len(d.dead(at, check(4*time.Second, 5*time.Second))); got != 1 {
		t.Errorf("%d nodes are dead, want the one that was silent for too long", got)
	}
	if got := len(d.dead(at, check(0, 5*time.Second))); got != 0 {
		t.Error("a node was found dead after hardly more silence than a living one")
	}
}
