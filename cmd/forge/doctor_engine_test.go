package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/internal/engine"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

func runForge(t *testing.T, args ...string) (out, errs string, code int) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = run(t.Context(), args, &stdout, &stderr)
	return stdout.String(), stderr.String(), code
}

// The databases are without forge's tables.
//
//nolint:paralleltest // sets variables of the environment
func TestDoctorEngine(t *testing.T) {
	target := pgtest.EmptyURL(t)
	locks := pgtest.StubURL(t, target, pgtest.GrantsEveryLock)
	for name, test := range map[string]struct {
		url, strategy string
		code          int
		want          string // on standard output or standard error
	}{
		"PostgreSQL":              {target, "", exitOK, "strategy: advisory, notifications: listen"},
		"locks":                   {locks, "", exitFailed, `set it to "lease"`},
		"locks by lease":          {locks, "lease", exitOK, "strategy: lease, notifications: poll"},
		"locks and advisory":      {locks, "advisory", exitFailed, `set it to "lease"`},
		"no notifications":        {pgtest.StubURL(t, target, pgtest.DropsNotifications), "", exitFailed, "strategy: lease, notifications: poll"},
		"no triggers":             {pgtest.StubURL(t, target, pgtest.RefusesTriggers), "", exitFailed, "forge cannot use this server: triggers"},
		"transaction pooler":      {pgtest.StartBouncer(t, target, "transaction").URL(), "", exitFailed, `set it to "lease"`},
		"nobody":                  {"postgres://127.0.0.1:1/none", "", exitDatabase, "refused"},
		"locks, in the variables": {locks, "$advisory", exitFailed, `set it to "lease"`},
	} {
		path := filepath.Join(t.TempDir(), "forge.toml")
		text := ""
		if strategy, variable := strings.CutPrefix(test.strategy, "$"); variable {
			t.Setenv("FORGE_CLUSTER_LEADER_ELECTION_STRATEGY", strategy)
		} else if strategy != "" {
			text = "[cluster.leader_election]\nstrategy = \"" + strategy + "\"\n"
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Setenv("FORGE_DATABASE_URL", test.url)
		out, errs, code := runForge(t, "doctor", "--engine", "--config", path)
		if code != test.code || !strings.Contains(out+errs, test.want) {
			t.Errorf("%s: exit %d, want %d with %q:\n%s%s", name, code, test.code, test.want, out, errs)
		}
		t.Setenv("FORGE_CLUSTER_LEADER_ELECTION_STRATEGY", "")
	}
}

func TestDoctorEngineJSON(t *testing.T) {
	t.Setenv("FORGE_DATABASE_URL", pgtest.StubURL(t, pgtest.EmptyURL(t), pgtest.GrantsEveryLock))
	t.Chdir(t.TempDir())
	out, errs, code := runForge(t, "doctor", "--engine", "-o", "json")
	var report engine.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != exitFailed {
		t.Fatalf("exit %d, %v: %s%s", code, err, out, errs)
	}
	if report.Election != engine.Lease || len(report.Results) < 12 || report.Results[3].Status != engine.Missing {
		t.Errorf("%s", out)
	}
}
