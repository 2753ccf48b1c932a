package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge"
	"github.com/forge-scheduler/forge/alerting"
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

// alertsOf runs forge alerts with a configuration file.
func alertsOf(t *testing.T, file string, args ...string) (code int, out, errOut string) {
	t.Helper()
	return forgeOf(t, file, append([]string{"alerts"}, args...)...)
}

func forgeOf(t *testing.T, file string, args ...string) (code int, out, errOut string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "forge.toml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	code = run(context.WithoutCancel(t.Context()), append([]string{"--config", path}, args...), &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

// TestAlertsCheck checks that forge check reports what forge alerts check reports, with its place in
// the file.
func TestAlertsCheck(t *testing.T) {
	t.Parallel()
	file := strings.Replace(someAlerts, "forge_leader_is_leader", "forge_leader_is_lead", 1)
	want := []string{
		`forge.toml:4:13: warning: alerts[0].condition: at its character 5: the cluster has no metric forge_leader_is_lead; want forge_leader_is_leader`,
		`forge.toml:7:11: warning: alerts[0].notify[0]: the receiver "hook" is not configured; want [notify.hook]`,
		`forge.toml:11:13: warning: alerts[1].condition: at its character 1: rate is per second: rate(forge_leader_failovers_total[5m]) > 5 means that many ` +
			`each second; want increase(forge_leader_failovers_total[5m]) > 5, if it is meant over the whole range`,
		`forge.toml:12:11: warning: alerts[1].notify[0]: the receiver "slack" is not configured; want [notify.slack]`,
	}
	code, _, errOut := forgeOf(t, file, "check")
	if diff := cmp.Diff(want, problems(errOut)); diff != "" || code != exitOK {
		t.Errorf("forge check: exit %d (-want +got):\n%s", code, diff)
	}
	code, out, errOut := alertsOf(t, file, "check")
	for _, want := range []string{
		"no_scheduler_leader: warning: condition: at its character 5: the cluster has no metric forge_leader_is_lead; want forge_leader_is_leader\n",
		`no_scheduler_leader: warning: the receiver "hook" is not configured`,
		"frequent_failovers: warning: condition: at its character 1: rate is per second",
		`frequent_failovers: warning: the receiver "slack" is not configured`,
	} {
		if !strings.Contains(out, want) || code != exitOK {
			t.Errorf("forge alerts check: exit %d, %q is missing in:\n%s%s", code, want, out, errOut)
		}
	}
	code, out, _ = alertsOf(t, "[[alerts]]\nname = \"a\"\ncondition = \"sum(forge_queue_depth) > 5\"\n", "check")
	if code != exitOK || out != "1 alerts checked, no problems found\n" {
		t.Errorf("exit %d: %s", code, out)
	}
	code, _, errOut = alertsOf(t, "[[alerts]]\nname = \"a\"\ncondition = \"sum(up\"\n", "check")
	if code != exitConfig || !strings.Contains(errOut, `forge.toml:3:13: alerts[0].condition: at its character 7: unclosed left parenthesis`) {
		t.Errorf("exit %d: %s", code, errOut)
	}
}

// TestAlertsTexts checks that every command that reads the file rejects an invalid template.
func TestAlertsTexts(t *testing.T) {
	t.Parallel()
	const file = "[[alerts]]\nname = \"a\"\ncondition = \"vector(0) > 1\"\nannotations = { x = \"{{ broken\" }\n"
	const want = `forge.toml:4:21: alerts[0].annotations.x: function "broken" not defined; want a template of Prometheus`
	for _, command := range [][]string{{"check"}, {"alerts", "check"}, {"serve"}} {
		code, _, errOut := forgeOf(t, file, command...)
		if code != exitConfig || !slices.Contains(problems(errOut), want) {
			t.Errorf("forge %v: exit %d: %s", command, code, errOut)
		}
	}
	cfg, err := forge.ParseConfig("forge.toml", file+"[database]\nurl = \"postgres://localhost/none\"\n")
	if err != nil {
		t.Fatal(err)
	}
	_, err = forge.New(cfg, forge.WithAlerts(alerting.New()))
	if wanted := strings.TrimPrefix(want, "forge.toml:4:21: "); err == nil || err.Error() != wanted {
		t.Errorf("New: %v, want %s", err, wanted)
	}
}

// problems returns the lines of an output that name the file, without the file's directory.
func problems(out string) []string {
	var lines []string
	for line := range strings.Lines(out) {
		if i := strings.Index(line, "forge.toml:"); i >= 0 {
			lines = append(lines, strings.TrimSpace(line[i:]))
		}
	}
	return lines
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
	file := someAlerts + "[http]\nallow_receiver_cidrs = [\"127.0.0.0/8\"]\n[notify.hook]\ntype = \"webhook\"\nurl = \"" + server.URL + "\"\n"
	if code, out, errOut := alertsOf(t, file, "test", "no_scheduler_leader"); code != exitOK || out != "hook: sent\n" {
		t.Errorf("exit %d: %s%s", code, out, errOut)
	}
	for _, want := range []string{`"status":"firing"`, `"status":"resolved"`} {
		if body := <-bodies; !strings.Contains(body, want) || !strings.Contains(body, `"alertname":"no_scheduler_leader"`) {
			t.Errorf("the receiver got %s, want %s", body, want)
		}
	}
	if code, out, errOut := alertsOf(t, file+"send_resolved = false\n", "test", "no_scheduler_leader"); code != exitOK || out != "hook: sent\n" {
		t.Errorf("without resolved messages: exit %d: %s%s", code, out, errOut)
	}
	if body := <-bodies; !strings.Contains(body, `"status":"firing"`) || len(bodies) != 0 {
		t.Errorf("without resolved messages the receiver got %s and %d more", body, len(bodies))
	}
	if code, out, _ := alertsOf(t, file, "test", "frequent_failovers"); code != exitFailed || !strings.Contains(out, "slack:#ops: receiver \"slack\": not configured") {
		t.Errorf("exit %d: %s", code, out)
	}
	if code, _, _ := alertsOf(t, file, "test", "nobody"); code != exitNotFound {
		t.Errorf("exit %d for an unknown alert", code)
	}
}
