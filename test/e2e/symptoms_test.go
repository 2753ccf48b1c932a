package e2e

import (
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/pgtest"
)

// A role that changes hands often is reported with the reason for the end of its terms.
func TestDoctorReportsFrequentFailovers(t *testing.T) {
	t.Parallel()
	c := newCluster(t, everySecond+unhurried)
	c.startAll("a", "b")
	_, term := c.leader(0)
	for range 6 {
		c.must("leader", "step-down", "scheduler")
		_, term = c.leader(term)
	}
	found, _, _ := c.doctor()
	if !found.has("failovers", "warn", "scheduler lost its leader 6 times", "6 stepped down", "forge leader history --role scheduler") {
		t.Errorf("failovers are not reported: %+v", found)
	}
}

// The clock of the database's machine is an hour ahead, and then set back.
func TestDoctorReportsClocks(t *testing.T) {
	t.Parallel()
	server, clock := pgtest.ServerWithClock(t)
	if err := clock.Set(time.Hour); err != nil {
		t.Fatal(err)
	}
	c := clusterOn(t, server.URL(), everySecond+unhurried)
	c.start("a")
	_, term := c.leader(0)
	c.awaitTicks(term)
	reports := func(status string, says ...string) {
		t.Helper()
		eventually(t, "the doctor reports the clocks", func() bool {
			found, _, _ := c.doctor()
			return found.has("clock", status, says...)
		})
	}
	reports("fail", "node a", "behind")
	if err := clock.Set(0); err != nil {
		t.Fatal(err)
	}
	reports("warn", "database's clock was set back by")
}
