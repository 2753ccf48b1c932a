package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// piece is the jobs of a burst: what does them is the test's own process, which
// sees each begin and end.
const piece = `
[node]
slots = 20
[cluster]
dead_threshold = "20s" # no slow machine makes a living node a dead one
[http]
allow_private_targets = true
[jobs.piece]
kind = "http"
url = "%s"
timeout = "10m"
`

// atOnce is how many jobs a kill of the leader finds still to be done, at least.
const atOnce = 300

// The leader, which runs jobs as well as it assigns them, dies in the middle of a
// burst, again and again: each job is done, by one node at a time, and only what
// a dead node had begun runs twice.
func TestLeadersKilledInABurstLoseAndDoubleNoJob(t *testing.T) {
	t.Parallel()
	floor := newFloor()
	server := httptest.NewServer(floor)
	t.Cleanup(server.Close)
	t.Cleanup(func() { floor.open(kills * atOnce * 2) }) // the server waits for what it answers
	c := newCluster(t, unhurried+fmt.Sprintf(piece, server.URL))
	for i := range 3 {
		c.start(fmt.Sprint("n", i))
	}
	id, term := c.leader(0)
	c.exec(fmt.Sprintf(`INSERT INTO river_job (kind, args, max_attempts)
		SELECT 'piece', jsonb_build_object('number', n), 25 FROM generate_series(1, %d) AS n`, (kills+1)*atOnce))
	c.exec(`SELECT pg_notify('public.river_insert', '{"queue": "default"}')`)
	for round := range kills {
		floor.open((round + 1) * atOnce)
		eventually(t, "the burst to be under way, on the leader too", func() bool {
			return floor.busy(round*atOnce+atOnce/3, id)
		})
		floor.willDie(id)
		c.signal(id, syscall.SIGKILL)
		<-c.nodes[id].done
		delete(c.nodes, id)
		id, term = c.leader(term)
		c.start(fmt.Sprint("n", 3+round))
	}
	floor.open((kills + 1) * atOnce * 2)
	eventually(t, "every job is completed", func() bool {
		return c.number(`SELECT count(*) FROM river_job WHERE state = 'completed'`) == (kills+1)*atOnce
	})
	c.stopAll()
	floor.judge(t, (kills+1)*atOnce)
	if n := c.number(`SELECT count(*) FROM forge_leader_history WHERE role = 'scheduler' AND end_reason = 'crashed'`); n != kills {
		t.Errorf("%d tenures ended as crashed; want %d", n, kills)
	}
}

// floor is where the jobs of a burst run. It lets as many end as it is told.
type floor struct {
	mu      sync.Mutex
	changed *sync.Cond
	room    int
	ended   int
	running map[string]int    // how many run on each node
	begun   map[string]string // the node that began each job last
	dead    map[string]bool
	faults  []string
}

func newFloor() *floor {
	f := &floor{running: map[string]int{}, begun: map[string]string{}, dead: map[string]bool{}}
	f.changed = sync.NewCond(&f.mu)
	return f
}

// ServeHTTP is one run of a job.
func (f *floor) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	job, node := r.Header.Get("Forge-Job-Id"), r.Header.Get("Forge-Node")
	defer context.AfterFunc(r.Context(), func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.changed.Broadcast()
	})()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.begin(job, node)
	f.running[node]++
	for f.ended >= f.room && r.Context().Err() == nil {
		f.changed.Wait()
	}
	f.running[node]--
	f.ended++
}

// begin notes a job that has begun though a living node had begun it before. What
// a node begins in its last moment may come to its end, and may be heard of after
// another node has begun it again.
func (f *floor) begin(job, node string) {
	before, again := f.begun[job]
	if f.dead[node] && again {
		return
	}
	if again && !f.dead[before] {
		f.faults = append(f.faults, fmt.Sprintf("%s began job %s, which %s had begun", node, job, before))
	}
	f.begun[job] = node
}

func (f *floor) open(room int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.room = room
	f.changed.Broadcast()
}

// busy tells whether more than some jobs have ended, and one runs on a node.
func (f *floor) busy(some int, node string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ended > some && f.running[node] > 0
}

// willDie says that a node is about to die.
func (f *floor) willDie(node string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dead[node] = true
}

// judge demands that every job has begun, and none twice for want of a death.
func (f *floor) judge(t *testing.T, jobs int) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.begun) != jobs {
		t.Errorf("%d jobs ran; want %d", len(f.begun), jobs)
	}
	if len(f.faults) > 0 {
		t.Errorf("%d jobs ran twice on living nodes:\n%s", len(f.faults), strings.Join(f.faults[:min(len(f.faults), 10)], "\n"))
	}
}
