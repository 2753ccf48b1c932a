package dashboard

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/forge-scheduler/forge/internal/jsondepth"
)

// coarse is a span that counts up or down on the page, in at most two units.
// static/app.js has the same rule.
func coarse(d time.Duration) string {
	s := int64(max(d, 0) / time.Second)
	switch {
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 3600:
		return fmt.Sprintf("%dm %02ds", s/60, s%60)
	case s < 86400:
		return fmt.Sprintf("%dh %02dm", s/3600, s/60%60)
	default:
		return fmt.Sprintf("%dd %02dh", s/86400, s/3600%24)
	}
}

// precise is a span that was measured.
func precise(d time.Duration) string {
	switch ms := float64(d) / float64(time.Millisecond); {
	case ms < 0.05:
		return "0 ms"
	case ms < 10:
		return fmt.Sprintf("%.1f ms", ms)
	case ms < 1000:
		return fmt.Sprintf("%.0f ms", ms)
	case ms < 60_000:
		return fmt.Sprintf("%.2f s", ms/1000)
	default:
		return coarse(d)
	}
}

func millis(ms float64) string { return precise(time.Duration(ms * float64(time.Millisecond))) }

// How a stamp reads.
const (
	modeAgo   = "ago"   // 4s ago
	modeSince = "since" // 4s
	modeUntil = "until" // in 4s
	modeLeft  = "left"  // 2.2 s
)

// stamp is an instant on the page: written out for those who read without
// scripts, and kept moving by app.js for the others.
type stamp struct {
	Mode string
	ISO  string
	MS   int64
	Text string
	// Moves names an instant that moves on each second, among the ages of a beat.
	Moves string
}

// moving is the stamp of an instant that moves on each second.
func (s stamp) moving(name string) stamp {
	s.Moves = name
	return s
}

func newStamp(mode string, now, at time.Time) stamp {
	if at.IsZero() {
		return stamp{Text: "–"}
	}
	text := ""
	switch mode {
	case modeAgo:
		text = "just now"
		if now.Sub(at) >= time.Second {
			text = coarse(now.Sub(at)) + " ago"
		}
	case modeSince:
		text = coarse(now.Sub(at))
	case modeUntil:
		text = "in " + coarse(at.Sub(now))
		if at.Sub(now) < time.Second {
			text = "now"
		}
	}
	if mode == modeLeft {
		text = fmt.Sprintf("%.1f s", max(at.Sub(now), 0).Seconds())
	}
	return stamp{Mode: mode, ISO: at.UTC().Format(time.RFC3339Nano), MS: at.UnixMilli(), Text: text}
}

// Escape sequences: CSI, then the string kinds (OSC, DCS, SOS, PM, APC) up to
// their terminator, then the short ones.
var escapes = regexp.MustCompile("\x1b\\[[0-?]*[ -/]*[@-~]|\x1b[\\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\\\)?|\x1b[ -/]*[0-~]?")

// plainText makes what a job wrote safe and plain to read: without escape
// sequences and control characters, without characters that reorder a line, and
// with a progress bar's carriage returns as line ends.
func plainText(s string) string {
	s = strings.ToValidUTF8(s, string(utf8.RuneError))
	s = escapes.ReplaceAllString(s, "")
	s = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(s)
	return strings.Map(harmlessRune, s)
}

// harmless is a page without the characters that plainText leaves out, wherever the
// text comes from: names, arguments and what receivers answered are shown, too.
func harmless(html []byte) []byte {
	if utf8.Valid(html) && !bytes.ContainsFunc(html, func(r rune) bool { return harmlessRune(r) != r }) {
		return html
	}
	return bytes.Map(harmlessRune, bytes.ToValidUTF8(html, []byte(string(utf8.RuneError))))
}

// harmlessRune is negative for a rune that is left out.
func harmlessRune(r rune) rune {
	switch {
	case r == '\n' || r == '\t':
		return r
	case unicode.IsControl(r):
		return -1
	case unicode.Is(unicode.Bidi_Control, r):
		return utf8.RuneError
	}
	return r
}

// prettyJSON indents JSON that does not nest too deeply: anybody who may insert rows
// may have written it, and each level widens each line below it.
func prettyJSON(raw json.RawMessage) string {
	var out bytes.Buffer
	if len(raw) == 0 || jsondepth.Check(raw) != nil || json.Indent(&out, raw, "", "  ") != nil {
		return string(raw)
	}
	return out.String()
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
