package charts

import (
	"fmt"
	"math"
	"strings"

	"github.com/forge-scheduler/forge/dashboard/format"
)

// The dimensions of a chart: 100 high and chartWidth wide, stretched to the width of the
// page.
const (
	chartWidth  = 1000
	chartHeight = 100
)

type chart struct {
	ID, Name, About string
	// Label describes the chart for screen readers.
	Label   string
	Lines   []chartLine
	Grid    []gridMark
	Columns []chartColumn
	Empty   bool
}

type chartLine struct {
	Name, Tone string
	// Path connects the points, with a gap where values are unknown.
	Path string
	// Newest is the last known value.
	Newest string
}

// gridMark is a horizontal line with its value.
type gridMark struct{ Y, Text string }

// chartColumn is one point in time with the values of all lines. A script shows its title.
type chartColumn struct {
	X, Width string
	Title    string
}

func (p *points) draw(spec chartSpec) chart {
	c := chart{ID: spec.id, Name: spec.name, About: spec.about, Empty: true}
	values := make([][]float64, len(spec.lines))
	top := 0.0
	for i, line := range spec.lines {
		values[i] = p.values(line)
		for _, v := range values[i] {
			if !math.IsNaN(v) {
				c.Empty, top = false, max(top, v)
			}
		}
	}
	if c.Empty {
		c.Label = spec.name + ": nothing is known of this time."
		return c
	}
	top = roundUp(top)
	var said []string
	for i, line := range spec.lines {
		newest, most := known(values[i])
		c.Lines = append(c.Lines, chartLine{Name: line.name, Tone: line.tone, Path: linePath(values[i], top), Newest: shown(newest, spec.show)})
		said = append(said, fmt.Sprintf("%s %s now, at most %s", line.name, shown(newest, spec.show), shown(most, spec.show)))
	}
	c.Label = spec.name + ": " + strings.Join(said, "; ") + "."
	for _, share := range []float64{1, .5, 0} {
		c.Grid = append(c.Grid, gridMark{Y: format.Percent(1 - share), Text: spec.show(top * share)})
	}
	c.Columns = p.columns(spec, values)
	return c
}

// columns describes each point, its values one a line.
func (p *points) columns(spec chartSpec, values [][]float64) []chartColumn {
	count := p.count()
	columns := make([]chartColumn, count)
	for i := range count {
		var said []string
		for l, line := range spec.lines {
			if v := values[l][i]; !math.IsNaN(v) {
				said = append(said, line.name+" "+spec.withUnit(v))
			}
		}
		if said == nil {
			said = []string{"no data"}
		}
		columns[i] = chartColumn{
			X: format.Percent(float64(i) / float64(count)), Width: format.Percent(1 / float64(count)),
			Title: p.at(i).In(p.zone).Format("2006-01-02 15:04 MST") + ": " + strings.Join(said, "\n"),
		}
	}
	return columns
}

// linePath draws each point in the middle of its time.
func linePath(values []float64, top float64) string {
	var d strings.Builder
	open := false
	for i, v := range values {
		if math.IsNaN(v) {
			open = false
			continue
		}
		x, y := (float64(i)+.5)*chartWidth/float64(len(values)), chartHeight*(1-v/top)
		if open {
			fmt.Fprintf(&d, "L%.1f %.1f", x, y)
		} else {
			fmt.Fprintf(&d, "M%.1f %.1fh0", x, y) // makes a single point visible as a dot
		}
		open = true
	}
	return d.String()
}

// known returns the last known value and the greatest one; NaN if there is none.
func known(values []float64) (newest, most float64) {
	newest, most = math.NaN(), math.NaN()
	for _, v := range values {
		if math.IsNaN(v) {
			continue
		}
		newest = v
		if math.IsNaN(most) || v > most {
			most = v
		}
	}
	return newest, most
}

func shown(v float64, show func(float64) string) string {
	if math.IsNaN(v) {
		return "–"
	}
	return show(v)
}

// roundUp returns the next greater number of one significant digit whose half is a short
// number.
func roundUp(v float64) float64 {
	if v <= 0 {
		return 1
	}
	magnitude := math.Pow(10, math.Floor(math.Log10(v)))
	for _, digit := range []float64{1, 2, 4, 6, 8} {
		if v <= digit*magnitude {
			return digit * magnitude
		}
	}
	return 10 * magnitude
}
