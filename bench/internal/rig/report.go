package rig

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Result is a bench's outcome. Ratios are forge over its peer in the same run,
// above 1 meaning that forge is better.
type Result struct {
	Bench    string             `json:"bench"`
	Ratios   map[string]float64 `json:"ratios"`
	Values   map[string]float64 `json:"values"`
	Settings map[string]any     `json:"settings"`

	// NotRun lists what this machine cannot do, and why.
	NotRun []string `json:"-"`
}

// Print writes the settings for people, the day among them, and the whole as the last
// line.
func (r Result) Print(out io.Writer) error {
	r.Settings = maps.Clone(r.Settings)
	r.Settings["date"] = time.Now().UTC().Format(time.DateOnly)
	fmt.Fprintln(out)
	for _, key := range slices.Sorted(maps.Keys(r.Settings)) {
		fmt.Fprintf(out, "%s: %v\n", key, r.Settings[key])
	}
	for _, line := range slices.Sorted(slices.Values(r.NotRun)) {
		fmt.Fprintf(out, "not run here: %s\n", line)
	}
	fmt.Fprintln(out)
	return json.NewEncoder(out).Encode(r)
}

// Machine says what this ran on.
func Machine() string {
	return fmt.Sprintf("%d CPUs, %s/%s%s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, processor())
}

func processor() string {
	body, _ := os.ReadFile("/proc/cpuinfo") // not everywhere
	for line := range strings.Lines(string(body)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return ", " + strings.TrimSpace(value)
		}
	}
	return ""
}

// Quantile is the smallest trial that a share of all does not exceed, in
// milliseconds; 0 without any.
func Quantile(trials []time.Duration, share float64) float64 {
	if len(trials) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(trials))
	rank := int(math.Ceil(share*float64(len(sorted)))) - 1
	return Round(Milliseconds(sorted[max(rank, 0)]))
}

// Milliseconds of a duration.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Round keeps two digits.
func Round(f float64) float64 { return math.Round(f*100) / 100 }
