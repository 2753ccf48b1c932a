package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/bench/internal/rig"
)

// The bench starts this program again as its nodes.
func TestMain(m *testing.M) {
	if os.Getenv(outEnv) != "" {
		rig.Main("limits", run)
	}
	os.Exit(m.Run())
}

// The bench itself, on a small scale: whether it is fast says nothing here.
func TestBenchMeasuresAll(t *testing.T) {
	t.Parallel()
	var out, errs strings.Builder
	args := []string{
		"-trials", "1", "-jobs", "400", "-keys", "20", "-slots", "20", "-backlog", "60", "-singles", "3", "-service", "20ms",
		"-waiting", "10000", "-waiting-keys", "1000", "-waiting-workers", "10", "-waiting-service", "50ms", "-watch", "1s",
	}
	if err := run(t.Context(), args, &out, &errs); err != nil {
		t.Fatalf("%v\n%s%s", err, out.String(), errs.String())
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	var last rig.Result
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
		t.Fatal(err)
	}
	if last.Bench != "limits" || last.Ratios["keyed"] <= 0 || last.Values["keyed_per_s"] <= 0 || last.Values["small_tenant_p99_ms"] <= 0 || last.Values["big_wait_s"] <= 0 {
		t.Errorf("%+v", last)
	}
	for _, name := range []string{"waiting_per_s", "step_p99_ms", "heap_mb", "rss_mb", "alone_per_s", "beside_per_s", "beside_paused_per_s", "takeover_first_ms", "takeover_usual_ms"} {
		if last.Values[name] <= 0 {
			t.Errorf("%s is %v", name, last.Values[name])
		}
	}
	if over, ok := last.Values["over_limit"]; !ok || over != 0 {
		t.Errorf("over the limit by %v", over)
	}
}
