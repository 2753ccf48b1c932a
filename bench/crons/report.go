package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/forge-scheduler/forge/bench/internal/rig"
)

// outcome is what one system did in one scenario.
type outcome struct {
	// expected are the ticks that were due; missed those without a record, ran
	// those with a job, doubled the jobs beyond one, skipped those that found an
	// earlier run of their cron active.
	expected, missed, ran, doubled, skipped int64
	insert, start                           []time.Duration
	// Shares of a core in percent, and memory in MiB.
	leaderCPU, serverCPU, memory float64
}

// take keeps the first start of each tick in (from, until].
func (o *outcome) take(f *field, all []rig.Start, from, until time.Time) error {
	type key struct{ cron, tick int64 }
	first := map[key]int64{}
	for _, s := range all {
		if s.Due <= from.UnixMicro() || s.Due > until.UnixMicro() {
			continue
		}
		k := key{s.ID, s.Due}
		if at, ok := first[k]; !ok || s.At < at {
			first[k] = s.At
		}
	}
	o.start = o.start[:0]
	for k, at := range first {
		due, err := f.system.fires(f.workload, k.cron, time.UnixMicro(k.tick))
		if err != nil {
			return err
		}
		o.start = append(o.start, time.UnixMicro(at).Sub(due))
	}
	return nil
}

// notRun are the ticks that should have a job and have none.
func (o *outcome) notRun() int64 { return o.expected - o.ran - o.skipped }

// merge adds another round of the same.
func (o *outcome) merge(other *outcome) {
	o.expected, o.missed, o.ran, o.doubled = o.expected+other.expected, o.missed+other.missed, o.ran+other.ran, o.doubled+other.doubled
	o.skipped += other.skipped
	o.insert, o.start = append(o.insert, other.insert...), append(o.start, other.start...)
	o.leaderCPU, o.serverCPU = (o.leaderCPU+other.leaderCPU)/2, (o.serverCPU+other.serverCPU)/2
	o.memory = max(o.memory, other.memory)
}

// report gathers the outcomes in the order in which they came.
type report struct {
	keys     [][2]string // scenario, system
	outcomes map[[2]string]*outcome
	settings map[string]any
}

func newReport(o options) *report {
	return &report{
		outcomes: map[[2]string]*outcome{},
		settings: map[string]any{
			"nodes": o.nodes, "slots_per_node": o.slots, "duration": o.duration.String(), "share": o.share,
			"fetch_cooldown": fetchCooldown.String(), "warm_up": warmUp.String(),
			"overlap": "skip, the default; in kill allow; River has none",
		},
	}
}

func (r *report) add(scenario, system string, out *outcome) {
	key := [2]string{scenario, system}
	if before, ok := r.outcomes[key]; ok {
		before.merge(out)
		return
	}
	r.keys, r.outcomes[key] = append(r.keys, key), out
}

func (r *report) print(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "scenario\tsystem\tticks\tmissed\tdoubled\tskipped\tnot run\tinsert p50 ms\tp99 ms\tstart p50 ms\tp99 ms\tworst ms\tleader CPU %\tserver CPU %\tleader MiB\t")
	for _, key := range r.keys {
		o := r.outcomes[key]
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.0f\t\n", key[0], key[1],
			o.expected, o.missed, o.doubled, o.skipped, o.notRun(), rig.Quantile(o.insert, 0.5), rig.Quantile(o.insert, 0.99),
			rig.Quantile(o.start, 0.5), rig.Quantile(o.start, 0.99), rig.Quantile(o.start, 1),
			o.leaderCPU, o.serverCPU, o.memory)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	return r.result().Print(out)
}

// result is the last line.
func (r *report) result() rig.Result {
	values, ratios := map[string]float64{"missed": 0, "doubled": 0}, map[string]float64{}
	for _, key := range r.keys {
		o, prefix, suffix := r.outcomes[key], "", "_"+key[0]
		if key[1] != forgeSystem.name {
			prefix = key[1] + "_"
		}
		values[prefix+"missed"] += float64(o.missed)
		values[prefix+"doubled"] += float64(o.doubled)
		values[prefix+"ticks"+suffix] = float64(o.expected)
		values[prefix+"missed"+suffix] = float64(o.missed)
		values[prefix+"skipped"+suffix] = float64(o.skipped)
		values[prefix+"not_run"+suffix] = float64(o.notRun())
		values[prefix+"p50_ms"+suffix] = rig.Quantile(o.start, 0.5)
		values[prefix+"p99_ms"+suffix] = rig.Quantile(o.start, 0.99)
		values[prefix+"insert_p99_ms"+suffix] = rig.Quantile(o.insert, 0.99)
		values[prefix+"leader_cpu_percent"+suffix] = rig.Round(o.leaderCPU)
		values[prefix+"leader_mib"+suffix] = rig.Round(o.memory)
	}
	for _, key := range r.keys {
		ours, peer := r.outcomes[key], r.outcomes[[2]string{key[0], riverSystem.name}]
		if key[1] != forgeSystem.name || peer == nil {
			continue
		}
		ratios["start_p99_"+key[0]] = ratio(rig.Quantile(peer.start, 0.99), rig.Quantile(ours.start, 0.99))
		if key[0] == "100000" {
			ratios["leader_cpu_100000"] = ratio(peer.leaderCPU, ours.leaderCPU)
			ratios["leader_memory_100000"] = ratio(peer.memory, ours.memory)
		}
	}
	if empty, full := values["p99_ms_empty"], values["p99_ms_history"]; full > 0 {
		ratios["history"] = ratio(empty, full)
	}
	return rig.Result{Bench: "crons", Ratios: ratios, Values: values, Settings: r.settings}
}

// ratio is how many times less ours is than the peer's.
func ratio(peer, ours float64) float64 { return rig.Round(peer / max(ours, 0.01)) }
