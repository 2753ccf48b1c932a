package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/internal/access"
	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

func TestActivity(t *testing.T) {
	url := pgtest.URL(t)
	t.Setenv("FORGE_DATABASE_URL", url)
	pool := pgtest.Connect(t, url)
	for _, name := range []string{"nightly", "hourly"} {
		if err := eventstore.New(pool).Append(t.Context(), eventstore.Event{Type: eventstore.CronPaused}, map[string]string{"cron": name, "by": "ada"}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := access.NewAudit(pool).Begin(t.Context(), access.AuditEntry{Actor: "bob", Source: "here", Action: "cron.pause", Object: "nightly", Outcome: access.Refused, Detail: "403"}); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		args  []string
		code  int
		want  string
		lines int
	}{
		{[]string{"--no-headers"}, exitOK, "cron_paused", 3},
		{[]string{"--no-headers", "-n", "1"}, exitOK, "cron.pause", 1},
		{[]string{"--no-headers", "--filter", "cron:nightly"}, exitOK, "refused", 2},
		{[]string{"--no-headers", "--filter", "cron:nightly log:events"}, exitOK, `{"by": "ada", "cron": "nightly"}`, 1},
		{[]string{"-o", "json", "--filter", "by:bob"}, exitOK, `"outcome": "refused"`, 0},
		{[]string{"--filter", "knd:x"}, exitUsage, `found the key "knd"`, 0},
		{[]string{"-n", "-1"}, exitUsage, "want a number of at least 1", 0},
	} {
		var out, said bytes.Buffer
		code := run(t.Context(), append([]string{"activity"}, step.args...), &out, &said)
		if code != step.code || !strings.Contains(out.String()+said.String(), step.want) || step.lines > 0 && strings.Count(out.String(), "\n") != step.lines {
			t.Errorf("%s: exit %d, %s%s", step.args, code, &out, &said)
		}
	}
}
