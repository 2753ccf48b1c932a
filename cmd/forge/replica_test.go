package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/internal/devcluster"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/test/parts"
)

// TestCommandsWithoutPrimary checks that commands that only read use the replica and print a
// warning while the primary is down, and that commands that change something fail.
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
	forge := func(line string) (out, errs string, code int) {
		var printed, failures bytes.Buffer
		code = run(t.Context(), append(strings.Fields(line), "--config", path), &printed, &failures)
		return printed.String(), failures.String(), code
	}
	for _, line := range []string{"migrate up", "apply --yes", "cron trigger nightly"} {
		if _, errs, code := forge(line); code != exitOK {
			t.Fatalf("forge %s: exit %d: %s", line, code, errs)
		}
	}
	primary.Stop(devcluster.StopImmediate)
	for _, line := range []string{
		"leader status", "leader history", "node list", "cron list", "cron show nightly", "cron history nightly", "cron next nightly",
		"job list", "job show 1", "job explain 1", "job logs 1", "queue list", "alerts list", "alerts history", "events", "audit",
		"dead list", "compact status", "token list", "plan", "migrate status",
	} {
		_, errs, code := forge(line)
		if code != exitOK || !strings.Contains(errs, "warning: no primary answers; this comes from a replica and may be ") {
			t.Errorf("forge %s: exit %d: %s", line, code, errs)
		}
	}
	if out, errs, code := forge("doctor"); code != exitFailed || !strings.Contains(out, "its data may be ") || !strings.Contains(out, " old: it has replayed the changes until ") {
		t.Errorf("forge doctor: exit %d: %s%s", code, out, errs)
	}
	changes, err := leaderstore.Follow(t.Context(), pgtest.Connect(t, replica.URL())) // LISTEN is not possible on a replica
	if err != nil {
		t.Fatalf("forge leader watch: %v", err)
	}
	changes.Close()
	for _, line := range []string{"cron pause nightly", "job cancel 1", "queue pause default", "apply --yes", "migrate up"} {
		_, errs, code := forge(line)
		if code != exitDatabase || !strings.Contains(errs, "only read-only servers answer") || !strings.Contains(errs, "promote a replica") {
			t.Errorf("forge %s: exit %d: %s", line, code, errs)
		}
	}
}

// TestMigrateStatusCreatesNoSchema checks that forge migrate status lists the migrations for a schema
// that does not exist, and does not create it.
func TestMigrateStatusCreatesNoSchema(t *testing.T) {
	t.Parallel()
	address := pgtest.EmptyURL(t)
	path := filepath.Join(t.TempDir(), "forge.toml")
	if err := os.WriteFile(path, []byte("[database]\nurl = \""+address+"\"\nschema = \"elsewhere\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	code := run(t.Context(), []string{"migrate", "status", "--config", path, "--no-headers"}, &out, &errs)
	if lines := strings.Split(strings.TrimSpace(out.String()), "\n"); code != exitOK || len(lines) < 2 || strings.Contains(out.String(), " yes") {
		t.Errorf("exit %d: %s%s", code, out.String(), errs.String())
	}
	var made bool
	if err := pgtest.Connect(t, address).QueryRow(t.Context(), `SELECT to_regnamespace('elsewhere') IS NOT NULL`).Scan(&made); err != nil || made {
		t.Errorf("the schema was created: %v, %v", made, err)
	}
}
