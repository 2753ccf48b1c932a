package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/internal/devcluster"
	"github.com/forge-scheduler/forge/internal/pgtest"
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
		if line != "migrate up" {
			continue
		}
		if _, err := pgtest.Connect(t, primary.URL()).Exec(t.Context(), `INSERT INTO forge_leader_history (role, term, node_id, incarnation, acquired_at) VALUES ('scheduler', 1, 'a', 'a1', now())`); err != nil {
			t.Fatal(err)
		}
	}
	primary.Stop(devcluster.StopImmediate)
	for _, line := range []string{
		"leader status", "leader history", "node list", "cron list", "cron show nightly", "cron history nightly", "cron next nightly",
		"job list", "job show 1", "job explain 1", "job logs 1", "queue list", "queue show default", "alerts list", "alerts history", "events", "audit",
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
	watching, stop := context.WithCancel(t.Context())
	var lines, errs bytes.Buffer
	code := run(watching, []string{"leader", "watch", "--config", path}, writerFunc(func(line []byte) (int, error) {
		stop()
		return lines.Write(line)
	}), &errs)
	if code != exitInterrupted || !strings.Contains(lines.String(), "scheduler           leads    a (term 1)") || strings.Count(errs.String(), "\n") != 1 {
		t.Errorf("forge leader watch: exit %d: %s%s", code, lines.String(), errs.String())
	}
	for _, line := range []string{"cron pause nightly", "job cancel 1", "queue pause default", "apply --yes", "migrate up"} {
		_, errs, code := forge(line)
		if code != exitDatabase || !strings.Contains(errs, "only read-only servers answer") || !strings.Contains(errs, "promote a replica") {
			t.Errorf("forge %s: exit %d: %s", line, code, errs)
		}
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

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
