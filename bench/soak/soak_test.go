package main

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// rising is a line of so many samples, a minute apart, that gains so much each.
func rising(count int, from, by float64) []sample {
	samples := make([]sample, count)
	for i := range samples {
		samples[i] = sample{time.Duration(i) * time.Minute, map[string]float64{}, map[string]float64{"river_job": from + by*float64(i)}}
		for _, name := range lines {
			samples[i].values[name] = from + by*float64(i)
		}
	}
	return samples
}

func TestFit(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ by, perHour, share float64 }{{0, 0, 0}, {0.5, 30, 0.24}, {-0.5, -30, -0.4}} {
		for name, read := range map[string]reading{"goroutines": value("goroutines"), "river_job": size("river_job")} {
			got := fit(rising(101, 100, test.by), read)
			if math.Abs(got.perHour-test.perHour) > 1e-6 || math.Abs(got.share()-test.share) > 1e-6 {
				t.Errorf("%s, %v a minute: %+v, %v of the mean; want %+v", name, test.by, got, got.share(), test)
			}
		}
	}
}

func TestDrawing(t *testing.T) {
	t.Parallel()
	drawn := string(draw(rising(30, 0, 1)))
	for decoder := xml.NewDecoder(strings.NewReader(drawn)); ; {
		_, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if strings.Count(drawn, "<polyline") != len(lines) {
		t.Errorf("%d lines are drawn; want %d", strings.Count(drawn, "<polyline"), len(lines))
	}
}

func TestLargestTables(t *testing.T) {
	t.Parallel()
	sizes := map[string]float64{"river_job": 9, "forge_events": 1, "forge_job_logs": 4}
	if got := largest(sizes); !slices.Equal(got, []string{"river_job", "forge_job_logs", "forge_events"}) {
		t.Errorf("largest = %v", got)
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-for", "10s"}, {"-every", "10ms"}, {"-nonsense"}} {
		if _, err := parse(args, io.Discard); err == nil {
			t.Errorf("%v is taken", args)
		}
	}
}

func TestRunFailsOnWhatGrows(t *testing.T) {
	t.Parallel()
	o := options{length: 20 * time.Minute}
	run := func(grow func(s sample, minute float64)) []string {
		samples := rising(21, 100, 0)
		for i, s := range samples {
			s.values["jobs_inserted"] = 20 * 60 * float64(i)
			for _, table := range evenTables {
				s.tables[table] = 10
			}
			grow(s, float64(i))
		}
		return judge(o, samples)
	}
	fails := func(want string, grow func(s sample, minute float64)) {
		t.Helper()
		if wrong := run(grow); len(wrong) != 1 || !strings.Contains(wrong[0], want) {
			t.Errorf("%s: %q", want, wrong)
		}
	}
	if wrong := run(func(sample, float64) {}); len(wrong) != 0 {
		t.Errorf("a run in which nothing grows: %q", wrong)
	}
	for _, name := range []string{"memory_mib", "goroutines", "descriptors", "connections"} {
		fails(titles[name], func(s sample, minute float64) { s.values[name] += 2 * minute })
	}
	for _, table := range evenTables {
		fails(table, func(s sample, minute float64) { s.tables[table] += 0.4 * minute })
	}
	fails("jobs were inserted", func(s sample, minute float64) { s.values["jobs_inserted"] = 14 * 60 * minute })
	o.length = settled - time.Second
	if wrong := run(func(s sample, minute float64) { s.tables["river_job"] += minute }); len(wrong) != 0 {
		t.Errorf("a run in which tables have not come to their size: %q", wrong)
	}
}
