package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/pgtest"
)

func TestUnknownNamesAreCorrected(t *testing.T) {
	t.Parallel()
	file := fileWith(t, "[database]\nurl = \""+pgtest.URL(t)+"\"\n"+
		"[queues.mail]\nglobal_limit = 2\n[[crons]]\nname = \"pulse\"\nschedule = \"@daily\"\ncommand = [\"true\"]\n")
	forge := func(args ...string) (int, string) {
		var out, errs bytes.Buffer
		return run(t.Context(), append(args, "--config", file), &out, &errs), errs.String()
	}
	if code, said := forge("apply", "--yes"); code != exitOK {
		t.Fatalf("apply: exit %d: %s", code, said)
	}
	for want, line := range map[string]string{
		`no cron "puls" (did you mean pulse?); see forge cron list`:   "cron show puls",
		`no cron "pulsee" (did you mean pulse?); see forge cron list`: "cron pause pulsee",
		`no cron "something"; see forge cron list`:                    "cron trigger something",
		`no queue "mial" (did you mean mail?); see forge queue list`:  "queue pause mial",
		`no cron "Pulse" (did you mean pulse?); see forge cron list`:  "cron history Pulse",
		`no cron "pulze" (did you mean pulse?); see forge cron list`:  "cron why pulze 2026-11-20T01:30:00Z",
		`no valid token "deploy"; see forge token list`:               "token revoke deploy",
	} {
		if code, said := forge(strings.Fields(line)...); code != exitNotFound || said != "forge: "+want+"\n" {
			t.Errorf("%s: exit %d: %s", line, code, said)
		}
	}
}

// TestExitCodesAreTheSameEverywhere compares the list of exit codes with the help topic, the manual page
// and the documentation.
func TestExitCodesAreTheSameEverywhere(t *testing.T) {
	t.Parallel()
	var help, errs bytes.Buffer
	if code := run(t.Context(), []string{"help", "exit-codes"}, &help, &errs); code != exitOK {
		t.Fatalf("help exit-codes: exit %d: %s", code, errs.String())
	}
	dir := t.TempDir()
	if code := run(t.Context(), []string{"man", dir}, &errs, &errs); code != exitOK {
		t.Fatalf("man: exit %d: %s", code, errs.String())
	}
	table := "| code | meaning |\n|---|---|\n"
	page := ".SH EXIT STATUS\n"
	topic := ""
	for _, e := range exitCodes {
		table += fmt.Sprintf("| %d | %s |\n", e.code, strings.ReplaceAll(e.meaning, "forge plan --exit-code", "`forge plan --exit-code`"))
		page += fmt.Sprintf(".TP\n\\fB%d\\fP\n%s\n\n", e.code, e.meaning)
		topic += fmt.Sprintf("  %3d  %s\n", e.code, e.meaning)
	}
	for where, want := range map[string]string{
		filepath.Join(dir, "forge.1"): page,
		"../../docs/operations.md":    table,
	} {
		if got, err := os.ReadFile(where); err != nil || !strings.Contains(string(got), want) { //nolint:gosec // ours
			t.Errorf("%s does not have the exit codes (%v):\n%s\nwant\n%s", where, err, got, want)
		}
	}
	if !strings.Contains(help.String(), topic) {
		t.Errorf("got %s, want %s", help.String(), topic)
	}
}

// TestInterruptWhileConnecting checks that a command that is interrupted before the database has answered
// does not blame the database.
func TestInterruptWhileConnecting(t *testing.T) {
	t.Parallel()
	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	file := fileWith(t, "[database]\nurl = \"postgres://"+silent.Addr().String()+"/none?sslmode=disable\"\n")
	for _, line := range []string{"status", "job enqueue report", "migrate up", "doctor", "run --role nightly true"} {
		ctx, interrupt := context.WithCancel(t.Context())
		time.AfterFunc(200*time.Millisecond, interrupt)
		var out, errs bytes.Buffer
		code := run(ctx, append([]string{"--config", file}, strings.Fields(line)...), &out, &errs)
		if code != exitInterrupted || out.Len() > 0 || strings.Contains(errs.String(), "forge: ") {
			t.Errorf("forge %s: exit %d\n%s%s", line, code, &out, &errs)
		}
	}
}
