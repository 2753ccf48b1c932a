package main

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"text/tabwriter"
	"time"

	"github.com/forge-scheduler/forge/bench/internal/rig"
	"github.com/forge-scheduler/forge/test/chaos/checker"
)

// shown is how many findings of a kind are printed.
const shown = 3

// count is how many findings are of one of the kinds.
func (o *outcome) count(kinds ...checker.Kind) int {
	n := 0
	for _, f := range o.findings {
		for _, kind := range kinds {
			if f.Kind == kind {
				n++
			}
		}
	}
	return n
}

// lost counts ticks and jobs that are gone, and those that stand or ran twice.
func (o *outcome) lost() int { return o.count(checker.Lost, checker.Double, checker.Phantom) }

// unfinished counts the jobs that have not come to their end.
func (o *outcome) unfinished() int { return o.count(checker.AckedNotTerminal) }

// promises lists what was promised and not kept.
func (o *outcome) promises() []string {
	var broken []string
	add := func(is bool, format string, args ...any) {
		if is {
			broken = append(broken, fmt.Sprintf(format, args...))
		}
	}
	lost, unfinished := o.lost(), o.unfinished()
	add(lost > 0, "%d ticks or jobs are lost, or are there twice", lost)
	add(unfinished > 0, "%d jobs did not come to their end", unfinished)
	wrong := len(o.findings) - lost - unfinished
	add(wrong > 0, "%d decisions are not what the policies say", wrong)
	add(o.share < 0.5, "of the ticks that fell due in one window only %.0f %% were recorded in it", 100*o.share)
	add(o.open > 0, "%d due ticks are not recorded at the end", o.open)
	add(o.idle > 0, "%d terms recorded nothing", o.idle)
	add(o.recover > recoverWithin, "not normal %.0f s after the load", o.recover.Seconds())
	add(o.exits > 0, "%d times a node ended by itself", o.exits)
	return broken
}

// errBroken says that a promise was not kept.
var errBroken = errors.New("not every promise was kept")

func report(out io.Writer, o options, outcomes []outcome) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "scenario\tdue\tfired\tcaught up\tskipped\trecorded in time %\tlate p50 s\tp99\tworst\tcalm p99\tterms\tof others\tidle\ttakeover s\trenewals missed\tsilence s\tinserted\tlost\tunfinished\trecovered s\t")
	values := map[string]float64{"lost": 0, "terms": 0, "recover_s": 0}
	group := ""
	for i := range outcomes {
		r := &outcomes[i]
		skipped := 0
		for verdict, n := range r.verdicts {
			if verdict != checker.Fired && verdict != checker.CaughtUp {
				skipped += n
			}
		}
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%.0f\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%s\t%d\t%s\t%d\t%d\t%d\t%s\t\n",
			r.scenario, r.due, r.verdicts[checker.Fired], r.verdicts[checker.CaughtUp], skipped, 100*r.share,
			inSeconds(r.late.p50), inSeconds(r.late.p99), inSeconds(r.late.worst), inSeconds(r.calm.p99), r.terms, r.others, r.idle,
			inSeconds(r.takeover), r.missed, inSeconds(r.silence), r.acked, r.lost(), r.unfinished(), inSeconds(r.recover))
		r.addTo(values, skipped)
		group = r.group
	}
	if err := table.Flush(); err != nil {
		return err
	}
	broken := printBroken(out, outcomes)
	settings := map[string]any{
		"nodes": nodeCount, "seconds": o.length.Seconds(), "machine": rig.Machine(), "go": runtime.Version(),
		"crons": o.crons, "inserts_per_second": o.inserts, "burners_per_cpu": o.burners, "completed": o.completed, "backlog": o.backlog,
		"cgroup": group, "cpu_share": o.share, "window_seconds": o.window.Seconds(),
	}
	if o.lease > 0 {
		settings["lease_seconds"] = o.lease.Seconds()
	}
	err := rig.Result{Bench: "overload", Ratios: map[string]float64{}, Values: values, Settings: settings}.Print(out)
	if err == nil && broken {
		return errBroken
	}
	return err
}

// addTo adds the scenario's figures to those of all.
func (o *outcome) addTo(values map[string]float64, skipped int) {
	values["lost"] += float64(o.lost())
	values["terms"] += float64(o.terms)
	values["recover_s"] = max(values["recover_s"], rig.Round(o.recover.Seconds()))
	for name, value := range map[string]float64{
		"lost": float64(o.lost()), "unfinished": float64(o.unfinished()), "findings": float64(len(o.findings)), "terms": float64(o.terms),
		"recover_s": o.recover.Seconds(), "recorded_share": o.share, "renewals_missed": float64(o.missed), "skipped": float64(skipped),
		"late_p50_s": o.late.p50.Seconds(), "late_worst_s": o.late.worst.Seconds(), "idle_terms": float64(o.idle), "exits": float64(o.exits),
		"inserts_failed": float64(o.refused),
	} {
		values[name+"_"+o.scenario] = rig.Round(value)
	}
}

// printBroken says what was promised and not kept, and shows some of the findings.
func printBroken(out io.Writer, outcomes []outcome) (any bool) {
	for i := range outcomes {
		r := &outcomes[i]
		for _, text := range r.broken {
			any = true
			fmt.Fprintf(out, "BROKEN %s: %s\n", r.scenario, text)
		}
		printed := map[checker.Kind]int{}
		for _, f := range r.findings {
			if printed[f.Kind]++; printed[f.Kind] <= shown {
				fmt.Fprintf(out, "  %s\n", f)
			}
		}
		if r.worked > 0 {
			fmt.Fprintf(out, "%s: %d of the waiting jobs were worked under the load\n", r.scenario, r.worked)
		}
	}
	return any
}

func inSeconds(d time.Duration) string { return fmt.Sprintf("%.1f", d.Seconds()) }
