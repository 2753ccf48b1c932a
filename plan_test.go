package forge

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
)

// A limit per node counts the active nodes that work the queue or kind, or all active nodes.
func TestClientsOfLimitPerNode(t *testing.T) {
	t.Parallel()
	nodes := []nodestore.Node{
		{NodeID: "a", Incarnation: "1", State: nodestore.Active, Queues: map[string]int{"mail": 4, "default": 4}, Kinds: []string{"send"}},
		{NodeID: "b", Incarnation: "2", State: nodestore.Active, Queues: map[string]int{"default": 4}, Kinds: []string{"send", "scan"}},
		{NodeID: "c", Incarnation: "3", State: nodestore.Draining, Queues: map[string]int{"mail": 4}, Kinds: []string{"send"}},
	}
	for _, test := range []struct {
		limit jobstore.Limit
		nodes []nodestore.Node
		want  []string
	}{
		{jobstore.Limit{Scope: jobstore.ScopeQueue, Name: "mail"}, nodes, []string{"a-1"}},
		{jobstore.Limit{Scope: jobstore.ScopeJob, Name: "send"}, nodes, []string{"a-1", "b-2"}},
		{jobstore.Limit{Scope: jobstore.ScopeQueue, Name: "new"}, nodes, []string{"a-1", "b-2"}},
		{jobstore.Limit{Scope: jobstore.ScopeQueue, Name: "mail"}, nodes[2:], []string{""}},
	} {
		if diff := cmp.Diff(test.want, clientsOf(test.nodes, test.limit)); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", test.limit.Scope, test.limit.Name, diff)
		}
	}
}
