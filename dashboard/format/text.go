package format

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/forge-scheduler/forge/internal/ansi"
	"github.com/forge-scheduler/forge/internal/argschema"
)

// Number formats a number with commas between groups of three digits.
func Number(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// Capital capitalizes the first letter. It keeps a text that begins with the name of a setting,
// such as idle_session_timeout.
func Capital(name string) string {
	first, size := utf8.DecodeRuneInString(name)
	if word, _, _ := strings.Cut(name, " "); size == 0 || strings.Contains(word, "_") {
		return name
	}
	return string(unicode.ToUpper(first)) + name[size:]
}

// Percent formats a fraction for CSS and SVG.
func Percent(fraction float64) string { return fmt.Sprintf("%.3f%%", 100*fraction) }

// Coarse formats a duration that counts up or down on the page, in at most two units.
// static/app.js has the same rule.
func Coarse(d time.Duration) string {
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

// Precise formats a measured duration.
func Precise(d time.Duration) string {
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
		return Coarse(d)
	}
}

// Millis formats a measured duration in milliseconds.
func Millis(ms float64) string { return Precise(time.Duration(ms * float64(time.Millisecond))) }

// PlainText makes the output of a job safe to show. It removes escape sequences, control
// characters and characters that reorder a line, and it converts the carriage returns of
// progress bars to line ends.
func PlainText(s string) string { return ansi.Strip(s) }

// RemoveControls removes the characters that PlainText removes from a whole page, because
// names, arguments and answers of receivers are shown too.
func RemoveControls(html []byte) []byte {
	if isClean(html) {
		return html
	}
	return bytes.Map(cleanRune, bytes.ToValidUTF8(html, []byte(string(utf8.RuneError))))
}

// isClean reports whether html is valid UTF-8 and has nothing to remove. It looks at each byte of
// each page, so it skips plain ASCII first.
func isClean(html []byte) bool {
	for i := 0; i < len(html); {
		if b := html[i]; ' ' <= b && b <= '~' {
			i++
			continue
		}
		r, size := utf8.DecodeRune(html[i:])
		if cleanRune(r) != r || r == utf8.RuneError && size == 1 {
			return false
		}
		i += size
	}
	return true
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

// PrettyJSON indents JSON unless it is nested too deeply. Anyone who can insert rows may
// have written it, and each level adds indentation to every line in it.
func PrettyJSON(raw json.RawMessage) string {
	var out bytes.Buffer
	if len(raw) == 0 || argschema.CheckDepth(raw) != nil || json.Indent(&out, raw, "", "  ") != nil {
		return string(raw)
	}
	return out.String()
}

// Plural returns a number with the word for one or for many.
func Plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// Clock formats an instant in the cron's zone, in which its schedule is defined.
func Clock(t time.Time, zone *time.Location) string {
	return t.In(zone).Format("2006-01-02 15:04:05 MST")
}

// BytesText formats a number of bytes.
func BytesText(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f kB", float64(n)/(1<<10))
	default:
		return fmt.Sprintf("%.1f MB", float64(n)/(1<<20))
	}
}

// UTC formats an instant; empty for none.
func UTC(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05.000 UTC")
}
