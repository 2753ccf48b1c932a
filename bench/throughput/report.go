package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/forge-scheduler/forge/bench/internal/graphile"
	"github.com/forge-scheduler/forge/bench/internal/rig"
)

// unit is what something is measured in.
type unit struct {
	name string
	// better is 1 where more is, -1 where less is, and 0 where it is no matter of
	// forge against a peer.
	better int
}

var (
	perSecond    = unit{"jobs/s", 1}
	milliseconds = unit{"ms", -1}
	bytes        = unit{"bytes", -1}
	cpuSeconds   = unit{"CPU s/1000 jobs", -1}
	percent      = unit{"%", 0}
)

// peer is a system beside forge, with its columns in the table and its keys in the result.
type peer struct {
	system *system
	title  string
	// ratio is the key of the ratio of a measure.
	ratio func(name string) string
}

var peers = []peer{
	{riverSystem, "River", func(name string) string { return name }},
	{graphileSystem, "graphile-worker", func(name string) string { return "graphile_" + strings.TrimPrefix(name, "worked_") }},
}

// measure is what a row of the table is about.
type measure struct {
	name string
	unit unit
}

// report gathers the trials of each measure in the order in which they came: the
// n-th of forge and the n-th of a peer are a pair.
type report struct {
	measures []measure
	trials   map[measure]map[string][]float64 // by system
	settings map[string]any
}

func newReport(o options) *report {
	return &report{
		trials: map[measure]map[string][]float64{},
		settings: map[string]any{
			"trials": o.trials, "jobs": o.jobs, "jobs_default": o.jobs / 5, "nodes": o.nodes, "slots_tuned": o.slots,
			"length": o.length.String(), "inserters": inserters, "batch": batch, "start_rate": rate,
			"rows_scheduled_and_finished": int(o.share * million),
			"river_tuned":                 fmt.Sprintf("%d workers, fetch cooldown %v, %s connections", o.slots, fetchCooldown, poolSize),
			"river_default":               fmt.Sprintf("%d workers, all else as it comes", riverWorkers),
			"forge_memory":                "forge.TuneMemory, as forge serve; the others as they come",
			"forge_default":               "an empty file: 50 slots, " + poolSize + " connections",
			"graphile_tuned":              graphile.Tuned().String(),
			"graphile_default":            graphile.Settings{}.String(),
			"graphile_history":            "none: it deletes completed jobs; forge and River keep them",
			"ratios":                      "forge over the peer for rates, the peer over forge for times, bytes and CPU: above 1 forge is better",
		},
	}
}

func (r *report) add(system string, m measure, value float64) {
	if r.trials[m] == nil {
		r.measures, r.trials[m] = append(r.measures, m), map[string][]float64{}
	}
	r.trials[m][system] = append(r.trials[m][system], value)
}

// addWorked adds what a drained backlog says.
func (r *report) addWorked(system, name string, w worked) {
	r.add(system, measure{name, perSecond}, w.perSecond)
	if w.nodeCPU > 0 {
		r.add(system, measure{name + "_node_cpu", cpuSeconds}, w.nodeCPU)
	}
	if w.serverCPU > 0 {
		r.add(system, measure{name + "_server_cpu", cpuSeconds}, w.serverCPU)
	}
}

// addFigures adds what a task has measured.
func (r *report) addFigures(system string, figures map[string]float64) {
	for _, name := range taskMeasures {
		value, ok := figures[name]
		if !ok {
			continue
		}
		u := perSecond
		if strings.HasSuffix(name, "_ms") {
			u = milliseconds
		}
		r.add(system, measure{name, u}, value)
	}
}

// ratios are those of the pairs; nil without any.
func (r *report) ratios(m measure, of *system) []float64 {
	ours, theirs := r.trials[m][forgeSystem.name], r.trials[m][of.name]
	var ratios []float64
	for i := range min(len(ours), len(theirs)) {
		switch {
		case m.unit.better > 0 && theirs[i] > 0:
			ratios = append(ratios, ours[i]/theirs[i])
		case m.unit.better < 0 && ours[i] > 0:
			ratios = append(ratios, theirs[i]/ours[i])
		}
	}
	return ratios
}

func (r *report) print(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(table, "measure\tunit\tforge\trange\t")
	measured := r.measured()
	for _, p := range measured {
		fmt.Fprintf(table, "%s\trange\tforge is better\trange\t", p.title)
	}
	fmt.Fprintln(table)
	for _, m := range r.measures {
		fmt.Fprintf(table, "%s\t%s\t%s", m.name, m.unit.name, spread(r.trials[m][forgeSystem.name], ""))
		for _, p := range measured {
			fmt.Fprint(table, spread(r.trials[m][p.system.name], ""), spread(r.ratios(m, p.system), "x"))
		}
		fmt.Fprintln(table)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	return r.result().Print(out)
}

// measured are the peers with a trial.
func (r *report) measured() []peer {
	return slices.DeleteFunc(slices.Clone(peers), func(p peer) bool {
		return !slices.ContainsFunc(r.measures, func(m measure) bool { return len(r.trials[m][p.system.name]) > 0 })
	})
}

// spread is two cells of the table: the median and the range.
func spread(values []float64, suffix string) string {
	if len(values) == 0 {
		return "-\t\t"
	}
	return fmt.Sprintf("%s%s\t%s to %s\t", short(median(values)), suffix, short(slices.Min(values)), short(slices.Max(values)))
}

// result is the last line.
func (r *report) result() rig.Result {
	values, ratios := map[string]float64{}, map[string]float64{}
	addValues := func(s *system, prefix string) {
		for _, m := range r.measures {
			if trials := r.trials[m][s.name]; len(trials) > 0 {
				values[prefix+m.name] = precise(median(trials))
				values[prefix+m.name+"_min"] = precise(slices.Min(trials))
				values[prefix+m.name+"_max"] = precise(slices.Max(trials))
			}
		}
	}
	addValues(forgeSystem, "")
	for _, p := range peers {
		addValues(p.system, p.system.name+"_")
		for _, m := range r.measures {
			if pairs := r.ratios(m, p.system); len(pairs) > 0 {
				key := p.ratio(m.name)
				ratios[key] = rig.Round(median(pairs))
				values["ratio_"+key+"_min"] = rig.Round(slices.Min(pairs))
				values["ratio_"+key+"_max"] = rig.Round(slices.Max(pairs))
			}
		}
	}
	return rig.Result{Bench: "throughput", Ratios: ratios, Values: values, Settings: r.settings}
}

// median is the middle one, or the mean of the two there.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// short is for the table.
func short(value float64) string {
	switch size := math.Abs(value); {
	case size >= 100:
		return fmt.Sprintf("%.0f", value)
	case size >= 1:
		return fmt.Sprintf("%.2f", value)
	default:
		return fmt.Sprintf("%.3f", value)
	}
}

// precise keeps four digits after the point.
func precise(value float64) float64 { return math.Round(value*10_000) / 10_000 }
