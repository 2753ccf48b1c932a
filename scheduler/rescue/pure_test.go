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

func TestParseSignature(t *testing.T) {
	t.Parallel()
	tests := []struct {
		text string
		want signature
		ok   bool
	}{
		{text: "a-" + incA, want: signature{"a", incA}, ok: true},
		{text: "web-1.eu-" + incA, want: signature{"web-1.eu", incA}, ok: true},
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
			got, ok := parseSignature(test.text)
			if got != test.want || ok != test.ok {
				t.Errorf("parseSignature() = %v, %v; want %v, %v", got, ok, test.want, test.ok)
			}
		})
	}
}

// TestWatchOfManyCrashes: most nodes are silent, and whether that is an outage shows
// in whose sessions ended.
func TestWatchOfManyCrashes(t *testing.T) {
	t.Parallel()
	ages := []time.Duration{0, 2 * time.Second, 3 * time.Second}
	for name, test := range map[string]struct {
		steady  time.Duration
		locks   bool
		byLease bool
		want    time.Duration
	}{
		"crashes before this session's eyes": {4 * time.Second, false, false, 1250 * time.Millisecond},
		"one of them before this session":    {2500 * time.Millisecond, false, false, 1250 * time.Millisecond},
		"both before this session":           {2 * time.Second, false, false, 5 * time.Second},
		"a session that is not to be seen":   {0, false, false, 5 * time.Second},
		"their sessions stand":               {time.Hour, true, false, 5 * time.Second},
		"nodes without sessions":             {time.Hour, false, true, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var nodes []nodestore.Liveness
			for _, age := range ages {
				nodes = append(nodes, nodestore.Liveness{HeartbeatAge: age, SessionLock: test.locks || age == 0})
			}
			w := watch{policy: nodestore.Policy{NoSessionLocks: test.byLease}.WithDefaults()}
			if w.looked(time.Now(), nodes, test.steady); w.patience != test.want {
				t.Errorf("listens for %v, want %v", w.patience, test.want)
			}
		})
	}
}

func TestGone(t *testing.T) {
	t.Parallel()
	beat := time.Now()
	fenced := func(silence time.Duration) []nodestore.Node {
		return []nodestore.Node{{NodeID: "a", Incarnation: incA, State: nodestore.Dead, LastHeartbeatAt: beat, FencedAt: beat.Add(silence)}}
	}
	lost := func(how string) []lostProcess { return []lostProcess{{signature{"a", incA}, how}} }
	tests := []struct {
		name  string
		nodes []nodestore.Node
		want  []lostProcess
	}{
		{name: "alive", nodes: []nodestore.Node{{NodeID: "a", Incarnation: incA, State: nodestore.Active}}},
		{name: "draining", nodes: []nodestore.Node{{NodeID: "a", Incarnation: incA, State: nodestore.Draining}}},
		{name: "a node id that nobody knows"},
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
			got := gone([]string{"a-" + incA, "host_2026_11_20T15_04_05_000000"}, test.nodes, nodestore.Policy{})
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(signature{}, lostProcess{}), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("gone() (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	age := func(ages ...time.Duration) (nodes []nodestore.Liveness) {
		for _, a := range ages {
			nodes = append(nodes, nodestore.Liveness{HeartbeatAge: a})
		}
		return nodes
	}
	oneDead, allSilent := age(10*time.Second, 0, 0), age(10*time.Second, 10*time.Second, 0)
	start := time.Now()
	after := start.Add
	w := watch{policy: nodestore.Policy{}.WithDefaults()}
	if w.dead(start, oneDead) != nil {
		t.Error("judged before the first look")
	}
	w.looked(start, oneDead, 0)
	if w.dead(after(1200*time.Millisecond), oneDead) != nil {
		t.Error("judged before a live node could have been heard")
	}
	w.looked(after(1250*time.Millisecond), oneDead, 0)
	if got := len(w.dead(after(1250*time.Millisecond), oneDead)); got != 1 {
		t.Errorf("found %d dead nodes, want 1", got)
	}
	w.broken()
	w.looked(after(2*time.Second), allSilent, 0)
	if w.dead(after(6*time.Second), allSilent) != nil {
		t.Error("an outage was taken for the death of most nodes")
	}
	for at := 2 * time.Second; at <= 7*time.Second; at += time.Second {
		w.looked(after(at), allSilent, 0)
	}
	if got := len(w.dead(after(7*time.Second), allSilent)); got != 2 {
		t.Errorf("found %d dead nodes after the outage, want 2", got)
	}
	w.looked(after(time.Minute), oneDead, 0)
	if w.dead(after(time.Minute), oneDead) != nil {
		t.Error("judged right after this process stood still")
	}
}

func TestNextLookComesWhenANodeCouldBeDead(t *testing.T) {
	t.Parallel()
	now := time.Now()
	w := watch{policy: nodestore.Policy{}.WithDefaults(), since: now.Add(-time.Minute), last: now}
	tests := []struct {
		name string
		ages []time.Duration
		want time.Duration
	}{
		{"nobody", nil, maxLook},
		{"fresh", []time.Duration{0}, maxLook},
		{"the oldest counts", []time.Duration{0, 900 * time.Millisecond}, 600 * time.Millisecond},
		{"overdue", []time.Duration{4 * time.Second}, minLook},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var nodes []nodestore.Liveness
			for _, age := range test.ages {
				nodes = append(nodes, nodestore.Liveness{HeartbeatAge: age, SessionLock: true})
			}
			if got := w.nextLook(now, nodes); got != test.want {
				t.Errorf("nextLook() = %v, want %v", got, test.want)
			}
		})
	}
}

func TestJudge(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	tests := []struct {
		name   string
		orphan orphan
		want   rivertype.JobState
	}{
		{"attempts left", orphan{attempt: 2, maxAttempts: 3}, rivertype.JobStateAvailable},
		{"attempts used up", orphan{attempt: 3, maxAttempts: 3}, rivertype.JobStateDiscarded},
		{"cancellation asked for", orphan{attempt: 1, maxAttempts: 3, cancelAsked: true}, rivertype.JobStateCancelled},
		{"both", orphan{attempt: 3, maxAttempts: 3, cancelAsked: true}, rivertype.JobStateCancelled},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.orphan.attemptedAt = now.Add(-1500 * time.Millisecond)
			v, err := test.orphan.judge(lostProcess{signature{"a", incA}, "it left"}, now)
			if err != nil || v.state != string(test.want) {
				t.Fatalf("judge() = %+v, %v; want %s", v, err, test.want)
			}
			var attempts map[string]jobstore.Attempt
			if err := json.Unmarshal(v.metadata, &attempts); err != nil || len(attempts) != 1 {
				t.Fatalf("metadata %s: %v", v.metadata, err)
			}
			for _, a := range attempts {
				if a.Outcome != "lost" || a.Error != "node lost: it left" || a.NodeID != "a" || a.DurationMS != 1500 || a.Attempt != test.orphan.attempt {
					t.Errorf("attempt: %+v", a)
				}
			}
		})
	}
}

// A leader that is late itself, on a busy machine or a slow database, takes no node for
// dead that may be late for the same reason; one that hangs is found nevertheless.
func TestNobodyIsDeadByTheJudgesOwnLateness(t *testing.T) {
	t.Parallel()
	policy := nodestore.Policy{}.WithDefaults()
	at := time.Now()
	newWatch := func() *watch { return &watch{policy: policy, since: at.Add(-time.Minute), last: at.Add(-time.Second)} }
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
		{name: "merely busy, hung node", late: 90 * time.Millisecond, age: 5 * time.Second, dead: 1},
		{name: "the look came late", late: time.Second, age: 7900 * time.Millisecond},
		{name: "the database answered late", answer: time.Second, age: 7900 * time.Millisecond},
		{name: "its own heartbeat is late", ownBeat: 2500 * time.Millisecond, age: 7900 * time.Millisecond},
		{name: "late, and a node that hangs", late: time.Second, age: 8 * time.Second, dead: 1},
		{name: "very late, and a node that hangs", late: time.Minute, age: 30 * time.Second, dead: 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newWatch()
			w.noteLateness(at, at.Add(test.late), at.Add(test.late+test.answer), test.ownBeat)
			if got := len(w.dead(at, silent(test.age))); got != test.dead {
				t.Errorf("%d nodes are dead after %s, want %d", got, test.age, test.dead)
			}
		})
	}
	w := newWatch()
	w.noteLateness(at, at.Add(time.Second), at.Add(time.Second), 0)
	for range 7 {
		w.looked(at, silent(0), 0)
		at = at.Add(time.Second)
		w.noteLateness(at, at, at, 0)
	}
	if got := len(w.dead(at, silent(5*time.Second))); got != 1 {
		t.Error("lateness is not forgotten when the machine is in time again")
	}
}

// As long as one node was silent that was heard again another may be silent.
func TestNodesThatAreHeardAgainShowHowLateNodesAre(t *testing.T) {
	t.Parallel()
	at := time.Now()
	w := watch{policy: nodestore.Policy{}.WithDefaults(), since: at.Add(-time.Minute), last: at}
	look := func(a, b time.Duration) []nodestore.Liveness {
		nodes := []nodestore.Liveness{{HeartbeatAge: a}, {HeartbeatAge: b}}
		nodes[0].Incarnation, nodes[1].Incarnation = incA, incB
		nodes[0].SessionLock, nodes[1].SessionLock = true, true
		w.noteReturns(nodes)
		return nodes
	}
	if got := len(w.dead(at, look(4*time.Second, 5*time.Second))); got != 1 {
		t.Errorf("%d nodes are dead, want the one that is silent for too long", got)
	}
	if got := len(w.dead(at, look(0, 5*time.Second))); got != 0 {
		t.Error("a node is dead that is silent for hardly longer than one that lives")
	}
}
