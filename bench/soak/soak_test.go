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
