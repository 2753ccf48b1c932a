package doctor

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/nodestore"
)

func TestExecutorNamesTheKindsOfRiver(t *testing.T) {
	t.Parallel()
	added := map[string]string{"report": "it was added with river.AddWorker"}
	facts := Facts{Config: &config.Config{Cluster: config.Cluster{DeadThreshold: 1}}, Cluster: &Cluster{Nodes: []nodestore.Node{
		{NodeID: "a", State: nodestore.Active, RiverKinds: added},
		{NodeID: "b", State: nodestore.Active, RiverKinds: added},
		{NodeID: "c", State: nodestore.Active},
		{NodeID: "d", State: nodestore.Left, RiverKinds: map[string]string{"gone": "x"}},
	}}}
	r := report{check: "executor"}
	checkExecutor(facts, &r)
	want := []Finding{{Check: "executor", Status: OK, Detail: "River's client runs the jobs of report (it was added with river.AddWorker) on a, b"}}
	if diff := cmp.Diff(want, r.findings); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
