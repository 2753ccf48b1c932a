package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// limitedJobs write down when they begin and end, and end when they are told to.
// Lines are appended whole, so their order is that of the events.
const limitedJobs = `
[queues.narrow]
%[2]s

[jobs.piece]
kind = "shell"
queue = "narrow"
command = ["sh", "-c", """
echo begin $FORGE_JOB_ID $FORGE_NODE >> %[1]s/journal
until [ -e %[1]s/go$(echo $FORGE_ARGS | tr -dc 0-9) ]; do sleep 0.02; done
echo end $FORGE_JOB_ID $FORGE_NODE >> %[1]s/journal"""]
`

// narrow is a cluster whose leaders run no jobs, so that a job ends when it says
// so.
type narrow struct {
	*cluster

	dir           string
	leads         string
	term          int64
	rounds, kills int
}

func TestGlobalLimitHoldsWhileLeadersDie(t *testing.T) {
	t.Parallel()
	holdsWhileLeadersDie(t, "global_limit = 3")
}

func TestLimitByKeyHoldsWhileLeadersDie(t *testing.T) {
	t.Parallel()
	holdsWhileLeadersDie(t, `limit_per_key = { key = "args.tenant", limit = 3 }`)
}

// holdsWhileLeadersDie tests a limit of three jobs. A leader dies between its offers and their
// claims, and the next one, which cannot know of them, offers other jobs: the limit holds. And
// the places of a node that dies come free.
func holdsWhileLeadersDie(t *testing.T, limit string) {
	t.Helper()
	dir := t.TempDir()
	c := &narrow{cluster: newCluster(t, fmt.Sprintf(limitedJobs, dir, limit)+unhurried), dir: dir}
	for _, id := range []string{"s1", "s2"} {
		c.startProgram(forgeBinary(t), id, "FORGE_NODE_ROLES=scheduler")
	}
	for _, id := range []string{"early", "late"} {
		c.startProgram(forgeBinary(t), id, "FORGE_NODE_ROLES=worker", "FORGE_NODE_WORKER_CAPABILITIES="+id)
	}
	c.leads, c.term = c.leader(0)
	for range 2 {
		c.dieBetweenOfferAndClaim()
	}
	c.stayPaused()
	c.losePlaces()
	if _, worst := c.overlap(); worst != 3 {
		t.Errorf("%d jobs ran at once; the limit is 3", worst)
	}
}

func (c *narrow) dieBetweenOfferAndClaim() {
	c.t.Helper()
	c.rounds++
	c.turn("pause")
	c.add("early", 2)
	claims, err := c.pool.Begin(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = claims.Rollback(c.t.Context()) }()
	if _, err := claims.Exec(c.t.Context(), `SELECT FROM river_job WHERE state = 'available' FOR UPDATE`); err != nil {
		c.t.Fatal(err)
	}
	c.turn("resume")
	eventually(c.t, "a claim to hang", func() bool { return c.hanging() > 0 })
	c.killLeader()
	c.add("late", 1) // they go first
	eventually(c.t, "claims of the new term", func() bool { return c.hanging() > 1 || c.running() > 0 })
	if err := claims.Rollback(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
	eventually(c.t, "all places to be taken", func() bool { return c.hanging() == 0 && c.running() >= 3 })
	c.letGo()
}

// stayPaused sees that a paused queue starts nothing, also under the next leader,
// and that what runs when it is paused goes on.
func (c *narrow) stayPaused() {
	c.t.Helper()
	c.rounds++
	c.add("", 1)
	eventually(c.t, "the places to be taken", func() bool { return c.running() == 3 })
	c.turn("pause")
	c.letGo()
	c.rounds++
	c.add("", 1)
	c.killLeader()
	if _, errs, code := c.forge("job", "enqueue", "piece", "--queue", "default", "--args", `{"round": 1}`); code != 0 {
		c.t.Fatalf("enqueue: %s", errs)
	}
	eventually(c.t, "the new leader to assign what is in another queue", func() bool {
		return c.number(`SELECT count(*) FROM river_job WHERE queue = 'default' AND state = 'completed'`) == 1
	})
	if n := c.number(`SELECT count(*) FROM river_job WHERE queue = 'narrow' AND state = 'available' AND attempt = 0`); n != 3 {
		c.t.Errorf("%d of 3 jobs of the paused queue have not begun", n)
	}
	c.turn("resume")
	eventually(c.t, "the places to be taken", func() bool { return c.running() == 3 })
	c.letGo()
}

// turn pauses the queue, or lets it go on.
func (c *narrow) turn(how string) {
	c.t.Helper()
	if out, errs, code := c.forge("queue", how, "narrow"); code != 0 || !strings.Contains(out, "narrow is "+how+"d") {
		c.t.Fatalf("queue %s: %d %s%s", how, code, out, errs)
	}
}

// killLeader waits for the next leader, and has a new node stand by it.
func (c *narrow) killLeader() {
	c.t.Helper()
	c.signal(c.leads, syscall.SIGKILL)
	c.leads, c.term = c.leader(c.term)
	c.kills++
	c.startProgram(forgeBinary(c.t), fmt.Sprintf("s%d", 2+c.kills), "FORGE_NODE_ROLES=scheduler")
}

// losePlaces kills a node that holds the places.
func (c *narrow) losePlaces() {
	c.t.Helper()
	onLate := func() int64 {
		return c.number(`SELECT count(*) FROM river_job WHERE state = 'running' AND attempted_by[array_upper(attempted_by, 1)] LIKE 'late-%'`)
	}
	c.rounds++
	c.add("late", 1)
	c.add("", 1)
	eventually(c.t, "the node to have all places", func() bool { return c.running() == 3 && onLate() == 3 })
	c.signal("late", syscall.SIGKILL)
	<-c.nodes["late"].done
	note(c.t, filepath.Join(c.dir, "journal"), "gone - late")
	eventually(c.t, "the places to be taken again", func() bool { return c.running() == 3 && onLate() == 0 })
	c.startProgram(forgeBinary(c.t), "heir", "FORGE_NODE_ROLES=worker", "FORGE_NODE_WORKER_CAPABILITIES=late")
	c.letGo()
}

// add enqueues three jobs of this round for the nodes with a capability.
func (c *narrow) add(capability string, priority int) {
	c.t.Helper()
	_, err := c.pool.Exec(c.t.Context(), `
		INSERT INTO river_job (kind, queue, args, priority, metadata)
		SELECT 'piece', 'narrow', jsonb_build_object('round', $1::int, 'tenant', 'acme'), $2, jsonb_strip_nulls(jsonb_build_object('forge:capability', nullif($3, '')))
		FROM generate_series(1, 3)`, c.rounds, priority, capability)
	if err != nil {
		c.t.Fatal(err)
	}
	c.exec(`SELECT pg_notify('public.river_insert', '{"queue": "narrow"}')`)
}

// letGo ends the jobs of this round, once as many as may run have said that they do,
// and waits for it. A job is running before its command is.
func (c *narrow) letGo() {
	c.t.Helper()
	eventually(c.t, "the jobs that run to have begun", func() bool {
		now, _ := c.overlap()
		return now >= 3
	})
	if err := os.WriteFile(filepath.Join(c.dir, fmt.Sprintf("go%d", c.rounds)), nil, 0o600); err != nil {
		c.t.Fatal(err)
	}
	eventually(c.t, "all jobs are done", func() bool {
		return c.number(`SELECT count(*) FROM river_job WHERE state <> 'completed'`) == 0
	})
}

func (c *narrow) running() int64 {
	c.t.Helper()
	return c.number(`SELECT count(*) FROM river_job WHERE state = 'running'`)
}

// hanging counts the nodes' claims that wait for a row or for the lock of a limit.
func (c *narrow) hanging() int64 {
	c.t.Helper()
	return c.number(`SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND (wait_event IN ('transactionid', 'tuple') OR wait_event = 'advisory' AND query LIKE '%forge limit%') AND application_name LIKE 'forge:%'`)
}

// note appends a line as the jobs do.
func note(t *testing.T, journal, line string) {
	t.Helper()
	file, err := os.OpenFile(journal, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = fmt.Fprintln(file, line)
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// overlap reads in the journal how many jobs run, and how many ran at once at most.
// What a node ran has ended when the node was gone, also what wrote its first line in
// its last moment.
func (c *narrow) overlap() (now, worst int) {
	c.t.Helper()
	body, err := os.ReadFile(filepath.Join(c.dir, "journal"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // nobody has written yet
		c.t.Fatal(err)
	}
	running, gone := map[string]string{}, map[string]bool{}
	for line := range strings.Lines(string(body)) {
		words := strings.Fields(line)
		if !strings.HasSuffix(line, "\n") {
			break // it is being written
		}
		switch what, job, node := words[0], words[1], words[2]; {
		case what == "gone":
			gone[node] = true
			maps.DeleteFunc(running, func(_, on string) bool { return on == node })
		case what == "begin" && !gone[node]:
			running[job] = node
		case running[job] == node:
			delete(running, job)
		}
		worst = max(worst, len(running))
	}
	return len(running), worst
}
