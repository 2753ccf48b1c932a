package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge/internal/access"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

func TestTokens(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	file := fileWith(t, "[database]\nurl = \""+url+"\"\n")
	forge := func(args ...string) (code int, out, errOut string) {
		var stdout, stderr bytes.Buffer
		code = run(t.Context(), append([]string{"token", "--config", file}, args...), &stdout, &stderr)
		return code, stdout.String(), stderr.String()
	}
	code, out, errOut := forge("create", "ci", "--scope", "operator")
	if code != exitOK || !strings.Contains(errOut, "The token ci (operator, expires ") {
		t.Fatalf("exit %d: %s", code, errOut)
	}
	of, err := access.NewTokens(pool).Verify(t.Context(), strings.TrimSpace(out))
	if err != nil || of.Name != "ci" || of.Scope != access.Operator {
		t.Errorf("what was printed is the token of %+v, %v", of, err)
	}
	if code, out, _ = forge("create", "prometheus", "--expires", "never", "-o", "json"); code != exitOK {
		t.Fatalf("exit %d", code)
	}
	var made madeToken
	if err := json.Unmarshal([]byte(out), &made); err != nil || made.Scope != access.Viewer || !made.ExpiresAt.IsZero() {
		t.Errorf("made %+v, %v", made, err)
	}
	if _, err := access.NewTokens(pool).Verify(t.Context(), made.Secret); err != nil {
		t.Error(err)
	}
	if code, out, _ = forge("list"); code != exitOK || strings.Contains(out, "forge_") || !strings.Contains(out, "prometheus   viewer     active   never") {
		t.Errorf("exit %d:\n%s", code, out)
	}
	if code, out, _ = forge("list", "--filter", "scope:operator expires:<91d"); code != exitOK || strings.Contains(out, "prometheus") || !strings.Contains(out, "ci ") {
		t.Errorf("filtered: exit %d:\n%s", code, out)
	}
	if code, out, _ = forge("list", "--sort", "created"); code != exitOK || strings.Index(out, "prometheus") > strings.Index(out, "ci ") {
		t.Errorf("sorted: exit %d:\n%s", code, out)
	}
	if code, out, _ = forge("revoke", "ci"); code != exitOK || out != "ci is revoked\n" {
		t.Errorf("exit %d: %s", code, out)
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"create", "prometheus"}, exitConflict, `a token "prometheus" exists`},
		{[]string{"revoke", "ci"}, exitNotFound, `no valid token "ci"`},
		{[]string{"create", "../x"}, exitUsage, `the name "../x": want 1 to 63`},
		{[]string{"create", "x", "--scope", "root"}, exitUsage, `--scope: unknown scope "root"; want viewer, operator or admin`},
		{[]string{"create", "x", "--expires", "5"}, exitUsage, `--expires "5": want a duration`},
		{[]string{"create", "x", "--expires", "-5h"}, exitUsage, `--expires "-5h": want a duration`},
	} {
		if code, _, errOut := forge(c.args...); code != c.code || !strings.Contains(errOut, c.want) {
			t.Errorf("%v: exit %d: %s", c.args, code, errOut)
		}
	}
}

// fileWith writes a configuration file and returns its path.
func fileWith(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "forge.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCommandsAreAudited(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	file := fileWith(t, "[database]\nurl = \""+url+"\"\n[jobs.report]\nkind = \"shell\"\ncommand = [\"true\"]\n")
	forge := func(args ...string) string {
		var stdout, stderr bytes.Buffer
		run(t.Context(), append([]string{"--config", file}, args...), &stdout, &stderr)
		return stdout.String()
	}
	forge("apply")
	forge("token", "create", "ci")
	forge("token", "list")
	forge("job", "cancel", "42")
	forge("queue", "pause", "nowhere")
	forge("cron", "backfill", "nowhere", "--dry-run", "--from", "2026-01-01T00:00:00Z", "--to", "2026-01-02T00:00:00Z")
	forge("job", "retry", "--kind", "report", "--state", "cancelled", "--dry-run")
	forge("job", "retry", "--kind", "report", "--state", "cancelled", "--dry-run=false", "--yes")
	forge("dead", "discard", "--older-than", "2d", "--yes")
	forge("cron", "pause", "--filter", "cron:night*", "--yes")
	var entries []access.AuditEntry
	if err := json.Unmarshal([]byte(forge("audit", "-o", "json")), &entries); err != nil {
		t.Fatal(err)
	}
	name, host := whoRuns()
	var got []string
	for _, e := range entries {
		if e.Actor != "cli:"+name || e.Source != host {
			t.Errorf("%+v", e)
		}
		got = append(got, e.Action+" "+e.Object+": "+e.Outcome+" "+e.Detail)
	}
	want := []string{
		"cron.pause --filter=cron:night*: done ",
		"dead.discard --older-than=2d: done ", "job.retry --state=cancelled --kind=report: done ",
		`queue.pause nowhere: refused no queue "nowhere"; see forge queue list`, "job.cancel 42: refused no job 42; it may be past its retention",
		"token.create ci: done ", "apply : done ",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := forge("audit", "--action", "apply"); strings.Contains(got, "token.create") || !strings.Contains(got, "cli:"+name) {
		t.Error(got)
	}
}

// TestAuditedCommandsExist checks that every path in auditedCommands names a command.
func TestAuditedCommandsExist(t *testing.T) {
	t.Parallel()
	root := (&app{}).rootCommand()
	for _, path := range auditedCommands {
		if cmd, rest, err := root.Find(strings.Fields(path)); err != nil || len(rest) > 0 {
			t.Errorf("no command %s: %v", path, cmd)
		}
	}
}

// TestOtherCommandsChangeNothing checks that every command is audited, or one of those that change
// nothing in the cluster or are documented as not recorded.
func TestOtherCommandsChangeNothing(t *testing.T) {
	t.Parallel()
	others := []string{
		"activity", "completion bash", "completion fish", "completion powershell", "completion zsh", "alerts check", "alerts export", "alerts history", "alerts list", "alerts test", "audit", "check", "compact status", "config diff", "config history", "config show",
		"cron history", "cron list", "cron next", "cron show", "cron why", "dead list", "doctor", "events", "help", "import cronjobs", "import crontab", "import pg_cron", "init",
		"job explain", "job list", "job logs", "job show", "job wait", "leader history", "leader incident", "leader status", "leader watch", "man", "metrics",
		"node list", "node show", "plan", "queue limits", "queue list", "queue show", "session list", "status", "token list", "version",
		"dev", "migrate down", "migrate print", "migrate status", "migrate up", "run", "serve", "sidecar", // docs/security.md names them
	}
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		path := strings.TrimPrefix(cmd.CommandPath(), "forge ")
		if cmd.Runnable() && !cmd.HasSubCommands() && !slices.Contains(auditedCommands, path) && !slices.Contains(others, path) {
			t.Errorf("forge %s is not audited", path)
		}
		for _, sub := range cmd.Commands() {
			check(sub)
		}
	}
	check((&app{}).rootCommand())
}
