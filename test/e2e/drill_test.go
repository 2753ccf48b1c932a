package e2e

import (
	"strings"
	"testing"
)

// A drill replaces the leader, says how long that took, and stands in the event log and
// in the history of leaders.
func TestDrillMeasuresAHandOver(t *testing.T) {
	t.Parallel()
	c := newCluster(t, everySecond+unhurried)
	c.start("a")
	id, term := c.leader(0)
	c.demand(4, "no other node can lead", "drill", "leader", "scheduler")
	c.demand(2, "want [leader] ROLE", "drill", "leader", "scheduler", "now")
	c.demand(4, `no role "schedule"`, "drill", "schedule")
	c.start("b")
	c.awaitTicks(term)

	out, errs, code := c.forge("drill", "leader", "scheduler", "-o", "json")
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	t.Log(out)
	got := decode[struct {
		From      string  `json:"from"`
		To        string  `json:"to"`
		FromTerm  int64   `json:"from_term"`
		ToTerm    int64   `json:"to_term"`
		StoppedMS float64 `json:"stopped_ms"`
		GapMS     float64 `json:"gap_ms"`
		TookMS    float64 `json:"took_ms"`
		EndReason string  `json:"end_reason"`
	}](t, out)
	if got.From != id || got.To == id || got.FromTerm != term || got.ToTerm <= term || got.EndReason != "stepped_down" {
		t.Errorf("measured %+v", got)
	}
	if got.StoppedMS <= 0 || got.GapMS < 0 || got.TookMS < got.StoppedMS+got.GapMS-0.01 {
		t.Errorf("times do not add up: %+v", got)
	}
	if n := c.number(`SELECT count(*) FROM forge_events
		WHERE type = 'leader_drilled' AND role = 'scheduler' AND term = $1 AND (data ->> 'took_ms')::float8 > 0 AND data ? 'by'`, term); n != 1 {
		t.Errorf("%d events tell of it", n)
	}
	history, _, _ := c.forge("leader", "history", "--role", "scheduler")
	if strings.Count(history, "stepped_down (drill)") != 1 {
		t.Errorf("the history does not mark the tenure, or marks others:\n%s", history)
	}
	if table, errs, code := c.forge("drill", "scheduler"); code != 0 || !strings.Contains(table, "\ngap ") {
		t.Errorf("the table: exit %d\n%s%s", code, table, errs)
	}
	if _, page, _ := get(c.nodes["a"].listen(), "/"); !strings.Contains(string(page), "(drill)") {
		t.Error("the page does not mark it")
	}
	c.awaitTicks(got.ToTerm + 1)
	c.settle()
	c.demandEveryTickOnce("second")
}
