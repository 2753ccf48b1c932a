package pages

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/ansi"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

// The bounds of the output that a page shows. It shows the end.
const (
	maxOutput = 256 << 10
	maxLines  = 5000
	// maxPieces bounds the changes of color. What follows has the default color.
	maxPieces = 20_000
)

// output collects the output of an attempt. It reads only new chunks.
type output struct {
	attempt int
	seq     int
	chunks  []jobstore.LogChunk
	size    int
	Cut     bool
	// search is nil if the page shows the whole output.
	search *outputSearch
}

func (o *output) update(ctx context.Context, jobs cluster.Jobs, id int64, attempt int, find string) error {
	if o.attempt != attempt {
		*o = output{attempt: attempt, search: newOutputSearch(find)}
	}
	for {
		chunks, err := jobs.Logs(ctx, id, attempt, o.seq)
		if err != nil {
			return fmt.Errorf("read output of job %d: %w", id, err)
		}
		if len(chunks) == 0 {
			return nil
		}
		for _, c := range chunks {
			o.add(c)
		}
	}
}

func (o *output) add(c jobstore.LogChunk) {
	o.seq = max(o.seq, c.Seq)
	if o.search != nil {
		o.search.add(c)
		return
	}
	o.chunks = append(o.chunks, c)
	o.size += len(c.Chunk)
	for o.size > maxOutput && len(o.chunks) > 1 {
		o.size -= len(o.chunks[0].Chunk)
		o.chunks, o.Cut = o.chunks[1:], true
	}
}

// pieces returns the output, with the time before each line if times is set. It sets Cut if
// some of it is not shown. found describes the result of a search.
func (o *output) pieces(times bool) (shown []piece, found string) {
	if o.search != nil {
		last := o.search.finish()
		return last.pieces(times), last.result()
	}
	const all = math.MaxInt
	lines := all - o.draw(times, all).skip
	skip := max(lines-maxLines, 0)
	o.Cut = o.Cut || skip > 0
	return o.draw(times, skip).pieces, ""
}

// draw draws the output without the lines before a number of line ends. The skip of the result is how
// many of these line ends there were not.
func (o *output) draw(times bool, skip int) *outputDrawing {
	d := &outputDrawing{times: times, skip: skip, streams: map[string]*outputStream{}}
	for _, c := range o.chunks {
		d.add(c)
	}
	d.flush()
	return d
}

// piece is consecutive output that looks the same. Found marks what was searched for.
type piece struct {
	Class, Text string
	Found       bool
}

// outputStream is one stream of an attempt. It keeps its state between chunks, because a
// sequence or a color may span two of them.
type outputStream struct {
	scanner ansi.Scanner
	style   ansi.Style
}

// outputDrawing joins chunks to pieces.
type outputDrawing struct {
	times   bool
	skip    int // line ends before the first line that is shown
	streams map[string]*outputStream

	pieces  []piece
	class   string
	text    strings.Builder
	current jobstore.LogChunk
	midLine bool
}

func (d *outputDrawing) add(c jobstore.LogChunk) {
	s := d.streams[c.Stream]
	if s == nil {
		s = &outputStream{}
		s.scanner.Text = func(r rune) { d.write(r, s.style) }
		s.scanner.Color = s.style.Apply
		d.streams[c.Stream] = s
	}
	d.current = c
	s.scanner.Scan(c.Chunk)
}

func (d *outputDrawing) write(r rune, style ansi.Style) {
	if d.skip > 0 {
		if r == '\n' {
			d.skip--
		}
		return
	}
	if d.times && !d.midLine {
		d.become("at")
		d.text.WriteString(timeOf(d.current))
	}
	if len(d.pieces) > maxPieces {
		style = ansi.Style{}
	}
	d.become(classOf(d.current.Stream, style))
	d.text.WriteRune(r)
	d.midLine = r != '\n'
}

// become begins a new piece if the class changes.
func (d *outputDrawing) become(class string) {
	if class != d.class {
		d.flush()
		d.class = class
	}
}

func (d *outputDrawing) flush() {
	if d.text.Len() > 0 {
		d.pieces = append(d.pieces, piece{Class: d.class, Text: d.text.String()})
		d.text.Reset()
	}
}

// timeOf returns when a chunk was written, for the begin of a line.
func timeOf(c jobstore.LogChunk) string { return c.At.UTC().Format("15:04:05.000") + "  " }

// classOf returns the classes of app.css for a style.
func classOf(stream string, s ansi.Style) string {
	if s == (ansi.Style{}) {
		return stream
	}
	if s.Reverse {
		s.Foreground, s.Background = s.Background, max(s.Foreground, 1)
	}
	classes := []string{stream}
	if s.Foreground > 0 {
		classes = append(classes, "fg"+strconv.Itoa(int(s.Foreground)))
	}
	if s.Background > 0 {
		classes = append(classes, "bg"+strconv.Itoa(int(s.Background)))
	}
	for _, attribute := range []struct {
		on   bool
		name string
	}{{s.Bold, "bold"}, {s.Faint, "faint"}, {s.Italic, "italic"}, {s.Underline, "underline"}, {s.Strike, "strike"}} {
		if attribute.on {
			classes = append(classes, attribute.name)
		}
	}
	return strings.Join(classes, " ")
}

// outputView is how the reader wants to see the output: parameters of the address.
type outputView struct {
	Find      string
	Wrap      bool
	Times     bool
	Path      string
	Attempt   string
	WrapPath  string // the same view, with the other setting
	TimesPath string
	AllPath   string // the same view without the search
	Download  string
}

// maxFind bounds the text that is searched for.
const maxFind = 200

func outputViewOf(req *request, id int64) outputView {
	find := []rune(req.Values.Get("find"))
	v := outputView{
		Find: string(find[:min(len(find), maxFind)]), Wrap: req.Values.Get("wrap") != "off", Times: req.Values.Get("times") == "on",
		Path: jobPath(id), Attempt: req.Values.Get("attempt"),
	}
	v.WrapPath, v.TimesPath, v.AllPath = v.with(v.Find, !v.Wrap, v.Times), v.with(v.Find, v.Wrap, !v.Times), v.with("", v.Wrap, v.Times)
	times := ""
	if v.Times {
		times = "true"
	}
	v.Download = strings.TrimSuffix("/api/v1"+v.Path+"/output?"+web.Encode("attempt", v.Attempt, "times", times), "?")
	return v
}

func (v outputView) with(find string, wrap, times bool) string {
	values := []string{"attempt", v.Attempt, "find", find}
	if !wrap {
		values = append(values, "wrap", "off")
	}
	if times {
		values = append(values, "times", "on")
	}
	return strings.TrimSuffix(v.Path+"?"+web.Encode(values...), "?") + "#h-output"
}
