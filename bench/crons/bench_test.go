package main

import (
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/bench/internal/rig"
)

// The bench starts this program again as its nodes.
func TestMain(m *testing.M) {
	if os.Getenv(nodeEnv) != "" {
		rig.Main("crons", run)
	}
	os.Exit(m.Run())
}

// The bench itself, on a small scale: whether it is fast says nothing here.
func TestBenchRunsAndMissesNothing(t *testing.T) {
	t.Parallel()
	var out, errs strings.Builder
	args := []string{"-scenarios", "500", "-duration", "2s", "-share", "0.02", "-peer=false", "-nodes", "1"}
	if err := run(t.Context(), args, &out, &errs); err != nil {
		t.Fatalf("%v\n%s%s", err, out.String(), errs.String())
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	var last rig.Result
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
		t.Fatal(err)
	}
	if last.Bench != "crons" || last.Settings["nodes"] != 1.0 {
		t.Errorf("%+v", last)
	}
	for _, key := range []string{"missed", "doubled"} {
		if n, ok := last.Values[key]; !ok || n != 0 {
			t.Errorf("%s: %v", key, n)
		}
	}
	for _, key := range []string{"p99_ms_500", "insert_p99_ms_500"} {
		if last.Values[key] <= 0 {
			t.Errorf("no %s in %v", key, last.Values)
		}
	}
}

func TestReportComparesWithThePeer(t *testing.T) {
	t.Parallel()
	r := newReport(options{})
	r.add("10000", "forge", &outcome{expected: 3, ran: 2, missed: 1, doubled: 1, start: []time.Duration{time.Second, 2 * time.Second}})
	r.add("10000", "river", &outcome{expected: 3, ran: 3, missed: 2, start: []time.Duration{6 * time.Second}})
	r.add("100000", "forge", &outcome{leaderCPU: 2, memory: 50})
	r.add("100000", "river", &outcome{leaderCPU: 5, memory: 40})
	got := r.result()
	for key, want := range map[string]float64{
		"missed": 1, "doubled": 1, "river_missed": 2, "not_run_10000": 1, "p99_ms_10000": 2000, "p50_ms_10000": 1000,
	} {
		if got.Values[key] != want {
			t.Errorf("%s: %v, want %v", key, got.Values[key], want)
		}
	}
	for key, want := range map[string]float64{"start_p99_10000": 3, "leader_cpu_100000": 2.5, "leader_memory_100000": 0.8} {
		if got.Ratios[key] != want {
			t.Errorf("ratio %s: %v, want %v", key, got.Ratios[key], want)
		}
	}
}

func TestWorkload(t *testing.T) {
	t.Parallel()
	from := time.Unix(1_000_000, 0)
	for _, c := range []struct {
		workload workload
		seconds  int
		want     int64
	}{
		{workload{Crons: 5, Period: 1}, 4, 20},
		{workload{Crons: 5, Period: 15}, 30, 10},
		{workload{Crons: 100, Period: 10, Spread: true}, 5, 50},
	} {
		if got := c.workload.due(from, from.Add(time.Duration(c.seconds)*time.Second)); got != c.want {
			t.Errorf("%+v: %d ticks in %d seconds, want %d", c.workload, got, c.seconds, c.want)
		}
	}
	p := phased{workload{Crons: 4, Period: 1, Within: true}, 3}
	if got := p.Next(from); !got.Equal(from.Add(750 * time.Millisecond)) {
		t.Errorf("the first tick is %s", got)
	}
	if got := p.Next(p.Next(from)); !got.Equal(from.Add(1750 * time.Millisecond)) {
		t.Errorf("the second tick is %s", got)
	}
}

func TestUnknownScenarioIsRefused(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-scenarios", "500,501"}, {"-scenarios", "kill", "-nodes", "1"}, {"-share", "2"}} {
		if _, err := parse(args, io.Discard); err == nil {
			t.Errorf("%v was accepted", args)
		}
	}
}
