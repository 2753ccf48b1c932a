package chaos

import (
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"html"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/test/chaos/checker"
)

// The drawing, in pixels: a strip for each minute of the run, one below the other.
// A strip has a lane for each node, one for PostgreSQL and the cluster, and a field of
// ticks by their lateness.
const (
	stripTime   = time.Minute
	stripWidth  = 1320
	laneHeight  = 14
	laneGap     = 4
	fieldHeight = 72
	stripGap    = 26
	gutter      = 64
	headHeight  = 92
	lanesHeight = (nodeCount + 1) * (laneHeight + laneGap)
	stripHeight = lanesHeight + fieldHeight + stripGap
)

const (
	ink      = "#1f2933"
	faint    = "#8a94a0"
	line     = "#e4e8ec"
	onTime   = "#2f8f6b"
	caughtUp = "#d97706"
	passed   = "#b8c0c9"
)

// leadColors are of the nodes, handColors of those that break them, in their order.
var (
	leadColors = []string{"#8fb8de", "#f2c48d", "#b5d6a7"}
	handColors = []string{"#c2255c", "#1f2933", "#7048e8", "#0b7285", "#a87900", "#e8590c"}
)

// drawing is the run from its first second to its last.
type drawing struct {
	strings.Builder

	from, to time.Time
}

// strip is a minute of the run and how far down it is drawn.
type strip struct {
	*drawing

	from, to time.Time
	top      float64
}

func (s strip) holds(at time.Time) bool { return !at.Before(s.from) && at.Before(s.to) }

// x is where an instant is drawn; what is before or after the strip is at its end.
func (s strip) x(at time.Time) float64 {
	within := max(0, min(at.Sub(s.from), s.to.Sub(s.from)))
	return gutter + stripWidth*within.Seconds()/stripTime.Seconds()
}

// lane is how far down a lane begins; the one after the nodes' is the cluster's.
func (s strip) lane(number int) float64 { return s.top + float64(number*(laneHeight+laneGap)) }

// strips cut the run into minutes.
func (d *drawing) strips() []strip {
	var all []strip
	for from := d.from; from.Before(d.to); from = from.Add(stripTime) {
		to := from.Add(stripTime)
		if to.After(d.to) {
			to = d.to
		}
		all = append(all, strip{d, from, to, float64(headHeight + len(all)*stripHeight)})
	}
	return all
}

func (d *drawing) text(x, y float64, color, text string) {
	fmt.Fprintf(d, `<text x="%.1f" y="%.1f" fill="%s">%s</text>`+"\n", x, y, color, html.EscapeString(text))
}

func (d *drawing) rectangle(x, y, width, height float64, color, title string) {
	fmt.Fprintf(d, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="1.5" fill="%s"><title>%s</title></rect>`+"\n",
		x, y, max(0.8, width), height, color, html.EscapeString(title))
}

func (d *drawing) dot(x, y float64, color, title string) {
	fmt.Fprintf(d, `<circle cx="%.1f" cy="%.1f" r="1.7" fill="%s"><title>%s</title></circle>`+"\n", x, y, color, html.EscapeString(title))
}

// draw writes the timeline of leaders, faults and ticks as an SVG into a folder.
func (r *run) draw(h *checker.History, findings int, folder string) {
	if err := os.MkdirAll(folder, 0o750); err != nil {
		r.Error(err)
	}
	path := filepath.Join(folder, fmt.Sprintf("timeline-%d.svg", r.seed))
	if err := os.WriteFile(path, []byte(r.picture(h, findings)), 0o600); err != nil {
		r.Error(err)
	}
	r.Logf("timeline: %s", path)
}

func (r *run) picture(h *checker.History, findings int) string {
	began := r.crons[0].Since
	d := &drawing{from: began, to: r.crons[0].Until.Add(2 * time.Second)}
	strips := d.strips()
	fmt.Fprintf(d, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="system-ui, sans-serif" font-size="11">`+"\n",
		gutter+stripWidth+20, headHeight+len(strips)*stripHeight)
	d.WriteString(`<rect width="100%" height="100%" fill="white"/>` + "\n")
	fmt.Fprintf(d, `<text x="%d" y="26" font-size="17" font-weight="600" fill="%s">Seed %d: %d faults in %s, %d terms of the scheduler, %d ticks recorded, %d findings</text>`+"\n",
		gutter, ink, r.seed, r.faults(), d.to.Sub(d.from).Round(time.Second), terms(h), recorded(h), findings)
	d.legend()
	for _, s := range strips {
		s.frame(r.keepers)
		s.leads(r.keepers, leadsOf(h))
		s.faults(r.keepers, r.events)
		s.ticks(h.Entries)
	}
	d.WriteString("</svg>\n")
	return d.String()
}

func recorded(h *checker.History) (ticks int64) {
	for _, row := range h.Rows {
		ticks += row.Count
	}
	return ticks
}

// legend says what the colors mean.
func (d *drawing) legend() {
	x := float64(gutter)
	entry := func(y, width float64, color, text string) {
		d.rectangle(x, y-9, width, 11, color, text)
		d.text(x+width+5, y, ink, text)
		x += width + 24 + 6*float64(len(text))
	}
	for i, color := range leadColors {
		entry(50, 18, color, fmt.Sprintf("%c leads", 'a'+i))
	}
	for _, verdict := range []struct{ color, text string }{
		{onTime, "tick fired"}, {caughtUp, "caught up"}, {passed, "skipped, queued, replaced"},
	} {
		entry(50, 6, verdict.color, verdict.text)
	}
	x = gutter
	for i, h := range injectors {
		entry(70, 3, handColors[i], h.name)
	}
}

// frame draws what is there without a run: lanes, seconds, grid.
func (s strip) frame(keepers []*keeper) {
	s.text(6, s.lane(0)+11, ink, s.from.Sub(s.drawing.from).String())
	names := []string{}
	for _, k := range keepers {
		names = append(names, k.id)
	}
	end := s.x(s.to)
	for i, name := range append(names, "cluster") {
		s.rectangle(gutter, s.lane(i), end-gutter, laneHeight, "#f4f6f8", name)
		fmt.Fprintf(s, `<text x="%d" y="%.1f" fill="%s" text-anchor="end">%s</text>`+"\n", gutter-6, s.lane(i)+11, faint, name)
	}
	for at := s.from; !at.After(s.to); at = at.Add(10 * time.Second) {
		fmt.Fprintf(s, `<path d="M%.1f %.1f v%d" stroke="%s"/>`+"\n", s.x(at), s.top, lanesHeight+fieldHeight, line)
	}
	for _, late := range []time.Duration{10 * time.Millisecond, 100 * time.Millisecond, time.Second, 10 * time.Second} {
		y := s.height(late)
		fmt.Fprintf(s, `<path d="M%d %.1f H%.1f" stroke="%s"/>`+"\n", gutter, y, end, line)
		fmt.Fprintf(s, `<text x="%d" y="%.1f" fill="%s" text-anchor="end" font-size="9">%s</text>`+"\n", gutter-6, y+3, faint, late)
	}
}

// height of a lateness: a quarter of the field for each power of ten from 10 ms.
func (s strip) height(late time.Duration) float64 {
	share := math.Log10(max(1, late.Seconds()*100)) / 4
	return s.top + lanesHeight + 4 + (fieldHeight-8)*(1-min(1, share))
}

func (s strip) leads(keepers []*keeper, leads []checker.Lead) {
	for i, lead := range leads {
		until := s.drawing.to
		if i+1 < len(leads) {
			until = leads[i+1].At
		}
		lane := slices.IndexFunc(keepers, func(k *keeper) bool { return k.id == lead.Node })
		if lane >= 0 && lead.At.Before(s.to) && until.After(s.from) {
			s.rectangle(s.x(lead.At), s.lane(lane), s.x(until)-s.x(lead.At), laneHeight, leadColors[lane], fmt.Sprintf("%s, term %d", lead.Node, lead.Term))
		}
	}
}

// leadsOf are the changes of the scheduler's leader, those to nobody among them.
func leadsOf(h *checker.History) []checker.Lead {
	return slices.DeleteFunc(slices.Clone(h.Leads), func(l checker.Lead) bool { return l.Role != "scheduler" })
}

// faults are bars on the lane of the node that they struck.
func (s strip) faults(keepers []*keeper, events []event) {
	for _, e := range events {
		number := slices.IndexFunc(injectors, func(h injector) bool { return slices.Contains(h.plan, e.kind) })
		if number < 0 || !s.holds(e.at) {
			continue // it came of another
		}
		lane := slices.IndexFunc(keepers, func(k *keeper) bool { return k.id == e.node })
		if lane < 0 {
			lane = len(keepers)
		}
		s.rectangle(s.x(e.at)-1.5, s.lane(lane)-1, 3, laneHeight+2, handColors[number], strings.TrimSpace(string(e.kind)+" "+e.node))
	}
}

// ticks are dots at their times, and the higher the later they were.
func (s strip) ticks(entries []checker.Entry) {
	entries = slices.DeleteFunc(slices.Clone(entries), func(e checker.Entry) bool { return !s.holds(e.Tick) })
	// What was on time would hide the rest.
	slices.SortStableFunc(entries, func(a, b checker.Entry) int { return cmp.Compare(rank(a), rank(b)) })
	for _, entry := range entries {
		late := entry.At.Sub(entry.Tick)
		s.dot(s.x(entry.Tick), s.height(late), tickColor(entry.Verdict), fmt.Sprintf("%s: %s after %s", entry.Cron, entry.Verdict, late.Round(time.Millisecond)))
	}
}

func rank(e checker.Entry) int {
	return slices.Index([]string{passed, onTime, caughtUp}, tickColor(e.Verdict))
}

func tickColor(verdict string) string {
	switch verdict {
	case checker.Fired, checker.Triggered:
		return onTime
	case checker.CaughtUp:
		return caughtUp
	}
	return passed
}

func TestPictureOfARun(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	r := &run{T: t, seed: 7, keepers: []*keeper{{id: "a"}, {id: "b"}, {id: "c"}}}
	r.crons = []cron{{Cron: checker.Cron{Name: "pulse", Since: began, Until: began.Add(100 * time.Second)}}}
	r.events = []event{{began.Add(3 * time.Second), killLeader, "a"}, {began.Add(70 * time.Second), restartFast, ""}}
	h := &checker.History{
		Leads:   []checker.Lead{{At: began, Role: "scheduler", Term: 1, Node: "a"}, {At: began.Add(4 * time.Second), Role: "scheduler", Term: 2, Node: "<b>"}},
		Entries: []checker.Entry{{At: began.Add(time.Second), Tick: began.Add(time.Second), Cron: "pulse", Verdict: checker.Fired}},
		Rows:    []checker.Row{{Count: 1}},
	}
	picture := r.picture(h, 0)
	for decoder := xml.NewDecoder(strings.NewReader(picture)); ; {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{
		"Seed 7: 2 faults in 1m42s, 2 terms of the scheduler, 1 ticks recorded, 0 findings", "<title>a, term 1</title>",
		"<title>leader killed a</title>", "<title>PostgreSQL restarted fast</title>", "<title>pulse: fired after 0s</title>", ">1m0s</text>",
	} {
		if !strings.Contains(picture, want) {
			t.Errorf("the picture has no %q", want)
		}
	}
}
