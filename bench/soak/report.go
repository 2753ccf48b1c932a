package main

import (
	"bytes"
	"fmt"
	"io"
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

// fit is the line of least squares.
func fit(samples []sample, name string) trend {
	var meanX, meanY, above, below float64
	for _, s := range samples {
		meanX += s.at.Hours() / float64(len(samples))
		meanY += s.values[name] / float64(len(samples))
	}
	for _, s := range samples {
		dx := s.at.Hours() - meanX
		above += dx * (s.values[name] - meanY)
		below += dx * dx
	}
	if below == 0 {
		return trend{mean: meanY}
	}
	return trend{meanY, above / below}
}

func report(out io.Writer, o options, samples []sample) error {
	half := samples[len(samples)/2:]
	values := map[string]float64{}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "\tfirst\tlast\tleast\tmost\tper hour\tof its mean\t")
	for _, name := range lines {
		all := make([]float64, len(samples))
		for i, s := range samples {
			all[i] = s.values[name]
		}
		t := fit(half, name)
		fmt.Fprintf(table, "%s\t%.1f\t%.1f\t%.1f\t%.1f\t%+.1f\t%+.1f %%\t\n",
			titles[name], all[0], all[len(all)-1], slices.Min(all), slices.Max(all), t.perHour, 100*t.share())
		values[name], values[name+"_per_hour"] = rig.Round(t.mean), rig.Round(t.perHour)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	return rig.Result{
		Bench: "soak", Ratios: map[string]float64{}, Values: values,
		Settings: map[string]any{
			"machine": rig.Machine(), "nodes": nodeCount, "length": o.length.String(), "every": o.every.String(),
			"slopes": "through the second half of the samples",
		},
	}.Print(out)
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
