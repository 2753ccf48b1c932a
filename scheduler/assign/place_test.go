package assign

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/wire"
)

// newReportedTable returns a table in which every node has reported its credit.
func newReportedTable(t *testing.T, strategy string, nodes []nodestore.Node, free map[string]wire.Credit) *nodeTable {
	t.Helper()
	b := newNodeTable(1, strategy)
	for i := range nodes {
		nodes[i].State = nodestore.Active
		nodes[i].Incarnation = "inc-" + nodes[i].NodeID
	}
	b.setNodes(nodes)
	for id, credit := range free {
		credit.Incarnation, credit.Term = "inc-"+id, 1
		if !b.recordCredit(credit, time.Now()) {
			t.Fatalf("credit of %s rejected", id)
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

func TestPickChoosesSuitableMember(t *testing.T) {
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
			name: "no member has the kind", job: job{kind: "other", queue: "q"},
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
			name: "no free slots", job: job{kind: "k", queue: "q"},
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
			name: "the same node if there is no other", job: job{kind: "k", queue: "q"}, avoid: "inc-a",
			nodes: []nodestore.Node{node("a", 10)}, free: map[string]wire.Credit{"a": free(10)}, want: "a", credit: true,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := newReportedTable(t, LeastLoaded, test.nodes, test.free)
			got, credit, _ := pick(test.job, b.members, b.strategy, test.avoid, noLimit)
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

// Jobs spread over the nodes in proportion to their slots, and evenly among equals.
func TestPickBalancesLoad(t *testing.T) {
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
			b := newReportedTable(t, test.strategy, nodes, credit)
			got := map[string]int{}
			j := job{kind: "k", queue: "q"}
			for range test.jobs {
				if m, _, _ := pick(j, b.members, b.strategy, "", noLimit); m != nil {
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

// The table subtracts the offers that a report does not account for yet.
func TestNodeTableSubtractsPendingOffers(t *testing.T) {
	t.Parallel()
	b := newReportedTable(t, LeastLoaded, []nodestore.Node{node("a", 10)}, map[string]wire.Credit{"a": free(10)})
	m, start := b.members[0], time.Now()
	for range 3 {
		b.addressOffers(map[*member]jobsByQueue{m: {"q": {1, 2}}}, newLimits(), nil, start)
		b.assign(m, job{kind: "k", queue: "q"})
		b.assign(m, job{kind: "k", queue: "q"})
	}
	report := wire.Credit{Incarnation: "inc-a", Term: 1, Seen: 1, Slots: 8, Free: map[string]int{"q": 8}}
	b.recordCredit(report, start)
	if got := b.room("q"); got != 4 || m.freeSlots != 4 {
		t.Errorf("room with two offers under way = %d of %d slots, want 4", got, m.freeSlots)
	}
	report.Seen, report.Slots, report.Free = 0, 10, map[string]int{"q": 10}
	if b.recordCredit(report, start) {
		t.Error("a report older than the newest was recorded")
	}
	b.expire(start.Add(offerTimeout), offerTimeout)
	if got := b.room("q"); got != 8 {
		t.Errorf("room after the offers expired = %d, want 8", got)
	}
	if requests := b.membersToRequest(start.Add(2*time.Second), false); len(requests) != 1 {
		t.Error("no credit is requested from a member whose offers were lost")
	}
}

// A report of another term does not account for offers of this one.
func TestReportOfAnotherTermCausesCreditRequest(t *testing.T) {
	t.Parallel()
	b := newReportedTable(t, LeastLoaded, []nodestore.Node{node("a", 10)}, nil)
	start := time.Now()
	if offers := b.addressOffers(nil, newLimits(), b.membersToRequest(start, false), start); len(offers) != 1 || offers[0].offer.Jobs != nil {
		t.Fatalf("first offers: %+v", offers)
	}
	if requests := b.membersToRequest(start.Add(creditRequestInterval/2), false); len(requests) != 0 {
		t.Error("credit was requested again too soon")
	}
	b.recordCredit(wire.Credit{Incarnation: "inc-a", Term: 0, Seen: 9, Slots: 10, Free: map[string]int{"q": 10}}, start)
	if got := b.room("q"); got != 0 {
		t.Errorf("room by a report of another term = %d, want 0", got)
	}
	if requests := b.membersToRequest(start.Add(creditRequestInterval/2), false); len(requests) != 1 {
		t.Error("credit is not requested at once")
	}
}

// Credit triggers no step if no job waits for it.
func TestCreditTriggersStepOnlyWhileJobsWait(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, c := range map[string]struct {
		free   int
		change func(l *loop)
		want   bool
	}{
		"all jobs were offered":         {free: 10, change: func(*loop) {}},
		"no member has credit":          {free: 0, change: func(*loop) {}, want: true},
		"nothing was read yet":          {free: 10, change: func(l *loop) { l.queueScans = nil }, want: true},
		"jobs were left":                {free: 10, change: func(l *loop) { l.queueScans["q"].backlog = true }, want: true},
		"no member took a job":          {free: 10, change: func(l *loop) { l.queueScans["q"].waiting = 1 }, want: true},
		"a limit held jobs":             {free: 10, change: func(l *loop) { l.limits.blocking = true }, want: true},
		"a limit held the queue":        {free: 10, change: func(l *loop) { l.queueScans["q"].heldUntil = now.Add(recountInterval) }, want: true},
		"a limit held the queue before": {free: 10, change: func(l *loop) { l.queueScans["q"].heldUntil = now.Add(-recountInterval) }},
	} {
		l := &loop{
			nodes:  newReportedTable(t, LeastLoaded, []nodestore.Node{node("a", 10)}, map[string]wire.Credit{"a": free(c.free)}),
			limits: newLimits(), queueScans: map[string]*queueScan{"q": {queue: "q", topReadAt: now}},
		}
		c.change(l)
		if got := l.wantsCredit(); got != c.want {
			t.Errorf("%s: credit is wanted: %t", name, got)
		}
	}
}

func TestInsertForUnknownQueueTriggersNoStep(t *testing.T) {
	t.Parallel()
	l := &loop{schema: "public", queueScans: map[string]*queueScan{"q": {queue: "q"}}}
	for payload, want := range map[string]bool{
		`{"queue":"q"}`: true, `{"queue":"other"}`: false, `{}`: true, `?`: true,
	} {
		if got := l.handleNotification(&pgconn.Notification{Channel: "public.river_insert", Payload: payload}); got != want {
			t.Errorf("%s: triggers a step: %t", payload, got)
		}
	}
	l.queueScans = nil // before the first read of the nodes
	if !l.handleNotification(&pgconn.Notification{Channel: "public.river_insert", Payload: `{"queue":"other"}`}) {
		t.Error("an insert before the first read of the nodes was ignored")
	}
}

func TestSetNodesKeepsSequenceOfReturningMember(t *testing.T) {
	t.Parallel()
	nodes := []nodestore.Node{node("a", 10)}
	b := newReportedTable(t, LeastLoaded, nodes, map[string]wire.Credit{"a": free(10)})
	b.addressOffers(map[*member]jobsByQueue{b.members[0]: {"q": {1}}}, newLimits(), nil, time.Now())
	nodes[0].State = nodestore.Draining
	b.setNodes(nodes)
	if len(b.members) != 0 {
		t.Fatal("a draining node has slots")
	}
	nodes[0].State = nodestore.Active
	b.setNodes(nodes)
	if m := b.members[0]; m.seq != 1 || !m.reportedAt.IsZero() || b.room("q") != 0 {
		t.Errorf("returning member: %+v", m)
	}
}

func TestPackRespectsPayloadLimit(t *testing.T) {
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
	counted := newLimits()
	counted.version = 1 << 62
	for _, ids := range jobs {
		for _, id := range ids {
			counted.offered[id] = offeredJob{groups: []group{}, row: 1 << 32, locks: slices.Repeat([]int64{-1 << 63}, int(id%4))}
		}
	}
	for _, limits := range []*limits{newLimits(), counted} {
		got := 0
		limits.inForce = map[limitID]jobstore.Limit{{}: {}}
		table := newNodeTable(1<<62, LeastLoaded)
		table.members = []*member{{seq: 1 << 62}}
		for _, addressed := range table.addressOffers(map[*member]jobsByQueue{table.members[0]: jobs}, limits, nil, time.Now()) {
			ids := 0
			for queue, list := range addressed.offer.Jobs {
				ids += len(list)
				if o := addressed.offer; o.Limited && (len(o.Rows[queue]) != len(list) || len(o.Locks[queue]) != len(list)) {
					t.Errorf("%d jobs with %d rows and %d locks", len(list), len(o.Rows[queue]), len(o.Locks[queue]))
				}
			}
			payload := wire.Marshal(addressed.offer)
			if len(payload) >= 8000 || ids > wire.MaxOfferIDs {
				t.Errorf("an offer of %d bytes and %d ids", len(payload), ids)
			}
			got += ids
		}
		if got != total {
			t.Errorf("packed %d of %d jobs", got, total)
		}
	}
}

func TestQueueScan(t *testing.T) {
	t.Parallel()
	start := time.Now()
	at := func(id int64) position { return position{priority: 1, id: id} }
	l := &queueScan{queue: "q"}
	if plan := l.scans(start, 0, 0, topInterval); plan != nil {
		t.Errorf("a queue without credit is read: %+v", plan)
	}
	plan := l.scans(start, 10, 0, topInterval)
	if len(plan) != 1 || plan[0].after != (position{}) || plan[0].limit != minPage {
		t.Fatalf("first plan: %+v", plan)
	}
	page := plan[0]
	page.read, page.last, page.unplaced = page.limit, at(100), 100
	l.advance(page)
	plan = l.scans(start.Add(time.Millisecond), 10, 0, topInterval)
	if len(plan) != 1 || plan[0].after != at(100) {
		t.Fatalf("after a full page: %+v", plan)
	}
	plan = l.scans(start.Add(topInterval), 10, 0, topInterval)
	if len(plan) != 2 || plan[0].after != at(100) || !plan[1].extra {
		t.Fatalf("when the top is due again: %+v", plan)
	}
	page = plan[0]
	page.read, page.last, page.unplaced, page.stopped = 30, at(120), 20, true
	l.advance(page)
	if l.cursor != at(120) || !l.backlog {
		t.Errorf("after credit ran out: %+v", l)
	}
	page = l.scans(start, 10, 0, topInterval)[0]
	page.read, page.unplaced = 5, 5
	l.advance(page)
	if diff := cmp.Diff([]int{125, 0}, []int{l.waiting, l.counting}); l.backlog || l.cursor != (position{}) || diff != "" {
		t.Errorf("after the whole pass: %+v", l)
	}
}

// noLimit is of members without a limit.
func noLimit(*member, job) (refusal, bool) { return refusal{}, false }

// The leader leaves the slots that a queue reserves to its jobs, and counts them as used once
// it has offered such jobs, also between two reports.
func TestReservedSlotsAreLeftToTheirQueue(t *testing.T) {
	t.Parallel()
	queues := map[string]int{"bulk": 5, "urgent": 5}
	table := newReportedTable(t, LeastLoaded, []nodestore.Node{node("a", 5, func(n *nodestore.Node) { n.Queues = queues })},
		map[string]wire.Credit{"a": {Slots: 5, Free: queues, Reserved: map[string]int{"urgent": 3}}})
	m := table.members[0]
	want := func(what string, bulk, urgent int) {
		t.Helper()
		if m.room("bulk") != bulk || m.room("urgent") != urgent {
			t.Errorf("%s: room for %d and %d jobs, want %d and %d", what, m.room("bulk"), m.room("urgent"), bulk, urgent)
		}
	}
	want("idle", 2, 5)
	table.assign(m, job{queue: "urgent"})
	want("with a job of the queue", 2, 4)
	table.assign(m, job{queue: "bulk"})
	table.assign(m, job{queue: "bulk"})
	want("with two of the other", 0, 2)
	m.offers = []sentOffer{{seq: 1, byQueue: map[string]int{"urgent": 4}}}
	m.computeFree()
	want("after offers beyond what is reserved", 1, 1)
}
