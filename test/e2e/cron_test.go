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
	c := newCluster(t, everySecond+unhurried)
	c.start("a")
	eventually(t, "a run is done", func() bool {
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

func TestCronsAreHeldAndTriggered(t *testing.T) {
	t.Parallel()
	c := newCluster(t, everySecond+`
[[crons]]
name = "hourly"
schedule = "@hourly"
command = ["sh", "-c", "echo $FORGE_CRON $FORGE_TICK"]

[[crons]]
name = "bounded"
schedule = "@daily"
start_at = 2099-12-24T00:00:00Z
end_at = "2099-12-27T00:00:00Z"
exclude = ["2099-12-25"]
jitter = "1h"
command = ["true"]
`)
	c.start("a")
	eventually(t, "a tick", func() bool { return c.number(`SELECT count(*) FROM forge_cron_ticks`) > 0 })
	for _, want := range []string{"second is paused", "second is already paused"} { // a second pause is no mistake
		if said := c.must("cron", "pause", "second"); !strings.Contains(said, want) {
			t.Error(said)
		}
	}
	if said := c.must("cron", "show", "second"); !strings.Contains(said, "paused           since ") {
		t.Error(said)
	}
	if _, said, _ := c.forge("cron", "next", "second"); !strings.Contains(said, "second is paused; until forge cron resume second its ticks are skipped") {
		t.Error(said)
	}
	paused := c.instant(`SELECT paused_at FROM forge_crons WHERE name = 'second'`).Truncate(time.Second).Add(time.Second)
	eventually(t, "a tick in the pause", func() bool {
		return c.instant(`SELECT clock_timestamp()`).After(paused.Add(100 * time.Millisecond))
	})
	resumed := c.instant(`SELECT clock_timestamp()`)
	answer := c.must("cron", "resume", "second")
	_, next, _ := strings.Cut(strings.TrimSpace(answer), "; next tick ")
	if at, err := time.Parse("2006-01-02 15:04:05.000 MST", next); err != nil || !at.After(resumed) {
		t.Errorf("resumed at %s: %s", resumed, answer)
	}
	eventually(t, "it fires again", func() bool {
		return c.number(`SELECT count(*) FROM forge_cron_ticks WHERE tick > $1 AND verdict = 'fired'`, paused) > 0
	})
	at := paused.Format(time.RFC3339)
	if said := c.must("cron", "why", "second", at); !strings.Contains(said, "skipped_paused: the cron was paused; by node a") {
		t.Error(said)
	}
	c.must("cron", "trigger", "second", "--at", at)
	if said := c.must("cron", "why", "second", at); !strings.Contains(said, "recorded as triggered: triggered by ") ||
		!strings.Contains(said, "before that it was skipped_paused: The cron was paused") {
		t.Error(said)
	}
	if said := c.refused(6, "cron", "trigger", "second", "--at", at); !strings.Contains(said, "a tick runs once") {
		t.Error(said)
	}
	row := decode[struct {
		JobID int64 `json:"job_id"`
		Tick  time.Time
	}](t, c.must("cron", "trigger", "hourly", "-o", "json"))
	eventually(t, "the triggered run is done", func() bool {
		return c.number(`SELECT count(*) FROM river_job WHERE id = $1 AND state = 'completed'`, row.JobID) == 1
	})
	if n := c.number(`SELECT count(*) FROM forge_job_logs WHERE job_id = $1 AND chunk = $2`,
		row.JobID, "hourly "+row.Tick.UTC().Format(time.RFC3339Nano)+"\n"); n != 1 {
		t.Error("the triggered run does not know its tick")
	}
	before := row.Tick.Add(time.Millisecond).Format(time.RFC3339Nano) // an hour may begin meanwhile
	if row := strings.Fields(c.must("cron", "history", "hourly", "--no-headers", "-n", "1", "--to", before)); row[1] != "triggered" || row[5] != "-" || row[6] != "-" {
		t.Errorf("a tick that no leader recorded: %q", row)
	}
	bounded := decode[[]struct {
		UTC      time.Time
		FiresAt  time.Time `json:"fires_at"`
		Excluded string
	}](t, c.must("cron", "next", "bounded", "-o", "json"))
	if len(bounded) != 3 || bounded[0].UTC.Day() != 24 || bounded[0].FiresAt.Before(bounded[0].UTC) || bounded[1].Excluded != "2099-12-25" {
		t.Errorf("next ticks of a bounded cron: %+v", bounded)
	}
	fill := []string{"cron", "backfill", "hourly", "--from", "2026-01-01T00:00:00Z", "--to", "2026-01-01T05:00:00Z"}
	if said := c.must(append(fill, "--dry-run", "--limit", "2")...); !strings.Contains(said, "2026-01-01T01:00:00Z\nwould backfill 2 ticks of hourly; more are due") {
		t.Error(said)
	}
	if said := c.must(append(fill, "--limit", "2")...); !strings.HasPrefix(said, "backfilled 2 ticks of hourly; more are due") {
		t.Error(said)
	}
	if said := c.must(fill...); said != "backfilled 3 ticks of hourly; 2 have their job or are excluded\n" {
		t.Error(said)
	}
	eventually(t, "the backfilled runs are done", func() bool {
		return c.number(`SELECT count(*) FROM forge_cron_ticks t JOIN river_job j ON j.id = t.job_id
			WHERE t.verdict = 'backfilled' AND j.state = 'completed'`) == 5
	})
	c.refused(2, "cron", "backfill", "hourly", "--from", "2026-01-02T00:00:00Z", "--to", "2026-01-01T00:00:00Z")
	c.refused(2, "cron", "backfill", "hourly")
	c.refused(4, "cron", "backfill", "nobody", "--from", "2026-01-01T00:00:00Z", "--to", "2026-01-02T00:00:00Z")
	c.refused(4, "cron", "trigger", "hourly", "--at", "2020-01-01T00:30:00Z")
	c.refused(2, "cron", "trigger", "hourly", "--at", "2099-01-01T00:00:00Z")
	c.refused(2, "cron", "trigger", "hourly", "--args", "[1]")
	for _, verb := range []string{"trigger", "pause", "resume", "show"} {
		c.refused(4, "cron", verb, "nobody")
	}
	for _, event := range []string{"cron_paused", "cron_resumed", "cron_triggered"} {
		if c.number(`SELECT count(*) FROM forge_events WHERE type = $1 AND data ->> 'by' <> ''`, event) == 0 {
			t.Errorf("no event %s", event)
		}
	}
}

func TestOverlapPoliciesOnARealRun(t *testing.T) {
	t.Parallel()
	c := newCluster(t, `
[[crons]]
name = "replaced"
schedule = "@every 2s"
overlap = "replace"
command = ["sleep", "60"]

[[crons]]
name = "queued"
schedule = "@every 1s"
overlap = "queue_all"
command = ["sleep", "1.2"]
`)
	c.start("a")
	eventually(t, "two runs are stopped for newer ones", func() bool {
		return c.number(`
			SELECT count(*) FROM river_job j JOIN forge_cron_ticks t ON t.job_id = j.id
			WHERE t.cron = 'replaced' AND t.verdict = 'replaced' AND j.state = 'cancelled'
			  AND j.finalized_at < j.attempted_at + interval '30 s'`) > 1
	})
	eventually(t, "ticks have waited for their turn", func() bool {
		return c.number(`
			SELECT count(*) FROM river_job j JOIN forge_cron_ticks t ON t.job_id = j.id
			WHERE t.cron = 'queued' AND t.reason LIKE 'It waited %' AND j.state = 'completed'`) > 1
	})
	if n := c.number(`
		SELECT count(*) FROM river_job a JOIN river_job b ON a.id < b.id AND b.attempted_at < a.finalized_at
		WHERE a.kind = 'queued' AND b.kind = 'queued'`); n != 0 {
		t.Errorf("%d runs overlapped", n)
	}
}
