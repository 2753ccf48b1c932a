package main

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"
	"time"

	"github.com/forge-scheduler/forge/bench/internal/graphile"
	"github.com/forge-scheduler/forge/bench/internal/rig"
)

// row is a phase of a system.
type row struct {
	phase
	system      string
	jobs, crons figures
	// How many times the p99 of the phase before.
	times, cronTimes float64
	// recovered is how many seconds the phase's snapshots had been released for; -1 without
	// a recovery in time.
	recovered float64
}

// held says whether snapshots are held in the phase.
func (w row) held() bool { return w.name == readersPhase || w.name == longPhase }

// report gathers the phases in the order in which they came.
type report struct {
	options
	rows     []row
	lost     map[string]int64
	settings map[string]any
}

func newReport(o options) *report {
	return &report{options: o, lost: map[string]int64{}, settings: map[string]any{
		"before": o.before.String(), "hold": o.hold.String(), "readers": readers, "long": o.long.String(), "recover": o.recover.String(),
		"jobs_a_second": o.rate / batchesASecond * batchesASecond, "crons_a_second": o.crons, "nodes": o.nodes,
		"forge": fmt.Sprintf("%d slots; jobs and crons", slots), "graphile": graphile.Tuned().String() + "; jobs only, and it keeps none",
		"river":  fmt.Sprintf("%d workers, fetch cooldown %v; jobs only", slots, fetchCooldown),
		"wanted": "of forge: rate kept 0.95 or more, start p99 3 times that before or less, no backlog at the end, recovered within 10 s",
		"ratios": "kept is the rate of forge's jobs while held over that before, at its worst; the others are the peer's start p99 over forge's: above 1 forge is better",
	}}
}

// add judges a turn.
func (r *report) add(system string, t *turn) {
	r.lost[system] = t.lost()
	jobs, crons := r.jobCadence(t.begin), t.cronCadence()
	var before row
	for i, p := range t.phases {
		now := row{phase: p, system: system, jobs: t.started.judge(jobs, p.from, p.until, t.end), crons: t.ticked.judge(crons, p.from, p.until, t.end)}
		if i == 0 {
			before = now
		}
		now.times, now.cronTimes = times(now.jobs.p99, before.jobs.p99), times(now.crons.p99, before.crons.p99)
		if now.held() && i+1 < len(t.phases) {
			pause := t.phases[i+1]
			now.recovered = -1
			if seconds, ok := t.started.recovered(jobs, p.until, pause.until, t.end, before.jobs.p99); ok {
				now.recovered = float64(seconds)
			}
		}
		r.rows = append(r.rows, now)
	}
}

// times is how many times a figure is another.
func times(now, before float64) float64 { return rig.Round(now / max(before, 0.01)) }

func (r *report) print(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "system\tphase\tseconds\trate kept\tstart p50 ms\tp99 ms\ttimes\tbacklog most\tat the end\trecovered s\tcrons: rate kept\tp50 ms\tp99 ms\ttimes\tdead rows\tMiB\tserver CPU %\t")
	for _, w := range r.rows {
		crons := "-\t-\t-\t-"
		if w.system == forgeSystem.name {
			crons = fmt.Sprintf("%.3f\t%.1f\t%.1f\t%.2f", w.crons.rate, w.crons.p50, w.crons.p99, w.cronTimes)
		}
		cpu := "-"
		if w.serverCPU > 0 {
			cpu = fmt.Sprintf("%.1f", w.serverCPU)
		}
		fmt.Fprintf(table, "%s\t%s\t%.0f\t%.3f\t%.1f\t%.1f\t%.2f\t%d\t%d\t%s\t%s\t%d\t%.1f\t%s\t\n", w.system, w.name, w.until.Sub(w.from).Seconds(),
			w.jobs.rate, w.jobs.p50, w.jobs.p99, w.times, w.jobs.most, w.jobs.left, r.recovery(w), crons, w.deadRows, w.mib, cpu)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	return r.result().Print(out)
}

// recovery is a cell of the table.
func (r *report) recovery(w row) string {
	switch {
	case !w.held():
		return "-"
	case w.recovered < 0:
		return fmt.Sprintf("over %.0f", r.recover.Round(time.Second).Seconds())
	default:
		return fmt.Sprintf("%.0f", w.recovered)
	}
}

// result is the last line.
func (r *report) result() rig.Result {
	values, ratios, ours := map[string]float64{}, map[string]float64{}, map[string]float64{}
	for system, lost := range r.lost {
		values[prefix(system)+"not_started"] = float64(lost)
	}
	for _, w := range r.rows {
		name := prefix(w.system) + w.name + "_"
		for key, value := range map[string]float64{
			"rate": w.jobs.rate, "p50_ms": w.jobs.p50, "p99_ms": w.jobs.p99, "p99_times": w.times,
			"backlog_most": float64(w.jobs.most), "backlog": float64(w.jobs.left), "dead_rows": float64(w.deadRows), "mib": w.mib,
			"server_cpu_percent": w.serverCPU,
		} {
			values[name+key] = rig.Round(value)
		}
		if w.held() {
			values[name+"recovered_s"] = w.recovered
		}
		if w.system == forgeSystem.name {
			ours[w.name] = w.jobs.p99
			values[name+"cron_rate"], values[name+"cron_p50_ms"] = rig.Round(w.crons.rate), w.crons.p50
			values[name+"cron_p99_ms"], values[name+"cron_p99_times"] = w.crons.p99, w.cronTimes
		} else if p99, ok := ours[w.name]; ok {
			ratios[name+"p99"] = times(w.jobs.p99, p99)
		}
	}
	r.summarize(ratios, values)
	return rig.Result{Bench: "snapshot", Ratios: ratios, Values: values, Settings: r.settings}
}

// summarize adds the worst of forge's phases in which snapshots are held: the rate kept, the
// backlog at the end, and the seconds to recover, which are those that it had if it did not.
func (r *report) summarize(ratios, values map[string]float64) {
	var before float64
	kept, backlog, recovered := math.Inf(1), 0.0, 0.0
	for _, w := range r.rows {
		switch {
		case w.system != forgeSystem.name:
		case w.name == beforePhase:
			before = w.jobs.rate
		case w.held():
			kept = min(kept, w.jobs.rate/before)
			backlog = max(backlog, float64(w.jobs.left))
			if w.recovered < 0 {
				w.recovered = r.recover.Seconds()
			}
			recovered = max(recovered, w.recovered)
		}
	}
	ratios["kept"], values["backlog"], values["recover_s"] = times(kept, 1), backlog, recovered
}

// prefix is that of a system's values.
func prefix(system string) string {
	if system == forgeSystem.name {
		return ""
	}
	return system + "_"
}
