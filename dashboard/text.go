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

	"github.com/forge-scheduler/forge/internal/argschema"
)

// coarse formats a duration that counts up or down on the page, in at most two units.
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

// precise formats a measured duration.
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

// The formats of a stamp.
const (
	modeAgo   = "ago"   // 4s ago
	modeSince = "since" // 4s
	modeUntil = "until" // in 4s
	modeLeft  = "left"  // 2.2 s
)

// stamp is an instant on the page. The server formats it, and app.js keeps it current.
type stamp struct {
	Mode string
	ISO  string
	MS   int64
	Text string
	// Moves names an instant that moves every second, in the ages of a beat.
	Moves string
}

// moving marks an instant that moves every second.
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

// Escape sequences: CSI, then the string kinds (OSC, DCS, SOS, PM, APC) up to their
// terminator, then the short ones.
var escapes = regexp.MustCompile("\x1b\\[[0-?]*[ -/]*[@-~]|\x1b[\\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\\\)?|\x1b[ -/]*[0-~]?")

// plainText makes the output of a job safe to show. It removes escape sequences, control
// characters and characters that reorder a line, and it converts the carriage returns of
// progress bars to line ends.
func plainText(s string) string {
	s = strings.ToValidUTF8(s, string(utf8.RuneError))
	s = escapes.ReplaceAllString(s, "")
	s = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(s)
	return strings.Map(cleanRune, s)
}

// removeControls removes the characters that plainText removes from a whole page, because
// names, arguments and answers of receivers are shown too.
func removeControls(html []byte) []byte {
	if utf8.Valid(html) && !bytes.ContainsFunc(html, func(r rune) bool { return cleanRune(r) != r }) {
		return html
	}
	return bytes.Map(cleanRune, bytes.ToValidUTF8(html, []byte(string(utf8.RuneError))))
}

// cleanRune returns a negative value for a rune to remove.
func cleanRune(r rune) rune {
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

// prettyJSON indents JSON unless it is nested too deeply. Anyone who can insert rows may
// have written it, and each level adds indentation to every line in it.
func prettyJSON(raw json.RawMessage) string {
	var out bytes.Buffer
	if len(raw) == 0 || argschema.CheckDepth(raw) != nil || json.Indent(&out, raw, "", "  ") != nil {
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
