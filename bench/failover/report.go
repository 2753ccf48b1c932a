package main

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
	"text/tabwriter"
	"time"

	"github.com/forge-scheduler/forge/internal/config"
)

// report gathers the trials and prints them.
type report struct {
	took     map[string][]time.Duration
	gaps     map[string][]time.Duration
	peers    map[string][]time.Duration
	settings map[string]any
}

func newReport(o options, postgres string) (*report, error) {
	cfg, _, err := config.Parse("defaults", nil, config.LoadOptions{})
	if err != nil {
		return nil, fmt.Errorf("read the default settings: %w", err)
	}
	election := cfg.Cluster.LeaderElection
	return &report{
		took: map[string][]time.Duration{}, gaps: map[string][]time.Duration{}, peers: map[string][]time.Duration{},
		settings: map[string]any{
			"nodes": nodes, "trials": o.trials, "peer_trials": o.peerTrials, "postgresql": postgres,
			"check_interval":   election.CheckInterval.String(),
			"lease_duration":   election.LeaseDuration.String(),
			"refresh_interval": election.RefreshInterval.String(),
			"machine":          machine(), "go": runtime.Version(),
		},
	}, nil
}

// machine says what this ran on.
func machine() string {
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

// forge records a trial. A leader that was back before the database told us
// that it accepts connections took no time.
func (r *report) forge(fault string, took, gap time.Duration) {
	r.took[fault] = append(r.took[fault], max(took, 0))
	r.gaps[fault] = append(r.gaps[fault], gap)
}

func (r *report) peer(fault string, took time.Duration) {
	r.peers[fault] = append(r.peers[fault], took)
}

func (r *report) print(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "fault\ttrials\tp50 ms\tp99 ms\tworst ms\tsmallest gap ms\tRiver p50 ms\tRiver worst ms\tratio of p50\t")
	ratios, values := map[string]float64{}, map[string]float64{}
	for _, fault := range faultNames() {
		took := r.took[fault]
		if len(took) == 0 {
			continue
		}
		p50, p99 := quantile(took, 0.5), quantile(took, 0.99)
		values[fault+"_p50_ms"], values[fault+"_p99_ms"], values[fault+"_worst_ms"] = p50, p99, quantile(took, 1)
		gap := quantile(r.gaps[fault], 0)
		if smallest, ok := values["smallest_gap_ms"]; !ok || gap < smallest {
			values["smallest_gap_ms"] = gap
		}
		line := fmt.Sprintf("%s\t%d\t%.1f\t%.1f\t%.1f\t%.1f\t", fault, len(took), p50, p99, values[fault+"_worst_ms"], gap)
		if peers := r.peers[fault]; len(peers) > 0 {
			values["river_"+fault+"_p50_ms"] = quantile(peers, 0.5)
			ratios[fault] = round(quantile(peers, 0.5) / max(p50, 0.001))
			line += fmt.Sprintf("%.1f\t%.1f\t%.1f\t", quantile(peers, 0.5), quantile(peers, 1), ratios[fault])
		} else {
			line += "-\t-\t-\t"
		}
		fmt.Fprintln(table, line)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	return r.finish(out, ratios, values)
}

// finish prints the settings and the last line.
func (r *report) finish(out io.Writer, ratios, values map[string]float64) error {
	fmt.Fprintln(out)
	for _, key := range slices.Sorted(maps.Keys(r.settings)) {
		fmt.Fprintf(out, "%s: %v\n", key, r.settings[key])
	}
	fmt.Fprintln(out)
	return json.NewEncoder(out).Encode(map[string]any{
		"bench": "failover", "ratios": ratios, "values": values, "settings": r.settings,
	})
}

// quantile is the smallest trial that a share of all does not exceed, in
// milliseconds.
func quantile(trials []time.Duration, share float64) float64 {
	sorted := slices.Sorted(slices.Values(trials))
	rank := int(math.Ceil(share*float64(len(sorted)))) - 1
	return round(ms(sorted[max(rank, 0)]))
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func round(f float64) float64 { return math.Round(f*100) / 100 }
