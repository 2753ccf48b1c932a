package pages

import (
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

func TestOutputKeepsItsEnd(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	c.Logs = nil
	for seq := range 10 {
		c.Logs = append(c.Logs, jobstore.LogChunk{Attempt: 1, Seq: seq + 1, Chunk: strings.Repeat("x", maxOutput/4)})
	}
	var o output
	if err := o.update(t.Context(), dashboardtest.Jobs{Cluster: c}, 42, 1, ""); err != nil {
		t.Fatal(err)
	}
	if !o.Cut || o.size > maxOutput || o.seq != 10 || o.chunks[len(o.chunks)-1].Seq != 10 {
		t.Errorf("cut %v, %d bytes, up to %d", o.Cut, o.size, o.seq)
	}
	reads := c.ReadCount()
	c.Logs = append(c.Logs, jobstore.LogChunk{Attempt: 1, Seq: 11, Chunk: "new"})
	if err := o.update(t.Context(), dashboardtest.Jobs{Cluster: c}, 42, 1, ""); err != nil || o.seq != 11 || c.ReadCount() != reads+2 {
		t.Errorf("up to %d after %d readings: %v", o.seq, c.ReadCount()-reads, err)
	}
}
