package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestLastLineIsTheWholeResult(t *testing.T) {
	t.Parallel()
	r, err := newReport(options{trials: 2, peerTrials: 1}, "18.0")
	if err != nil {
		t.Fatal(err)
	}
	r.forge("kill", 4*time.Millisecond, 30*time.Millisecond)
	r.forge("kill", 8*time.Millisecond, -2*time.Millisecond)
	r.forge("pg_restart", -time.Millisecond, 500*time.Millisecond)
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
	} {
		if got, ok := last.Values[key]; !ok || got != want {
			t.Errorf("%s: %v, want %v", key, got, want)
		}
	}
	if last.Bench != "failover" || last.Ratios["kill"] != 2000 || last.Settings["lease_duration"] != "3s" {
		t.Errorf("%+v", last)
	}
}

func TestUnknownFaultIsRefused(t *testing.T) {
	t.Parallel()
	var errs strings.Builder
	if _, err := parse([]string{"-faults", "kill,earthquake"}, &errs); err == nil || !strings.Contains(err.Error(), "pg_restart") {
		t.Errorf("got %v", err)
	}
}
