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
	if os.Getenv(roleEnv) != "" {
		rig.Main("snapshot", run)
	}
	os.Exit(m.Run())
}

// The bench itself, on a small scale: whether it is fast says nothing here.
func TestBenchMeasuresEachSystem(t *testing.T) {
	t.Parallel()
	var out, errs strings.Builder
	args := []string{"-before", "1s", "-hold", "1s", "-long", "1s", "-recover", "3s", "-rate", "100", "-crons", "5", "-nodes", "1"}
	if err := run(t.Context(), args, &out, &errs); err != nil {
		t.Fatalf("%v\n%s%s", err, out.String(), errs.String())
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	var last rig.Result
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
		t.Fatal(err)
	}
	if last.Bench != "snapshot" || last.Settings["hold"] != "1s" {
		t.Errorf("%+v", last)
	}
	for _, key := range []string{"readers_p99_ms", "long_rate", "long_cron_rate", "long_cron_p99_ms", "river_readers_rate", "graphile_long_p99_ms", "long_mib"} {
		if last.Values[key] <= 0 {
			t.Errorf("no %s in %v", key, last.Values)
		}
	}
	for _, key := range []string{"not_started", "river_not_started", "graphile_not_started"} {
		if n, ok := last.Values[key]; !ok || n != 0 {
			t.Errorf("%s: %v", key, n)
		}
	}
	if last.Ratios["kept"] <= 0 || last.Values["recover_s"] > 3 {
		t.Errorf("kept %v, recovered after %v s", last.Ratios["kept"], last.Values["recover_s"])
	}
	if last.Ratios["river_long_p99"] <= 0 || last.Ratios["graphile_long_p99"] <= 0 {
		t.Errorf("ratios %v", last.Ratios)
	}
}

// starts are ten jobs a second, each started so long after it was due; those for which
// late is negative have not started.
func starts(begin time.Time, seconds int, late func(second int) time.Duration) (s []rig.Start) {
	for n := range 10 * seconds {
		due := begin.Add(time.Duration(n) * time.Second / 10)
		if l := late(n / 10); l >= 0 {
			s = append(s, rig.Start{ID: int64(n), Due: due.UnixMicro(), At: due.Add(l).UnixMicro()})
		}
	}
	return s
}

func TestJudge(t *testing.T) {
	t.Parallel()
	begin := time.Unix(1_000_000, 0)
	c := cadence{begin, 1, time.Second / 10}
	at := func(seconds int) time.Time { return begin.Add(time.Duration(seconds) * time.Second) }
	for name, test := range map[string]struct {
		late       func(second int) time.Duration
		rate       float64
		most, left int64
		p99        float64
		recovered  int // seconds; -1: not
	}{
		"even":           {late: func(int) time.Duration { return 5 * time.Millisecond }, rate: 1, p99: 5},
		"nothing starts": {late: func(int) time.Duration { return -1 }, most: 90, left: 90, p99: 10_000, recovered: -1},
		// What is due in the first ten seconds starts in the twelfth at the latest.
		"late, then even": {late: func(second int) time.Duration {
			if second < 10 {
				return time.Duration(10-second)*time.Second + 500*time.Millisecond
			}
			return 5 * time.Millisecond
		}, most: 90, left: 90, p99: 10_500, recovered: 2},
	} {
		var turn turn
		turn.begin, turn.jobs = begin, 200
		turn.take(starts(begin, 20, test.late))
		got := turn.started.judge(c, begin, at(10), at(20))
		if got.most != test.most || got.left != test.left || got.p99 != test.p99 {
			t.Errorf("%s: backlog %d and %d, p99 %v; want %d, %d and %v", name, got.most, got.left, got.p99, test.most, test.left, test.p99)
		}
		if diff := got.rate - test.rate; diff < -0.1 || diff > 0.1 {
			t.Errorf("%s: rate %v, want %v", name, got.rate, test.rate)
		}
		seconds, ok := turn.started.recovered(c, at(10), at(20), at(20), 5)
		if !ok {
			seconds = -1
		}
		if seconds != test.recovered {
			t.Errorf("%s: recovered after %d s; want %d", name, seconds, test.recovered)
		}
	}
}

func TestSmallOptionsAreRefused(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-hold", "500ms"}, {"-rate", "10"}, {"-crons", "0"}, {"-recover", "1s"}, {"-before", "0s"}} {
		if _, err := parse(args, io.Discard); err == nil {
			t.Errorf("%v was accepted", args)
		}
	}
}
