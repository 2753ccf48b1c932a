package pages

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

// drawn renders pieces as class{text}, and marks as [text].
func drawn(pieces []piece) string {
	var text strings.Builder
	for _, p := range pieces {
		if p.Found {
			fmt.Fprintf(&text, "[%s]", p.Text)
		} else if p.Text != "" {
			fmt.Fprintf(&text, "%s{%s}", p.Class, p.Text)
		}
	}
	return text.String()
}

func outputOf(find string, chunks ...jobstore.LogChunk) *output {
	o := &output{search: newOutputSearch(find)}
	for i, c := range chunks {
		c.Seq, c.At = i+1, dashboardtest.Epoch.Add(time.Duration(i)*time.Second)
		o.add(c)
	}
	return o
}

func stdout(text string) jobstore.LogChunk { return jobstore.LogChunk{Stream: "stdout", Chunk: text} }

func stderr(text string) jobstore.LogChunk { return jobstore.LogChunk{Stream: "stderr", Chunk: text} }

func TestOutputColors(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		chunks []jobstore.LogChunk
		want   string
	}{
		"plain":             {[]jobstore.LogChunk{stdout("a\n"), stdout("b\n")}, "stdout{a\nb\n}"},
		"split sequence":    {[]jobstore.LogChunk{stdout("a\x1b[3"), stdout("1mb"), stderr("c")}, "stdout{a}stdout fg2{b}stderr{c}"},
		"split by a stream": {[]jobstore.LogChunk{stdout("\x1b[1;3"), stderr("e"), stdout("2mb"), stdout("\x1b[0mc")}, "stderr{e}stdout fg3 bold{b}stdout{c}"},
		"every attribute":   {[]jobstore.LogChunk{stdout("\x1b[2;3;4;9;97;44mx")}, "stdout fg16 bg5 faint italic underline strike{x}"},
		"reverse":           {[]jobstore.LogChunk{stdout("\x1b[7mx\x1b[32my")}, "stdout bg1{x}stdout bg3{y}"},
		"links and titles":  {[]jobstore.LogChunk{stdout("\x1b]8;;javascript:alert(1)\x1b\\x\x1b]8;;\x1b\\\x1b]0;t\ay")}, "stdout{xy}"},
		"huge parameters":   {[]jobstore.LogChunk{stdout("\x1b[" + strings.Repeat("9", 5000) + "mx\x1b[38;5;99999999999999999999my")}, "stdout{xy}"},
	} {
		if got, _ := outputOf("", test.chunks...).pieces(false); drawn(got) != test.want {
			t.Errorf("%s: %s, want %s", name, drawn(got), test.want)
		}
	}
}

func TestOutputTimes(t *testing.T) {
	t.Parallel()
	got, _ := outputOf("", stdout("a\nb"), stderr("c\n"), stdout("d\n")).pieces(true)
	want := "at{12:00:00.000  }stdout{a\n}at{12:00:00.000  }stdout{b}stderr{c\n}at{12:00:02.000  }stdout{d\n}"
	if drawn(got) != want {
		t.Errorf("%s, want %s", drawn(got), want)
	}
}

func TestOutputSearch(t *testing.T) {
	t.Parallel()
	chunks := []jobstore.LogChunk{stdout("one\nt\x1b[31mW"), stderr("no <b>\n"), stdout("o\x1b[0m two\nthree\n"), stderr("TWO")}
	for find, want := range map[string]string{
		"two": "at{     3  }[tWo]stdout{ }[two]stdout{\n}at{     5  }[TWO]stderr{\n}2 lines match.",
		"<b>": "at{     2  }stderr{no }[<b>]stderr{\n}1 line matches.",
		"xyz": "No line matches.",
	} {
		got, found := outputOf(find, chunks...).pieces(false)
		if drawn(got)+found != want {
			t.Errorf("%s: %s%s, want %s", find, drawn(got), found, want)
		}
	}
}

// A search reads an output of any length and keeps a bounded part of it.
func TestOutputSearchIsBounded(t *testing.T) {
	t.Parallel()
	o := outputOf("line 7", stdout(strings.Repeat("x", 3*maxLine)))
	for range 10_000 {
		o.add(stdout("line 7\n"))
	}
	got, found := o.pieces(true)
	if found != "10,000 lines match; the last 500 are shown." || len(o.search.lines) != maxFound || len(got) > 4*maxFound {
		t.Errorf("%d pieces, %q", len(got), found)
	}
	o.add(stdout("line 7"))
	for range 2 { // drawing ends no line
		if _, found := o.pieces(false); !strings.HasPrefix(found, "10,001 lines") {
			t.Errorf("with an open line: %s", found)
		}
	}
}

func TestOutputDrawingIsBounded(t *testing.T) {
	t.Parallel()
	o := outputOf("", stdout(strings.Repeat("\n", maxLines+10)+"end"))
	got, _ := o.pieces(true)
	if !o.Cut || len(got) > 2*maxLines+2 || got[len(got)-1].Text != "end" {
		t.Errorf("cut %v, %d pieces", o.Cut, len(got))
	}
	for _, end := range []string{"\r\n", "\r", "\n"} {
		o = outputOf("", stdout(strings.Repeat("x"+end, maxLines+10)+"end"))
		got, _ := o.pieces(false)
		if want := strings.Repeat("x\n", maxLines) + "end"; !o.Cut || len(got) != 1 || got[0].Text != want {
			t.Errorf("line ends %q: cut %v, %d pieces", end, o.Cut, len(got))
		}
	}
	o = outputOf("", stdout(strings.Repeat("\x1b[1mx\x1b[my", maxPieces)))
	if got, _ := o.pieces(false); len(got) > maxPieces+3 {
		t.Errorf("%d pieces", len(got))
	}
}
