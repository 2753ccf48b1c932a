package main

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/bench/internal/rig"
)

// The bench itself, on a small scale: whether it is fast says nothing here. It
// reads again what it wrote, and fails when that differs.
func TestBenchMergesAllLines(t *testing.T) {
	t.Parallel()
	var out, errs strings.Builder
	if err := run(t.Context(), []string{"-lines", "6999", "-window", "300ms", "-pairs", "1"}, &out, &errs); err != nil {
		t.Fatalf("%v\n%s%s", err, out.String(), errs.String())
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	var last rig.Result
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
		t.Fatal(err)
	}
	if last.Bench != "compaction" || last.Values["lines"] != 6000 {
		t.Errorf("%+v", last)
	}
	for _, key := range []string{"text_bytes", "bytes_before", "bytes_after_full", "packed_bytes", "seconds", "remove_seconds", "read_p50_ms"} {
		if last.Values[key] <= 0 {
			t.Errorf("no %s in %v", key, last.Values)
		}
	}
	if last.Ratios["size"] <= 1 {
		t.Errorf("merging made it %v times smaller", last.Ratios["size"])
	}
}

func TestSourceWritesThreeKindsOfAttempts(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := newSource(3*attemptLines, now)
	chunks, lines := map[int]int{}, map[int]int{}
	for s.Next() {
		chunks[s.attempt]++
		lines[s.attempt] += strings.Count(s.chunks[0], "\n")
		if row, err := s.Values(); err != nil || len(row) != len(columns) || chunks[s.attempt] != s.seq {
			t.Fatalf("row %v, %v of attempt %d", row, err, s.attempt)
		}
		if s.written.After(now.Add(-10 * time.Minute)) {
			t.Fatalf("a chunk of %v is too young to be merged", s.written)
		}
	}
	if chunks[1] != attemptLines/fewLines || chunks[2] < 2 || chunks[2] > 10 || chunks[3] != attemptLines {
		t.Errorf("chunks: %v", chunks)
	}
	for attempt := 1; attempt <= 3; attempt++ {
		if lines[attempt] != attemptLines {
			t.Errorf("%d lines of attempt %d", lines[attempt], attempt)
		}
	}
	if s.lines != 3*attemptLines || s.rows != int64(chunks[1]+chunks[2]+chunks[3]) {
		t.Errorf("counted %d lines in %d chunks", s.lines, s.rows)
	}
}

func TestThroughputIsTheMedianShare(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pairs [][2]float64
		want  float64
		ok    bool
	}{
		{nil, 0, false},
		{[][2]float64{{0, 5}}, 0, false},
		{[][2]float64{{100, 90}, {0, 5}, {100, 20}, {10, 10}}, 0.9, true},
		{[][2]float64{{100, 75}, {100, 25}}, 0.5, true},
	} {
		if got, ok := throughput(c.pairs); got != c.want || ok != c.ok {
			t.Errorf("%v: %v, %v, want %v, %v", c.pairs, got, ok, c.want, c.ok)
		}
	}
}

func TestTooSmallIsRefused(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-lines", "2999"}, {"-window", "99ms"}, {"-pairs", "0"}} {
		if _, err := parse(args, io.Discard); err == nil {
			t.Errorf("%v was accepted", args)
		}
	}
}
