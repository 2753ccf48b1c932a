package e2e

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
)

// The command's parent is the shim, and the shim's is the node. Only a process that was
// started as the node that runs the job is killed, when it has sent heartbeats for more than a
// second.
const killsItsNode = `
[jobs.poison]
kind = "shell"
command = ["sh", "-c", '''
    sleep 1.5
    node=$(cut -d " " -f 4 /proc/$PPID/stat)
    tr "\0" " " < /proc/$node/cmdline | grep -q -- "serve .*--node-id $FORGE_NODE " && kill -9 $node
    sleep 60
''']
retry = { max_attempts = 3 }

[jobs.harmless]
kind = "shell"
command = ["true"]
`

// A job that kills each node that runs it uses up its attempts and becomes a dead letter
// that names the nodes and how each was lost. The nodes come back and run other jobs.
func TestJobThatKillsItsNodesBecomesADeadLetter(t *testing.T) {
	t.Parallel()
	c := newCluster(t, killsItsNode)
	c.startAll("a", "b", "c")
	c.leader(0)
	began := time.Now()
	id := c.enqueue("poison")
	var killed []string
	counted := map[*process]bool{}
	eventually(t, "job "+id+" is discarded", func() bool {
		for node, p := range c.nodes {
			select {
			case <-p.done:
			default:
				continue
			}
			if p.EndedBy() == syscall.SIGKILL && !counted[p] {
				counted[p] = true
				killed = append(killed, node)
			}
			// Until another node has the job, this one could get it again.
			if c.node(node).State == nodestore.Dead && c.number(`SELECT count(*) FROM river_job
				WHERE id = $1::text::bigint AND state IN ('running', 'discarded') AND attempted_by[array_upper(attempted_by, 1)] NOT LIKE $2 || '-%'`, id, node) == 1 {
				c.launchNode(forgeBinary(t), node)
			}
		}
		return c.number(`SELECT count(*) FROM river_job WHERE id = $1::text::bigint AND state = 'discarded'`, id) == 1
	})
	keepsPromise(t, "jobs of a crashed node", time.Since(began)/3-1500*time.Millisecond)

	job := decode[jobstore.Job](t, c.must("job", "show", id, "-o", "json"))
	var lost, how []string
	for _, attempt := range job.Attempts {
		if attempt.Outcome != jobstore.OutcomeLost || !strings.HasPrefix(attempt.Error, "node lost: ") {
			t.Errorf("attempt %d: %s, %q", attempt.Attempt, attempt.Outcome, attempt.Error)
		}
		lost, how = append(lost, attempt.NodeID), append(how, attempt.Error)
	}
	if len(killed) != 3 || !slices.Equal(lost, killed) || killed[0] == killed[1] || killed[1] == killed[2] {
		t.Errorf("forge job show names %v; %v were killed", lost, killed)
	}
	letters := decode[[]jobstore.DeadLetter](t, c.must("dead", "list", "--jobs", "-o", "json"))
	if len(letters) != 1 || len(letters[0].Lost) != len(lost) {
		t.Fatalf("dead letters: %+v", letters)
	}
	wide := c.must("dead", "list", "--jobs", "-o", "wide")
	for i, attempt := range letters[0].Lost {
		if attempt.Attempt != i+1 || attempt.NodeID != lost[i] || attempt.Error != how[i] || !strings.Contains(wide, "on "+lost[i]+": "+how[i]) {
			t.Errorf("lost attempt %d of the dead letter: %+v; want %s, %q, also in\n%s", i+1, attempt, lost[i], how[i], wide)
		}
	}

	for node, p := range c.nodes {
		select {
		case <-p.done:
			p = c.launchNode(forgeBinary(t), node)
		default:
		}
		p.AwaitReady(t, p.output)
	}
	c.awaitState(c.enqueue("harmless"), "completed")
	c.stopAll()
}
