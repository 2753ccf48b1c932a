package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/forge-scheduler/forge/internal/eventstore"
)

// The event log has every change of the leadership, the nodes and the cluster's
// health once, and in its order; whoever follows it misses none.
func TestEventLogHasEveryChange(t *testing.T) {
	t.Parallel()
	c := newCluster(t, unhurried)
	follow := launch(t, []string{"FORGE_DATABASE_URL=" + c.url}, "events", "--follow", "-o", "json")
	c.startAll("a", "b")
	id, term := c.leader(0)
	c.tells(`SELECT count(*) FROM forge_events WHERE type = 'leader_elected'`, 3)
	c.signal(id, syscall.SIGKILL)
	_, term = c.leader(term)
	c.tells(`SELECT count(*) FROM forge_events WHERE type = 'cluster_degraded'`, 1)
	<-c.nodes[id].done
	c.start(id)
	c.tells(`SELECT count(*) FROM forge_events WHERE type = 'cluster_recovered'`, 1)
	c.signal(other(id), syscall.SIGTERM)
	c.leader(term)
	c.awaitExit(other(id))
	c.tells(`SELECT count(*) FROM forge_events WHERE type = 'node_left'`, 1)

	dead, left := id, other(id)
	for subject, want := range map[string][]string{
		"scheduler": {
			"election_started " + dead, "leader_elected " + dead, "leader_lost " + dead + " crashed",
			"election_started " + left, "leader_elected " + left, "leader_lost " + left + " resigned",
			"election_started " + dead, "leader_elected " + dead,
		},
		dead: {"node_joined", "node_dead", "node_joined"},
		left: {"node_joined", "node_left"},
		"cluster": {
			"cluster_degraded node " + dead + " is dead", "cluster_recovered",
		},
	} {
		if told := c.told(subject); !slices.Equal(told, want) {
			t.Errorf("told of %s: %q; want %q", subject, told, want)
		}
	}
	c.wantFollowed(follow)
}

func (c *cluster) tells(sql string, want int64) {
	c.t.Helper()
	eventually(c.t, fmt.Sprintf("%s: %d", sql, want), func() bool { return c.number(sql) == want })
}

func (c *cluster) eventLog(args ...string) []eventstore.Event {
	c.t.Helper()
	out, errs, code := c.forge(append([]string{"events", "-n", "1000", "-o", "json"}, args...)...)
	if code != 0 {
		c.t.Fatalf("forge events %v: exit %d: %s", args, code, errs)
	}
	return decode[[]eventstore.Event](c.t, out)
}

// told puts the event log of a role, a node or the cluster into words.
func (c *cluster) told(subject string) []string {
	c.t.Helper()
	var told []string
	for _, event := range slices.Backward(c.eventLog()) {
		var data struct {
			Reason string
			Causes []string
		}
		if err := json.Unmarshal(event.Data, &data); err != nil {
			c.t.Fatal(err)
		}
		words := event.Type
		switch {
		case event.Role == subject:
			words += " " + event.NodeID
		case strings.HasPrefix(event.Type, "node_") && event.NodeID == subject:
		case strings.HasPrefix(event.Type, subject+"_"):
		default:
			continue
		}
		told = append(told, strings.TrimSpace(words+" "+data.Reason+strings.Join(data.Causes, ", ")))
	}
	return told
}

// wantFollowed compares what a follower was told with the event log.
func (c *cluster) wantFollowed(follow *process) {
	c.t.Helper()
	eventually(c.t, "the follower is told of every event once", func() bool {
		var want, got []int64
		for _, event := range slices.Backward(c.eventLog()) {
			want = append(want, event.ID)
		}
		for line := range strings.Lines(follow.output.String()) {
			var event eventstore.Event
			if json.Unmarshal([]byte(line), &event) != nil {
				return false
			}
			got = append(got, event.ID)
		}
		slices.Sort(got)
		return slices.Equal(got, want)
	})
	if lost := c.eventLog("--type", "leader_lost", "--type", "node_dead,node_left"); len(lost) < 4 ||
		slices.ContainsFunc(lost, func(e eventstore.Event) bool { return e.Type == "leader_elected" }) {
		c.t.Errorf("chosen by type: %+v", lost)
	}
	for _, args := range [][]string{{}, {"--follow"}, {"--type", "leader_lost"}} {
		if _, errs, code := c.forge(append([]string{"events", "--type", "leader_lots"}, args...)...); code != 2 || !strings.Contains(errs, "leader_lost") {
			c.t.Errorf("an unknown type, %v: exit %d: %s", args, code, errs)
		}
	}
	if _, errs, code := c.forge("events", "--type", "config_rejected"); code != 0 {
		c.t.Errorf("a type of which nothing has happened: exit %d: %s", code, errs)
	}
	if out, _, code := c.forge("events", "--type", "cluster_degraded"); code != 0 || !strings.Contains(out, "is dead") {
		c.t.Errorf("exit %d: %s", code, out)
	}
}
