package dashboard

import (
	"regexp"
	"testing"

	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/internal/nodestore"
)

// shownNode matches a node on a page, with its colour and its id.
var shownNode = regexp.MustCompile(`<(?:a|span) class="node (n[0-9]+)"[^>]*><i></i>([^<]+)</`)

// Every page shows a node in the same colour, whichever other nodes there are.
func TestPagesAgreeOnColoursOfNodes(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	h := handlerOf(c)
	colors := map[string]string{}
	check := func(when string) {
		for _, path := range []string{"/", "/nodes", "/leaders", "/jobs", "/jobs/42", "/crons/backup"} {
			found := shownNode.FindAllStringSubmatch(get(t, h, path).Body.String(), -1)
			if len(found) == 0 {
				t.Errorf("%s shows no node", path)
			}
			for _, node := range found {
				if known, ok := colors[node[2]]; ok && known != node[1] {
					t.Errorf("%s, %s: %s has the colour %s, before %s", when, path, node[2], node[1], known)
				}
				colors[node[2]] = node[1]
			}
		}
	}
	check("at first")
	for _, id := range []string{"a", "node-0", "node-11", "z"} {
		c.Change(func(c *dashboardtest.Cluster) {
			joined := c.Nodes[0]
			joined.NodeID = id
			c.Nodes = append([]nodestore.Node{joined}, c.Nodes...)
		})
		check("after " + id + " has joined")
	}
	if len(colors) < 6 {
		t.Errorf("the pages show only the nodes %v", colors)
	}
}
