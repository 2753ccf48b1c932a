package e2e

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/test/parts"
)

// A leader whose packets are lost hears nothing of its end: no connection
// breaks. It has to stop by itself before the server lets another one lead, and
// when it is heard again it may not do anything twice.
func TestPartitionedLeaderStopsBeforeTheNextBegins(t *testing.T) {
	t.Parallel()
	for name, partition := range map[string]func(*parts.Namespace, context.Context) error{
		"every packet is lost": (*parts.Namespace).Drop,
		"replies are lost":     (*parts.Namespace).DropReplies,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testPartition(t, partition)
		})
	}
}

func testPartition(t *testing.T, partition func(*parts.Namespace, context.Context) error) {
	t.Helper()
	namespace := pgtest.Namespace(t)
	c := clusterOn(t, pgtest.Server(t, namespace).URL(), everySecond+patient)
	cutOff := c.startInside(namespace, "a")
	_, term := c.leader(0)
	c.startAll("b", "c")
	c.awaitTicks(term)
	began := time.Now()
	if err := partition(namespace, t.Context()); err != nil {
		t.Fatal(err)
	}
	id, next := c.leader(term)
	stopped := c.awaitLoss(cutOff)
	var acquired time.Time
	if err := c.pool.QueryRow(t.Context(), `SELECT acquired_at FROM forge_leader_history
		WHERE role = 'scheduler' AND term = $1`, next).Scan(&acquired); err != nil {
		t.Fatal(err)
	}
	t.Logf("the new leader began %v after the old one had stopped", acquired.Sub(stopped))
	keepsLease(t, "partition", acquired.Sub(began), patientLease)
	if id == "a" || !stopped.Before(acquired) {
		t.Errorf("%s leads since %v; the node cut off stopped at %v", id, acquired, stopped)
	}
	eventually(t, "the node cut off is taken for dead", func() bool {
		return c.number(`SELECT count(*) FROM forge_nodes WHERE node_id = 'a' AND state = 'dead' AND fenced_at IS NOT NULL`) == 1
	})
	if err := namespace.Heal(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it has joined again", func() bool {
		return c.number(`SELECT count(*) FROM forge_nodes WHERE node_id = 'a' AND state = 'active' AND fenced_at IS NULL`) == 1
	})
	if n := c.number(`SELECT count(*) FROM forge_cron_ticks WHERE term = $1 AND recorded_at > $2`, term, acquired); n != 0 {
		t.Errorf("the node cut off recorded %d ticks after its successor began", n)
	}
	c.settle()
	c.demandEveryTickOnce("second")
}

// startInside runs a node in a namespace and waits until it has joined.
func (c *cluster) startInside(namespace *parts.Namespace, id string) *process {
	c.t.Helper()
	url, err := namespace.Through(c.url)
	if err != nil {
		c.t.Fatal(err)
	}
	line := namespace.Inside(forgeBinary(c.t), "serve", "--config", c.config, "--node-id", id, "--listen", "127.0.0.1:8080",
		"--log-format", "json")
	p := launchProgram(c.t, line[0], []string{"FORGE_DATABASE_URL=" + url}, line[1:]...)
	c.nodes[id] = p
	eventually(c.t, id+" has joined", func() bool {
		select {
		case <-p.done:
			c.t.Fatalf("%s ended: %v\n%s", id, p.Err(), p.output)
		default:
		}
		return c.number(`SELECT count(*) FROM forge_nodes WHERE node_id = $1 AND state = 'active'`, id) == 1
	})
	return p
}

// awaitLoss reads in a node's log when it stopped leading.
func (c *cluster) awaitLoss(p *process) time.Time {
	c.t.Helper()
	var lost time.Time
	eventually(c.t, "the old leader stops", func() bool {
		for line := range strings.Lines(p.output.String()) {
			var entry struct {
				Time time.Time `json:"time"`
				Msg  string    `json:"msg"`
				Role string    `json:"role"`
			}
			if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == "lost leadership" && entry.Role == "scheduler" {
				lost = entry.Time
			}
		}
		return !lost.IsZero()
	})
	return lost
}
