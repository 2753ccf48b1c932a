package assign

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/wire"
)

// seated returns a board on which every node has reported its credit.
func seated(t *testing.T, strategy string, nodes []nodestore.Node, free map[string]wire.Credit) *board {
	t.Helper()
	b := newBoard(1, strategy)
	for i := range nodes {
		nodes[i].State = nodestore.Active
		nodes[i].Incarnation = "inc-" + nodes[i].NodeID
	}
	b.seat(nodes)
	for id, credit := range free {
		credit.Incarnation, credit.Term = "inc-"+id, 1
		if !b.credit(credit, time.Now()) {
			t.Fatalf("credit of %s refused", id)
		}
	}
	return b
}

func node(id string, slots int, change ...func(*nodestore.Node)) nodestore.Node {
	n := nodestore.Node{NodeID: id, Slots: slots, Kinds: []string{"k"}, Queues: map[string]int{"q": slots}}
	for _, f := range change {
		f(&n)
	}
	return n
}

func free(slots int) wire.Credit { return wire.Credit{Slots: slots, Free: map[string]int{"q": slots}} }

func TestPick(t *testing.T) {
	t.Parallel()
	gpu := func(n *nodestore.Node) { n.Capabilities = []string{"general", "gpu"} }
	eu := func(n *nodestore.Node) { n.Tags = map[string]string{"zone": "eu", "disk": "ssd"} }
	tests := []struct {
		name   string
		job    job
		nodes  []nodestore.Node
		free   map[string]wire.Credit
		avoid  string
		want   string
		credit bool
	}{
		{
			name: "the least loaded by share", job: job{kind: "k", queue: "q"},
			nodes: []nodestore.Node{node("a", 100), node("b", 10)},
			free:  map[string]wire.Credit{"a": free(50), "b": free(9)}, want: "b", credit: true,
		},
		{
			name: "kind", job: job{kind: "other", queue: "q"},
			nodes: []nodestore.Node{node("a", 10), node("b", 10, func(n *nodestore.Node) { n.Kinds = []string{"other"} })},
			free:  map[string]wire.Credit{"a": free(10), "b": free(1)}, want: "b", credit: true,
		},
		{
			name: "nobody has the kind", job: job{kind: "other", queue: "q"},
			nodes: []nodestore.Node{node("a", 10)}, free: map[string]wire.Credit{"a": free(10)}, credit: true,
		},
		{
			name: "capability", job: job{kind: "k", queue: "q", capability: "gpu"},
			nodes: []nodestore.Node{node("a", 10), node("b", 10, gpu)},
			free:  map[string]wire.Credit{"a": free(10), "b": free(1)}, want: "b", credit: true,
		},
		{
			name: "tags are a subset", job: job{kind: "k", queue: "q", tags: map[string]string{"zone": "eu"}},
			nodes: []nodestore.Node{node("a", 10), node("b", 10, eu)},
			free:  map[string]wire.Credit{"a": free(10), "b": free(1)}, want: "b", credit: true,
		},
		{
			name: "one tag differs", job: job{kind: "k", queue: "q", tags: map[string]string{"zone": "eu", "disk": "hdd"}},
			nodes: []nodestore.Node{node("b", 10, eu)}, free: map[string]wire.Credit{"b": free(10)}, credit: true,
		},
		{
			name: "unreadable tags", job: job{kind: "k", queue: "q", unreadable: true},
			nodes: []nodestore.Node{node("a", 10)}, free: map[string]wire.Credit{"a": free(10)}, credit: true,
		},
		{
			name: "no credit for the queue", job: job{kind: "k", queue: "q"},
			nodes: []nodestore.Node{node("a", 10)},
			free:  map[string]wire.Credit{"a": {Slots: 10, Free: map[string]int{"other": 10}}},
		},
		{
			name: "no slots in all", job: job{kind: "k", queue: "q"},
			nodes: []nodestore.Node{node("a", 10)},
			free:  map[string]wire.Credit{"a": {Slots: 0, Free: map[string]int{"q": 10}}},
		},
		{name: "no report yet", job: job{kind: "k", queue: "q"}, nodes: []nodestore.Node{node("a", 10)}},
		{
			name: "another node than last time", job: job{kind: "k", queue: "q"}, avoid: "inc-a",
			nodes: []nodestore.Node{node("a", 10), node("b", 10)},
			free:  map[string]wire.Credit{"a": free(10), "b": free(1)}, want: "b", credit: true,
		},
		{
			name: "the same node where there is no other", job: job{kind: "k", queue: "q"}, avoid: "inc-a",
			nodes: []nodestore.Node{node("a", 10)}, free: map[string]wire.Credit{"a": free(10)}, want: "a", credit: true,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := seated(t, LeastLoaded, test.nodes, test.free)
			got, credit := pick(test.job, b.members, b.strategy, test.avoid)
			name := ""
			if got != nil {
				name = got.nodeID
			}
			if name != test.want || credit != test.credit {
				t.Errorf("pick() = %q, %v; want %q, %v", name, credit, test.want, test.credit)
			}
		})
	}
}

// Jobs spread over nodes by the share of slots, and evenly among equals.
func TestPickIsFair(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, strategy string
		slots          []int
		jobs           int
		want           map[string]int
	}{
		{"equals", LeastLoaded, []int{10, 10, 10}, 9, map[string]int{"n0": 3, "n1": 3, "n2": 3}},
		{"by share", LeastLoaded, []int{40, 20}, 30, map[string]int{"n0": 20, "n1": 10}},
		{"in turn", RoundRobin, []int{40, 20}, 30, map[string]int{"n0": 15, "n1": 15}},
		{"in turn until full", RoundRobin, []int{40, 5}, 30, map[string]int{"n0": 25, "n1": 5}},
		{"no more than there is", LeastLoaded, []int{3, 2}, 30, map[string]int{"n0": 3, "n1": 2}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var nodes []nodestore.Node
			credit := map[string]wire.Credit{}
			for i, slots := range test.slots {
				id := fmt.Sprint("n", i)
				nodes = append(nodes, node(id, slots))
				credit[id] = free(slots)
			}
			b := seated(t, test.strategy, nodes, credit)
			got := map[string]int{}
			j := job{kind: "k", queue: "q"}
			for range test.jobs {
				if m, _ := pick(j, b.members, b.strategy, ""); m != nil {
					b.assign(m, j)
					got[m.nodeID]++
				}
			}
			if !maps.Equal(got, test.want) {
				t.Errorf("placed %v, want %v", got, test.want)
			}
		})
	}
}

// What a report has not seen yet is taken off it.
func TestBoardAccountsForOffersUnderWay(t *testing.T) {
	t.Parallel()
	b := seated(t, LeastLoaded, []nodestore.Node{node("a", 10)}, map[string]wire.Credit{"a": free(10)})
	m, start := b.members[0], time.Now()
	for range 3 {
		b.letters(map[*member]jobsByQueue{m: {"q": {1, 2}}}, newLimits(), nil, start)
		b.assign(m, job{kind: "k", queue: "q"})
		b.assign(m, job{kind: "k", queue: "q"})
	}
	report := wire.Credit{Incarnation: "inc-a", Term: 1, Seen: 1, Slots: 8, Free: map[string]int{"q": 8}}
	b.credit(report, start)
	if got := b.room("q"); got != 4 || m.slotsLeft != 4 {
		t.Errorf("room with two offers under way = %d of %d slots, want 4", got, m.slotsLeft)
	}
	report.Seen, report.Slots, report.Free = 0, 10, map[string]int{"q": 10}
	if b.credit(report, start) {
		t.Error("a report older than the newest was taken")
	}
	b.expire(start.Add(offerTimeout), offerTimeout)
	if got := b.room("q"); got != 8 {
		t.Errorf("room after the offers were written off = %d, want 8", got)
	}
	if ask := b.silent(start.Add(2*time.Second), false); len(ask) != 1 {
		t.Error("a member whose offers were lost is not asked")
	}
}

// A report of another term says nothing about this one's offers.
func TestBoardAsksAMemberThatReportsForAnotherTerm(t *testing.T) {
	t.Parallel()
	b := seated(t, LeastLoaded, []nodestore.Node{node("a", 10)}, nil)
	start := time.Now()
	if letters := b.letters(nil, newLimits(), b.silent(start, false), start); len(letters) != 1 || letters[0].offer.Jobs != nil {
		t.Fatalf("first letters: %+v", letters)
	}
	if ask := b.silent(start.Add(askInterval/2), false); len(ask) != 0 {
		t.Error("asked again too soon")
	}
	b.credit(wire.Credit{Incarnation: "inc-a", Term: 0, Seen: 9, Slots: 10, Free: map[string]int{"q": 10}}, start)
	if got := b.room("q"); got != 0 {
		t.Errorf("room by a report of another term = %d, want 0", got)
	}
	if ask := b.silent(start.Add(askInterval/2), false); len(ask) != 1 {
		t.Error("the member is not asked at once")
	}
}

// Credit that nobody waits for calls for no turn.
func TestCreditIsWantedWhileJobsMayWaitForIt(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, c := range map[string]struct {
		free   int
		change func(l *loop)
		want   bool
	}{
		"all was offered":         {free: 10, change: func(*loop) {}},
		"nobody had any":          {free: 0, change: func(*loop) {}, want: true},
		"nothing was read yet":    {free: 10, change: func(l *loop) { l.lanes = nil }, want: true},
		"jobs were left":          {free: 10, change: func(l *loop) { l.lanes["q"].backlog = true }, want: true},
		"no member took a job":    {free: 10, change: func(l *loop) { l.lanes["q"].waiting = 1 }, want: true},
		"a limit held jobs":       {free: 10, change: func(l *loop) { l.limits.holding = true }, want: true},
		"a limit held the queue":  {free: 10, change: func(l *loop) { l.lanes["q"].heldUntil = now.Add(recountInterval) }, want: true},
		"it held it once, before": {free: 10, change: func(l *loop) { l.lanes["q"].heldUntil = now.Add(-recountInterval) }},
	} {
		l := &loop{
			board:  seated(t, LeastLoaded, []nodestore.Node{node("a", 10)}, map[string]wire.Credit{"a": free(c.free)}),
			limits: newLimits(), lanes: map[string]*lane{"q": {queue: "q", topAt: now}},
		}
		c.change(l)
		if got := l.wantsCredit(); got != c.want {
			t.Errorf("%s: credit is wanted: %t", name, got)
		}
	}
}

func TestInsertsThatNobodyCanWorkCallForNoTurn(t *testing.T) {
	t.Parallel()
	l := &loop{schema: "public", lanes: map[string]*lane{"q": {queue: "q"}}}
	for payload, want := range map[string]bool{
		`{"queue":"q"}`: true, `{"queue":"other"}`: false, `{}`: true, `?`: true,
	} {
		if got := l.take(&pgconn.Notification{Channel: "public.river_insert", Payload: payload}); got != want {
			t.Errorf("%s: calls for a turn: %t", payload, got)
		}
	}
	l.lanes = nil // nothing is known yet
	if !l.take(&pgconn.Notification{Channel: "public.river_insert", Payload: `{"queue":"other"}`}) {
		t.Error("an insert before the first look at the nodes was ignored")
	}
}

func TestSeatKeepsTheSequenceOfAReturningMember(t *testing.T) {
	t.Parallel()
	nodes := []nodestore.Node{node("a", 10)}
	b := seated(t, LeastLoaded, nodes, map[string]wire.Credit{"a": free(10)})
	b.letters(map[*member]jobsByQueue{b.members[0]: {"q": {1}}}, newLimits(), nil, time.Now())
	nodes[0].State = nodestore.Draining
	b.seat(nodes)
	if len(b.members) != 0 {
		t.Fatal("a draining node is seated")
	}
	nodes[0].State = nodestore.Active
	b.seat(nodes)
	if m := b.members[0]; m.seq != 1 || !m.heard.IsZero() || b.room("q") != 0 {
		t.Errorf("returning member: %+v", m)
	}
}

func TestPackFitsThePayload(t *testing.T) {
	t.Parallel()
	jobs := jobsByQueue{}
	total := 0
	for q := range 40 {
		queue := fmt.Sprintf("%0127d", q)
		for i := range 60 {
			jobs[queue] = append(jobs[queue], 9_000_000_000_000_000_000+int64(i))
			total++
		}
	}
	for i := range 1500 {
		jobs["short"] = append(jobs["short"], int64(i))
		total++
	}
	got := 0
	for _, part := range pack(jobs) {
		ids := 0
		for _, list := range part {
			ids += len(list)
		}
		payload := wire.Marshal(wire.Offer{Term: 1 << 62, Seq: 1 << 62, Jobs: part})
		if len(payload) >= 8000 || ids > wire.MaxOfferIDs {
			t.Errorf("an offer of %d bytes and %d ids", len(payload), ids)
		}
		got += ids
	}
	if got != total {
		t.Errorf("packed %d of %d jobs", got, total)
	}
}

func TestLane(t *testing.T) {
	t.Parallel()
	start := time.Now()
	at := func(id int64) position { return position{priority: 1, id: id} }
	l := &lane{queue: "q"}
	if plan := l.scans(start, 0, 0, topInterval); plan != nil {
		t.Errorf("a queue without credit is read: %+v", plan)
	}
	plan := l.scans(start, 10, 0, topInterval)
	if len(plan) != 1 || plan[0].after != (position{}) || plan[0].limit != minPage {
		t.Fatalf("first plan: %+v", plan)
	}
	page := plan[0]
	page.read, page.last, page.unplaced = page.limit, at(100), 100
	l.done(page)
	plan = l.scans(start.Add(time.Millisecond), 10, 0, topInterval)
	if len(plan) != 1 || plan[0].after != at(100) {
		t.Fatalf("after a full page: %+v", plan)
	}
	plan = l.scans(start.Add(topInterval), 10, 0, topInterval)
	if len(plan) != 2 || plan[0].after != at(100) || !plan[1].again {
		t.Fatalf("when the top is due again: %+v", plan)
	}
	page = plan[0]
	page.read, page.last, page.unplaced, page.stopped = 30, at(120), 20, true
	l.done(page)
	if l.deep != at(120) || !l.backlog {
		t.Errorf("after credit ran out: %+v", l)
	}
	page = l.scans(start, 10, 0, topInterval)[0]
	page.read, page.unplaced = 5, 5
	l.done(page)
	if diff := cmp.Diff([]int{125, 0}, []int{l.waiting, l.counting}); l.backlog || l.deep != (position{}) || diff != "" {
		t.Errorf("after the whole pass: %+v", l)
	}
}
