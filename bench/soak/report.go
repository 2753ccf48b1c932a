package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/forge-scheduler/forge/bench/internal/rig"
)

// trend is a straight line through samples.
type trend struct {
	mean, perHour float64
}

// share is how much of its mean a line rises in an hour.
func (t trend) share() float64 {
	if t.mean == 0 {
		return 0
	}
	return t.perHour / t.mean
}

// reading is what a line shows of a sample.
type reading func(sample) float64

// value reads what is sampled of all nodes and of the whole database.
func value(name string) reading { return func(s sample) float64 { return s.values[name] } }

// size reads how large one table is.
func size(table string) reading { return func(s sample) float64 { return s.tables[table] } }

// fit is the line of least squares.
func fit(samples []sample, read reading) trend {
	var meanX, meanY, above, below float64
	for _, s := range samples {
		meanX += s.at.Hours() / float64(len(samples))
		meanY += read(s) / float64(len(samples))
	}
	for _, s := range samples {
		dx := s.at.Hours() - meanX
		above += dx * (read(s) - meanY)
		below += dx * dx
	}
	if below == 0 {
		return trend{mean: meanY}
	}
	return trend{meanY, above / below}
}

// shownTables is how many of the tables are shown: those that are largest at the end.
const shownTables = 8

func report(out io.Writer, o options, settings map[string]any, samples []sample) error {
	values := map[string]float64{}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "\tfirst\tlast\tleast\tmost\tper hour\tof its mean\t")
	show := func(title, name string, read reading) {
		t := row(table, title, samples, read)
		values[name], values[name+"_per_hour"] = rig.Round(t.mean), rig.Round(t.perHour)
	}
	for _, name := range lines {
		show(titles[name], name, value(name))
	}
	for _, name := range largest(samples[len(samples)-1].tables) {
		show(name+", MiB", name+"_mib", size(name))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	settings["nodes"], settings["length"], settings["every"] = nodeCount, o.length.String(), o.every.String()
	settings["slopes"] = "through the second half of the samples"
	return rig.Result{Bench: "soak", Ratios: map[string]float64{}, Values: values, Settings: settings}.Print(out)
}

// limit bounds how much a line may rise through the second half of a run: a share of
// its mean and so much besides, which allows for lines that are short or that move in
// steps.
type limit struct {
	title       string
	read        reading
	share, more float64
}

// evenTables are those whose rows go as fast as they come.
var evenTables = []string{"river_job", "forge_job_logs", "forge_job_log_packs", "forge_cron_ticks", "forge_events"}

// limits are what a run fails by.
func limits() []limit {
	all := []limit{
		{titles["memory_mib"], value("memory_mib"), 0.05, 5},
		{titles["goroutines"], value("goroutines"), 0.05, 5},
		{titles["descriptors"], value("descriptors"), 0.05, 5},
		{titles["connections"], value("connections"), 0.1, 2},
	}
	for _, table := range evenTables {
		all = append(all, limit{table + ", MiB", size(table), 0.1, 2})
	}
	return all
}

// settled is how long a run has to be for its second half to begin after tables have
// their size: retention applies at the end of the first five minutes.
const settled = 12 * time.Minute

// leastJobs is how many jobs a second a run has to have inserted: a cluster that does
// nothing grows by nothing.
const leastJobs = 15

// judge lists what is wrong with a run.
func judge(o options, samples []sample) []string {
	var wrong []string
	half := samples[len(samples)/2:]
	length := half[len(half)-1].at - half[0].at
	for _, l := range limits() {
		t := fit(half, l.read)
		if rise, most := t.perHour*length.Hours(), l.share*t.mean+l.more; rise > most && o.length >= settled {
			wrong = append(wrong, fmt.Sprintf("%s: rose by %.1f in the last %s; want %.1f or less", l.title, rise, length.Round(time.Second), most))
		}
	}
	jobs := samples[len(samples)-1].values["jobs_inserted"] - samples[0].values["jobs_inserted"]
	if want := leastJobs * (samples[len(samples)-1].at - samples[0].at).Seconds(); jobs < want {
		wrong = append(wrong, fmt.Sprintf("%.0f jobs were inserted; want %.0f or more", jobs, want))
	}
	return wrong
}

// row prints a line of the table, and returns its trend.
func row(out io.Writer, title string, samples []sample, read reading) trend {
	all := make([]float64, len(samples))
	for i, s := range samples {
		all[i] = read(s)
	}
	t := fit(samples[len(samples)/2:], read)
	fmt.Fprintf(out, "%s\t%.1f\t%.1f\t%.1f\t%.1f\t%+.1f\t%+.1f %%\t\n",
		title, all[0], all[len(all)-1], slices.Min(all), slices.Max(all), t.perHour, 100*t.share())
	return t
}

// largest names the tables that are shown, the largest first.
func largest(sizes map[string]float64) []string {
	names := slices.SortedFunc(maps.Keys(sizes), func(a, b string) int {
		return cmp.Or(cmp.Compare(sizes[b], sizes[a]), cmp.Compare(a, b))
	})
	return names[:min(len(names), shownTables)]
}

// The drawing: one panel for each line, from zero.
const (
	panelWidth  = 900
	panelHeight = 110
	left        = 60
)

func draw(samples []sample) []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="11">`+"\n",
		left+panelWidth+20, len(lines)*panelHeight+20)
	out.WriteString(`<rect width="100%" height="100%" fill="white"/>` + "\n")
	end := samples[len(samples)-1].at
	for i, name := range lines {
		most := 0.0
		for _, s := range samples {
			most = max(most, s.values[name])
		}
		drawPanel(&out, samples, name, i*panelHeight, most, end)
	}
	fmt.Fprintf(&out, `<text x="%d" y="%d">0</text><text x="%d" y="%d">%s</text></svg>`+"\n",
		left, len(lines)*panelHeight+14, left+panelWidth-30, len(lines)*panelHeight+14, end.Round(time.Second))
	return out.Bytes()
}

func drawPanel(out io.Writer, samples []sample, name string, top int, most float64, end time.Duration) {
	const field = panelHeight - 30
	bottom := float64(top + panelHeight - 8)
	fmt.Fprintf(out, `<text x="%d" y="%d">%s</text><text x="2" y="%d">%.0f</text><path d="M%d %.0f h%d" stroke="#ccc"/>`+"\n",
		left, top+16, titles[name], top+26, most, left, bottom, panelWidth)
	fmt.Fprint(out, `<polyline fill="none" stroke="#3b6fb6" points="`)
	for _, s := range samples {
		fmt.Fprintf(out, "%.1f,%.1f ", left+panelWidth*s.at.Seconds()/end.Seconds(), bottom-field*s.values[name]/max(most, 1))
	}
	fmt.Fprintln(out, `"/>`)
}
