package pages

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

// A count that stopped has a plus, and so has each sum with it. The counts of finished jobs stop
// for all queues together, so that a queue may have more of them than were counted.
func TestCountsThatStoppedHaveAPlus(t *testing.T) {
	t.Parallel()
	counts := cluster.CachedValue[[]jobstore.Count]{At: dashboardtest.Epoch, Value: []jobstore.Count{
		{Queue: "a", State: "available", Jobs: 10_000, More: true},
		{Queue: "a", State: "completed", Jobs: 10_000, More: true},
		{Queue: "b", State: "available", Jobs: 7},
		{Queue: "b", State: "running", Jobs: 2},
	}}
	for queue, want := range map[string]map[string]string{
		"":  {"all": "20,009+", "available": "10,007+", "running": "2", "completed": "10,000+", "discarded": "0"},
		"a": {"all": "20,000+", "available": "10,000+", "running": "0", "completed": "10,000+", "discarded": "0"},
		"b": {"all": "9+", "available": "7", "running": "2", "completed": "0+", "discarded": "0"},
	} {
		got := map[string]string{}
		for _, tab := range stateTabs(jobstore.Filter{Queue: queue}, counts) {
			if _, ok := want[tab.Name]; ok {
				got[tab.Name] = tab.Count
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("queue %q (-want +got):\n%s", queue, diff)
		}
	}
	if tiles := jobTiles(counts); tiles[0].Notes[0].Text != "10,000+ completed" || tiles[1].Value != "10,007+" {
		t.Errorf("tiles %+v", tiles)
	}
}
