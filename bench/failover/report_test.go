package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestLastLineIsTheWholeResult(t *testing.T) {
	t.Parallel()
	r, err := newReport(options{trials: 2, peerTrials: 1})
	if err != nil {
		t.Fatal(err)
	}
	r.forge("kill", outcome{took: 4 * time.Millisecond, gap: 30 * time.Millisecond})
	r.forge("kill", outcome{took: 8 * time.Millisecond, gap: -2 * time.Millisecond})
	r.forge("partition", outcome{took: 3 * time.Second, gap: 3 * time.Second, pause: 700 * time.Millisecond})
	r.forge("partition", outcome{took: 3 * time.Second, gap: 3 * time.Second, pause: 600 * time.Millisecond})
	r.forge("pg_restart", outcome{took: -time.Millisecond, gap: 500 * time.Millisecond})
	r.forge("pg_restart_kill", outcome{took: -time.Millisecond, gap: 500 * time.Millisecond})
	r.notRun("promote", "pg_basebackup is missing")
	r.peer("kill", 8*time.Second)
	var out strings.Builder
	if err := r.print(&out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	var last struct {
		Bench    string
		Ratios   map[string]float64
		Values   map[string]float64
		Settings map[string]any
	}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]float64{
		"kill_p50_ms": 4, "kill_p99_ms": 8, "pg_restart_p50_ms": 0, "smallest_gap_ms": -2,
		"pg_restart_kill_worst_ms": 0, "partition_stop_to_start_ms": 600, "smallest_stop_to_start_ms": 600,
	} {
		if got, ok := last.Values[key]; !ok || got != want {
			t.Errorf("%s: %v, want %v", key, got, want)
		}
	}
	if !strings.Contains(out.String(), "not run here: promote: pg_basebackup is missing") {
		t.Errorf("what is missing is not listed:\n%s", &out)
	}
	if last.Bench != "failover" || last.Ratios["kill"] != 2000 || last.Settings["lease_duration"] != "3s" {
		t.Errorf("%+v", last)
	}
}

// A takeover after a partition may take as long as is promised, and no longer.
func TestLateTakeoverFails(t *testing.T) {
	t.Parallel()
	for took, fails := range map[time.Duration]bool{4250 * time.Millisecond: false, 4251 * time.Millisecond: true} {
		r, err := newReport(options{trials: 1})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range faults {
			r.forge(f.name, outcome{took: took})
			if f.network {
				r.judge(f, took)
			}
		}
		var out strings.Builder
		err = r.print(&out)
		if failed := err != nil && strings.Contains(err.Error(), "partition took 4.251s"); failed != fails || !strings.Contains(out.String(), `{"bench":"failover"`) {
			t.Errorf("%s: %v\n%s", took, err, &out)
		}
	}
}

func TestUnknownFaultIsRefused(t *testing.T) {
	t.Parallel()
	var errs strings.Builder
	if _, err := parse([]string{"-faults", "kill,earthquake"}, &errs); err == nil || !strings.Contains(err.Error(), "pg_restart") {
		t.Errorf("got %v", err)
	}
}
