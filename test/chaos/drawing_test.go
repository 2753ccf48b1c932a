package chaos

import (
	"fmt"
	"html"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/test/chaos/checker"
)

// The drawing, in pixels: a lane for each node, one for the faults, and a field of
// ticks by their lateness.
const (
	laneHeight  = 22
	fieldHeight = 160
	margin      = 70
	perSecond   = 10
)

// laneColors are of the nodes, in their order.
var laneColors = []string{"#3b6fb6", "#c2703d", "#4f9d69"}

// drawing is the run from its first second to its last.
type drawing struct {
	strings.Builder

	from, to time.Time
}

func (d *drawing) x(at time.Time) float64 {
	return margin + perSecond*max(0, min(at.Sub(d.from).Seconds(), d.to.Sub(d.from).Seconds()))
}

// draw writes the timeline of leaders, faults and ticks as an SVG into a folder.
func (r *run) draw(h *checker.History, folder string) {
	d := &drawing{from: r.crons[0].Since, to: r.crons[0].Until.Add(2 * time.Second)}
	field := (nodeCount + 1) * laneHeight
	width, height := d.x(d.to)+margin, field+fieldHeight+2*laneHeight
	fmt.Fprintf(d, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%d" font-family="sans-serif" font-size="11">`+"\n", width, height)
	fmt.Fprintf(d, `<rect width="100%%" height="100%%" fill="white"/><text x="%d" y="14">seed %d: who leads the scheduler, %d faults, lateness of each tick</text>`+"\n",
		margin, r.plan.seed, r.faults())
	r.drawLeads(d, h)
	r.drawFaults(d, nodeCount*laneHeight+laneHeight)
	r.drawTicks(d, h, field+laneHeight)
	d.WriteString("</svg>\n")
	if err := os.MkdirAll(folder, 0o750); err != nil {
		r.Error(err)
	}
	path := filepath.Join(folder, fmt.Sprintf("timeline-%d.svg", r.plan.seed))
	if err := os.WriteFile(path, []byte(d.String()), 0o600); err != nil {
		r.Error(err)
	}
	r.Logf("timeline: %s", path)
}

func (r *run) drawLeads(d *drawing, h *checker.History) {
	for i, k := range r.keepers {
		fmt.Fprintf(d, `<text x="4" y="%d">%s</text>`+"\n", (i+1)*laneHeight+14, html.EscapeString(k.id))
	}
	leads := leadsOf(h)
	for i, lead := range leads {
		until := d.to
		if i+1 < len(leads) {
			until = leads[i+1].At
		}
		for lane, k := range r.keepers {
			if k.id == lead.Node {
				fmt.Fprintf(d, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"><title>%s, term %d</title></rect>`+"\n",
					d.x(lead.At), (lane+1)*laneHeight+3, max(0.5, d.x(until)-d.x(lead.At)), laneHeight-6, laneColors[lane], lead.Node, lead.Term)
			}
		}
	}
}

// leadsOf are the changes of the scheduler's leader, those to nobody among them.
func leadsOf(h *checker.History) []checker.Lead {
	var leads []checker.Lead
	for _, lead := range h.Leads {
		if lead.Role == "scheduler" {
			leads = append(leads, lead)
		}
	}
	return leads
}

func (r *run) drawFaults(d *drawing, y int) {
	fmt.Fprintf(d, `<text x="4" y="%d">faults</text>`+"\n", y+14)
	for _, e := range r.events {
		fmt.Fprintf(d, `<path d="M%.1f %d v%d" stroke="#b3261e" stroke-width="2"><title>%s</title></path>`+"\n",
			d.x(e.at), y+2, laneHeight-4, html.EscapeString(strings.TrimSpace(string(e.kind)+" "+e.node)))
	}
}

// drawTicks puts each tick at its time, and the higher the later it was: a third of
// the field for each power of ten from 10 ms.
func (r *run) drawTicks(d *drawing, h *checker.History, y int) {
	height := func(late time.Duration) float64 {
		share := math.Log10(max(1, late.Seconds()*100)) / 4
		return float64(y) + fieldHeight*(1-min(1, share))
	}
	for _, late := range []time.Duration{10 * time.Millisecond, 100 * time.Millisecond, time.Second, 10 * time.Second} {
		fmt.Fprintf(d, `<text x="4" y="%.0f">%s</text><path d="M%d %.1f H%.1f" stroke="#ddd"/>`+"\n", height(late), late, margin, height(late), d.x(d.to))
	}
	for _, entry := range h.Entries {
		if entry.Tick.Before(d.from) {
			continue
		}
		fmt.Fprintf(d, `<circle cx="%.1f" cy="%.1f" r="1.5" fill="%s"><title>%s: %s</title></circle>`+"\n",
			d.x(entry.Tick), height(entry.At.Sub(entry.Tick)), tickColor(entry.Verdict), html.EscapeString(entry.Cron), entry.Verdict)
	}
}

func tickColor(verdict string) string {
	switch verdict {
	case checker.Fired, checker.Triggered:
		return "#333"
	case checker.CaughtUp:
		return "#c2703d"
	}
	return "#aaa"
}
