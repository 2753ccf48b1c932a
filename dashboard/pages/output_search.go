package pages

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/internal/ansi"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

const (
	// maxFound is how many matching lines a page shows: the last ones.
	maxFound = 500
	// maxLine bounds the lines that are searched. A longer one counts as several.
	maxLine = 4 << 10
)

// outputSearch finds the lines of an output that contain a text, without regard to case. It
// reads the whole output and keeps only the matching lines.
type outputSearch struct {
	pattern *regexp.Regexp
	streams map[string]*searchedStream
	lines   []foundLine
	found   int
	ended   int // the number of the last line
}

type foundLine struct {
	number int
	chunk  jobstore.LogChunk // its stream and the time when it began
	text   string
}

// searchedStream holds the line of a stream that has not ended yet.
type searchedStream struct {
	scanner ansi.Scanner
	begin   jobstore.LogChunk
	line    strings.Builder
}

// newOutputSearch returns nil for an empty text.
func newOutputSearch(text string) *outputSearch {
	if text == "" {
		return nil
	}
	return &outputSearch{pattern: regexp.MustCompile("(?i)" + regexp.QuoteMeta(text)), streams: map[string]*searchedStream{}}
}

func (f *outputSearch) add(c jobstore.LogChunk) {
	s := f.streams[c.Stream]
	if s == nil {
		s = &searchedStream{}
		f.streams[c.Stream] = s
	}
	s.scanner.Text = func(r rune) {
		if s.line.Len() == 0 {
			s.begin = jobstore.LogChunk{At: c.At, Stream: c.Stream}
		}
		if r != '\n' {
			s.line.WriteRune(r)
		}
		if r == '\n' || s.line.Len() >= maxLine {
			f.end(s)
		}
	}
	s.scanner.Scan(c.Chunk)
}

// end ends the line of a stream.
func (f *outputSearch) end(s *searchedStream) {
	f.ended++
	if f.pattern.MatchString(s.line.String()) {
		f.found++
		f.lines = append(f.lines, foundLine{f.ended, s.begin, s.line.String()})
		if len(f.lines) > maxFound {
			f.lines = f.lines[1:]
		}
	}
	s.line.Reset()
}

// finish returns a copy of the search in which every line has ended, because an output may end
// without a line end, or go on.
func (f *outputSearch) finish() *outputSearch {
	last := &outputSearch{pattern: f.pattern, lines: slices.Clone(f.lines), found: f.found, ended: f.ended}
	for _, name := range slices.Sorted(maps.Keys(f.streams)) {
		if s := f.streams[name]; s.line.Len() > 0 {
			open := &searchedStream{begin: s.begin}
			open.line.WriteString(s.line.String())
			last.end(open)
		}
	}
	return last
}

// maxMarks bounds the marks in one line.
const maxMarks = 100

// pieces returns the matching lines with their numbers, and marks what was searched for.
func (f *outputSearch) pieces(times bool) (all []piece) {
	for _, line := range f.lines {
		before := fmt.Sprintf("%6d  ", line.number)
		if times {
			before += timeOf(line.chunk)
		}
		all = append(all, piece{Class: "at", Text: before})
		from := 0
		for _, at := range f.pattern.FindAllStringIndex(line.text, maxMarks) {
			all = append(all, piece{Class: line.chunk.Stream, Text: line.text[from:at[0]]}, piece{Text: line.text[at[0]:at[1]], Found: true})
			from = at[1]
		}
		all = append(all, piece{Class: line.chunk.Stream, Text: line.text[from:] + "\n"})
	}
	return all
}

// result describes what was found.
func (f *outputSearch) result() string {
	switch n := f.found; {
	case n > maxFound:
		return fmt.Sprintf("%s lines match; the last %d are shown.", format.Number(int64(n)), maxFound)
	case n == 0:
		return "No line matches."
	case n == 1:
		return "1 line matches."
	default:
		return format.Number(int64(n)) + " lines match."
	}
}
