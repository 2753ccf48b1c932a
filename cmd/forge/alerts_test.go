package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const someAlerts = `
[[alerts]]
name = "no_scheduler_leader"
condition = "sum(forge_leader_is_leader{role='scheduler'}) == 0"
for = "30s"
severity = "critical"
notify = ["hook"]

[[alerts]]
name = "frequent_failovers"
condition = "rate(forge_leader_failovers_total[5m]) > 5"
notify = ["slack:#ops"]
`

// alertsOf runs forge alerts with a file.
func alertsOf(t *testing.T, file string, args ...string) (code int, out, errOut string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "forge.toml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	code = run(context.WithoutCancel(t.Context()), append([]string{"alerts", "--config", path}, args...), &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

func TestAlertsCheck(t *testing.T) {
	t.Parallel()
	code, out, errOut := alertsOf(t, someAlerts, "check")
	for _, want := range []string{
		`no_scheduler_leader: warning: the receiver "hook" is not configured`,
		"frequent_failovers: warning: column 1: rate is per second",
		"want increase(forge_leader_failovers_total[5m]) > 5",
		`frequent_failovers: warning: the receiver "slack" is not configured`,
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in:\n%s%s", want, out, errOut)
		}
	}
	if code != exitOK {
		t.Errorf("exit %d for warnings", code)
	}
	code, _, errOut = alertsOf(t, "[[alerts]]\nname = \"a\"\ncondition = \"sum(up\"\n", "check")
	if code != exitConfig || !strings.Contains(errOut, `forge.toml:3:13: alerts[0].condition: at its character 7: unclosed left parenthesis`) {
		t.Errorf("exit %d: %s", code, errOut)
	}
	code, out, _ = alertsOf(t, "[[alerts]]\nname = \"a\"\ncondition = \"vector(0) > 1\"\nannotations = { x = \"{{ broken\" }\n", "check")
	if code != exitConfig || !strings.Contains(out, "annotations.x: function \"broken\" not defined") {
		t.Errorf("exit %d: %s", code, out)
	}
}

func TestAlertsExport(t *testing.T) {
	t.Parallel()
	code, out, _ := alertsOf(t, someAlerts, "export")
	if code != exitOK || !strings.Contains(out, "or absent(forge_leader_is_leader{role=\"scheduler\"})") || !strings.Contains(out, "for: 30s") {
		t.Errorf("exit %d:\n%s", code, out)
	}
}

func TestAlertsTest(t *testing.T) {
	t.Parallel()
	bodies := make(chan string, 4)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies <- string(body)
	}))
	defer server.Close()
	file := someAlerts + "[notify.hook]\ntype = \"webhook\"\nurl = \"" + server.URL + "\"\n"
	if code, out, errOut := alertsOf(t, file, "test", "no_scheduler_leader"); code != exitOK || out != "hook: told\n" {
		t.Errorf("exit %d: %s%s", code, out, errOut)
	}
	for _, want := range []string{`"status":"firing"`, `"status":"resolved"`} {
		if body := <-bodies; !strings.Contains(body, want) || !strings.Contains(body, `"alertname":"no_scheduler_leader"`) {
			t.Errorf("the receiver got %s, want %s", body, want)
		}
	}
	if code, out, _ := alertsOf(t, file, "test", "frequent_failovers"); code != exitFailed || !strings.Contains(out, "slack:#ops: receiver \"slack\": not configured") {
		t.Errorf("exit %d: %s", code, out)
	}
	if code, _, _ := alertsOf(t, file, "test", "nobody"); code != exitNotFound {
		t.Errorf("exit %d for an alert that there is not", code)
	}
}
