package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/internal/pgtest"
)

// TestWrongNamesAreCorrected checks that a command with a slip in a name says which was meant.
func TestWrongNamesAreCorrected(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	path := fileWith(t, fmt.Sprintf("[database]\nurl = %q\n[jobs.report]\nkind = \"shell\"\ncommand = [\"true\"]\nqueue = \"mail\"\n"+
		"[[crons]]\nname = \"nightly\"\nschedule = \"@daily\"\njob = \"report\"\n[[alerts]]\nname = \"NoLeader\"\ncondition = \"forge_leader_is_leader == 0\"\n", url))
	for _, line := range []string{"apply --yes", "job enqueue report", "token create deploy"} {
		var out bytes.Buffer
		if code := run(t.Context(), append(strings.Fields(line), "--config", path), &out, &out); code != exitOK {
			t.Fatalf("forge %s: exit %d: %s", line, code, out.String())
		}
	}
	if _, err := pgtest.Connect(t, url).Exec(t.Context(), `
		INSERT INTO forge_nodes (node_id, incarnation, hostname, pid, version, state, slots, dead_after, started_at, last_heartbeat_at, kinds)
		VALUES ('node-1', '00000000000000a1', 'h', 1, 'v', 'active', 1, '1h', now(), now(), ARRAY['report'])`); err != nil {
		t.Fatal(err)
	}
	if _, err := pgtest.Connect(t, url).Exec(t.Context(), `INSERT INTO forge_leaders (role, term) VALUES ('scheduler', 0) ON CONFLICT DO NOTHING`); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		line, meant string
		code        int
	}{
		{"jb list", "job", exitUsage},
		{"job lst", "list", exitUsage},
		{"job list --stte x", "--state", exitUsage},
		{"cron show nigtly", "nightly", exitNotFound},
		{"cron why nigtly 2026-01-01T00:00:00Z", "nightly", exitNotFound},
		{"cron history nigtly", "nightly", exitNotFound},
		{"cron trigger nigtly", "nightly", exitNotFound},
		{"cron pause nigtly", "nightly", exitNotFound},
		{"cron next nigtly", "nightly", exitNotFound},
		{"cron resume nigtly", "nightly", exitNotFound},
		{"cron backfill nigtly --from 2026-01-01T00:00:00Z --to 2026-01-02T00:00:00Z", "nightly", exitNotFound},
		{"node show nod-1", "node-1", exitNotFound},
		{"node drain nod-1", "node-1", exitNotFound},
		{"node undrain nod-1", "node-1", exitNotFound},
		{"queue show mial", "mail", exitNotFound},
		{"queue pause mial", "mail", exitNotFound},
		{"queue resume mial", "mail", exitNotFound},
		{"leader step-down schedular", "scheduler", exitNotFound},
		{"leader transfer schedular --to node-1", "scheduler", exitNotFound},
		{"leader history --role schedular", "scheduler", exitNotFound},
		{"leader incident schedular", "scheduler", exitNotFound},
		{"drill schedular", "scheduler", exitNotFound},
		{"job enqueue reprt", "report", exitNotFound},
		{"alerts silence NoLaeder --for 1h", "NoLeader", exitNotFound},
		{"alerts unsilence NoLaeder", "NoLeader", exitNotFound},
		{"alerts test NoLaeder", "NoLeader", exitNotFound},
		{"token revoke depoy", "deploy", exitNotFound},
		{"job list --kind reprt", "report", exitOK},
		{"job list --queue mial", "mail", exitOK},
		{"job list --cron nigtly", "nightly", exitOK},
	} {
		var out, errs bytes.Buffer
		code := run(t.Context(), append(strings.Fields(c.line), "--config", path), &out, &errs)
		if code != c.code || !strings.Contains(errs.String(), "did you mean "+c.meant+"?") && !strings.Contains(errs.String(), "want \""+c.meant+"\"") {
			t.Errorf("forge %s: exit %d, want %d: %s", c.line, code, c.code, errs.String())
		}
	}
}
