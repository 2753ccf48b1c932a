package main

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/forge-scheduler/forge/bench/internal/rig"
	"github.com/forge-scheduler/forge/internal/config"
)

// report gathers the trials and prints them. The lanes of a run write to it at
// once.
type report struct {
	mu       sync.Mutex
	took     map[string][]time.Duration
	gaps     map[string][]time.Duration
	pauses   map[string][]time.Duration
	peers    map[string][]time.Duration
	missing  []string
	election config.LeaderElection
	late     []string // trials that took longer than their fault's bound
	began    time.Time
	settings map[string]any
}

func newReport(o options) (*report, error) {
	cfg, _, err := config.Parse("defaults", nil, config.LoadOptions{})
	if err != nil {
		return nil, fmt.Errorf("read the default settings: %w", err)
	}
	election := cfg.Cluster.LeaderElection
	return &report{
		took: map[string][]time.Duration{}, gaps: map[string][]time.Duration{}, began: time.Now(),
		pauses: map[string][]time.Duration{}, peers: map[string][]time.Duration{}, election: election,
		settings: map[string]any{
			"nodes": nodeCount, "trials": o.trials, "promotions": o.promotions, "peer_trials": o.peerTrials,
			"check_interval":   election.CheckInterval.String(),
			"lease_duration":   election.LeaseDuration.String(),
			"refresh_interval": election.RefreshInterval.String(),
			"machine":          rig.Machine(), "go": runtime.Version(),
		},
	}, nil
}

func (r *report) postgres(version string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settings["postgresql"] = version
}

// notRun says what this machine cannot do.
func (r *report) notRun(what, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.missing = append(r.missing, what+": "+why)
}

// bound is that of a fault with the settings of the run; 0: none.
func (r *report) bound(f fault) time.Duration {
	if f.bound == nil {
		return 0
	}
	return f.bound(r.election)
}

// judge notes a trial that took longer than its fault's bound.
func (r *report) judge(f fault, took time.Duration) {
	if bound := r.bound(f); bound > 0 && took > bound {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.late = append(r.late, fmt.Sprintf("%s took %s; at most %s are promised", f.name, took.Round(time.Millisecond), bound))
	}
}

// forge records a trial. A leader that was back before the database told us
// that it accepts connections took no time.
func (r *report) forge(name string, m outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.took[name] = append(r.took[name], max(m.took, 0))
	r.gaps[name] = append(r.gaps[name], m.gap)
	if m.pause != 0 {
		r.pauses[name] = append(r.pauses[name], m.pause)
	}
}

func (r *report) trials(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.took[name])
}

func (r *report) peer(fault string, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.peers[fault] = append(r.peers[fault], took)
}

// rows names the lines of the table: each fault and its kinds.
func rows() []string {
	var names []string
	for _, f := range faults {
		names = append(names, f.name)
		for _, kind := range f.kinds {
			names = append(names, f.name+"_"+kind)
		}
	}
	return names
}

func (r *report) print(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "fault\ttrials\tp50 ms\tp99 ms\tworst ms\tsmallest gap ms\tstop to start ms\tRiver p50 ms\tRiver worst ms\tratio of p50\t")
	ratios, values := map[string]float64{}, map[string]float64{}
	for _, name := range rows() {
		if len(r.took[name]) > 0 {
			fmt.Fprintln(table, r.row(name, ratios, values))
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	r.settings["run_took"] = time.Since(r.began).Round(time.Second).String()
	err := rig.Result{Bench: "failover", Ratios: ratios, Values: values, Settings: r.settings, NotRun: r.missing}.Print(out)
	if err == nil && len(r.late) > 0 {
		return errors.New(strings.Join(r.late, "; "))
	}
	return err
}

// row is a line of the table; it adds to what the last line of all will hold.
func (r *report) row(name string, ratios, values map[string]float64) string {
	took := r.took[name]
	p50, p99, worst := rig.Quantile(took, 0.5), rig.Quantile(took, 0.99), rig.Quantile(took, 1)
	values[name+"_p50_ms"], values[name+"_p99_ms"], values[name+"_worst_ms"] = p50, p99, worst
	gap := rig.Quantile(r.gaps[name], 0)
	lower(values, "smallest_gap_ms", gap)
	line := fmt.Sprintf("%s\t%d\t%.1f\t%.1f\t%.1f\t%.1f\t", name, len(took), p50, p99, worst, gap)
	if pauses := r.pauses[name]; len(pauses) > 0 {
		values[name+"_stop_to_start_ms"] = rig.Quantile(pauses, 0)
		lower(values, "smallest_stop_to_start_ms", rig.Quantile(pauses, 0))
		line += fmt.Sprintf("%.1f\t", rig.Quantile(pauses, 0))
	} else {
		line += "-\t"
	}
	peers := r.peers[name]
	if len(peers) == 0 {
		return line + "-\t-\t-\t"
	}
	values["river_"+name+"_p50_ms"], values["river_"+name+"_worst_ms"] = rig.Quantile(peers, 0.5), rig.Quantile(peers, 1)
	ratios[name] = rig.Round(rig.Quantile(peers, 0.5) / max(p50, 0.001))
	return line + fmt.Sprintf("%.1f\t%.1f\t%.1f\t", rig.Quantile(peers, 0.5), rig.Quantile(peers, 1), ratios[name])
}

// lower keeps the smallest value of a key.
func lower(values map[string]float64, key string, value float64) {
	if smallest, ok := values[key]; !ok || value < smallest {
		values[key] = value
	}
}
