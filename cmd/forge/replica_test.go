package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/internal/pgembed"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/test/parts"
)

// While the primary is down, commands that change nothing read from its replica and say
// so; those that change something are refused.
func TestCommandsWithoutPrimary(t *testing.T) {
	t.Parallel()
	primary := pgtest.Server(t)
	replica := primary.Replica()
	address, err := parts.MultiHost(replica.URL(), primary.URL())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "forge.toml")
	const crons = "\n[[crons]]\nname = \"nightly\"\nschedule = \"@daily\"\ncommand = [\"true\"]\n"
	if err := os.WriteFile(path, []byte("[database]\nurl = \""+address+"\"\n"+crons), 0o600); err != nil {
		t.Fatal(err)
	}
	forge := func(line string) (errs string, code int) {
		var out, failures bytes.Buffer
		code = run(t.Context(), append(strings.Fields(line), "--config", path), &out, &failures)
		return failures.String(), code
	}
	for _, line := range []string{"migrate up", "apply --yes", "cron trigger nightly"} {
		if errs, code := forge(line); code != exitOK {
			t.Fatalf("forge %s: exit %d: %s", line, code, errs)
		}
	}
	primary.Stop(pgembed.Immediate)
	for _, line := range []string{
		"leader status", "leader history", "node list", "cron list", "cron show nightly", "cron history nightly", "cron next nightly",
		"job list", "job show 1", "job explain 1", "job logs 1", "queue list", "alerts list", "alerts history", "events", "audit",
		"dead list", "compact status", "token list", "plan",
	} {
		errs, code := forge(line)
		if code != exitOK || !strings.Contains(errs, "warning: no primary answers; this comes from a replica and may be ") {
			t.Errorf("forge %s: exit %d: %s", line, code, errs)
		}
	}
	changes, err := leaderstore.Follow(t.Context(), pgtest.Connect(t, replica.URL())) // where nobody can listen
	if err != nil {
		t.Fatalf("forge leader watch: %v", err)
	}
	changes.Close()
	for _, line := range []string{"cron pause nightly", "job cancel 1", "queue pause default", "apply --yes", "migrate up"} {
		errs, code := forge(line)
		if code != exitDatabase || !strings.Contains(errs, "only read-only servers answer") || !strings.Contains(errs, "promote a replica") {
			t.Errorf("forge %s: exit %d: %s", line, code, errs)
		}
	}
}
