package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

// TestConfigHistory applies three files, compares them, and reverts to the first.
func TestConfigHistory(t *testing.T) {
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	t.Setenv("FORGE_DATABASE_URL", url)
	path := filepath.Join(t.TempDir(), "forge.toml")
	t.Setenv("FORGE_CONFIG", path)
	call := func(code int, args ...string) string {
		t.Helper()
		var out, said bytes.Buffer
		if got := run(t.Context(), args, &out, &said); got != code {
			t.Fatalf("forge %s: exit %d, want %d\n%s%s", strings.Join(args, " "), got, code, &out, &said)
		}
		return out.String() + said.String()
	}
	cron := func(name, schedule string) string {
		return fmt.Sprintf("[[crons]]\nname = %q\nschedule = %q\ncommand = [\"true\"]\n", name, schedule)
	}
	limited := "[queues.slow]\nglobal_limit = 3\n"
	for _, text := range []string{cron("aa", "@hourly") + limited, cron("aa", "@daily"), cron("aa", "@daily") + cron("bb", "@hourly")} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		call(exitOK, "apply", "--yes")
	}
	var history []cronstore.Application
	if err := json.Unmarshal([]byte(call(exitOK, "config", "history", "-o", "json")), &history); err != nil || len(history) != 3 {
		t.Fatalf("the history is %+v, %v", history, err)
	}
	first := history[2].Hash
	if newest := history[0]; !newest.InForce || history[1].InForce || !strings.HasPrefix(newest.By, "cli:") || newest.File != path || newest.Reverted || *newest.Added != 1 {
		t.Errorf("the newest is %+v", newest)
	}
	for _, step := range []struct {
		line string
		code int
		want string
	}{
		{"config history -n 1", exitOK, history[0].Hash[:12] + " (in force)"},
		{"config history -n 1 --sort oldest", exitOK, first[:12] + " "},
		{"config history -n 1 --sort oldest --filter by:*", exitOK, first[:12] + " "},
		{"config history --sort size", exitUsage, "want one of newest, oldest"},
		{"config diff", exitOK, "+ bb"},
		{"config diff " + history[1].Hash[:8], exitOK, `schedule: "@hourly" -> "@daily"`},
		{"config diff " + history[1].Hash[:8], exitOK, "queues: 0 to add, 0 to change, 1 to remove"},
		{"config diff " + first[:8], exitOK, "from no configuration to " + first[:12]},
		{"config diff " + first[:8] + " " + first[:8], exitOK, "No cron, job, queue or alert differs."},
		{"config diff " + history[0].Hash[:8] + " " + first[:8] + " -o json", exitOK, `"removed": [`},
		{"config diff 0000", exitNotFound, "see forge config history"},
		{"config diff xyz", exitUsage, "want the hash of a configuration"},
		{"config revert 0000", exitNotFound, "see forge config history"},
		{"config revert " + first[:8], exitUsage, "would remove bb"},
		{"config revert " + first[:8] + " --yes", exitOK, "removed  bb"},
		{"config revert " + first[:8], exitOK, "nothing to do"},
		{"config history -n 1", exitOK, "revert"},
		{"config history --filter is:reverted", exitOK, first[:12] + " (in force)"},
		{"config history --filter hash:" + history[1].Hash[:8] + "*", exitOK, history[1].Hash[:12]},
		{"config history --filter hsh:a", exitUsage, `want "hash"`},
		{"plan", exitOK, "A newer file has superseded this one"},
		{"audit --action config.revert -n 10", exitOK, first[:8]},
		{"activity --filter type:config_applied -n 1", exitOK, `"reverted": true`},
	} {
		if got := call(step.code, strings.Fields(step.line)...); !strings.Contains(got, step.want) {
			t.Errorf("forge %s prints %s, want %s", step.line, got, step.want)
		}
	}
	var schedule string
	var limit int
	if err := pool.QueryRow(t.Context(), `SELECT spec ->> 'schedule', (SELECT most FROM forge_limits WHERE name = 'slow')
		FROM forge_crons WHERE name = 'aa' AND removed_at IS NULL`).Scan(&schedule, &limit); err != nil || schedule != "@hourly" || limit != 3 {
		t.Errorf("after the revert aa is due %s and the limit is %d, %v", schedule, limit, err)
	}
}
