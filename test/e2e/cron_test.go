package e2e

import (
	"strings"
	"testing"
	"time"
)

// must runs a command that has to succeed and returns what it printed.
func (c *cluster) must(args ...string) string {
	c.t.Helper()
	stdout, stderr, code := c.forge(args...)
	if code != 0 {
		c.t.Fatalf("forge %v: exit %d %s", args, code, stderr)
	}
	return stdout
}

// refused runs a command that has to fail with a code and returns what it said.
func (c *cluster) refused(code int, args ...string) string {
	c.t.Helper()
	stdout, stderr, got := c.forge(args...)
	if got != code {
		c.t.Fatalf("forge %v: exit %d, want %d: %s%s", args, got, code, stdout, stderr)
	}
	return stderr
}

func (c *cluster) instant(sql string, args ...any) time.Time {
	c.t.Helper()
	var at time.Time
	if err := c.pool.QueryRow(c.t.Context(), sql, args...).Scan(&at); err != nil {
		c.t.Fatalf("%s: %v", sql, err)
	}
	return at.UTC()
}

func TestWhyATickRan(t *testing.T) {
	t.Parallel()
	c := newCluster(t, everySecond)
	c.start("a")
	eventually(t, 20*time.Second, "a run is done", func() bool {
		return c.number(`SELECT count(*) FROM forge_cron_ticks t JOIN river_job j ON j.id = t.job_id WHERE j.state = 'completed'`) > 0
	})
	tick := c.instant(`SELECT t.tick FROM forge_cron_ticks t JOIN river_job j ON j.id = t.job_id WHERE j.state = 'completed' LIMIT 1`)
	said := c.must("cron", "why", "second", tick.Format(time.RFC3339))
	for _, part := range []string{"recorded as fired", "is completed; by node a in term 1", " late."} {
		if !strings.Contains(said, part) {
			t.Errorf("no %q in %q", part, said)
		}
	}
	why := decode[struct {
		Standing string
		JobState string `json:"job_state"`
		Row      struct{ Verdict string }
	}](t, c.must("cron", "why", "second", tick.Format(time.RFC3339), "-o", "json"))
	if why.Standing != "recorded" || why.JobState != "completed" || why.Row.Verdict != "fired" {
		t.Errorf("%+v", why)
	}
	if said := c.refused(4, "cron", "why", "second", tick.Add(500*time.Millisecond).Format(time.RFC3339Nano)); !strings.Contains(said,
		"the nearest due ticks are "+tick.Format(time.RFC3339)+" and "+tick.Add(time.Second).Format(time.RFC3339)) {
		t.Error(said)
	}
	c.refused(4, "cron", "why", "second", "2099-01-01T00:00:00Z")
	c.refused(4, "cron", "why", "second", "2020-01-01T00:00:00Z")
	c.refused(4, "cron", "why", "nobody", "2020-01-01T00:00:00Z")
	c.refused(2, "cron", "why", "second", "yesterday")
}
