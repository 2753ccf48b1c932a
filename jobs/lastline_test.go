package jobs

import (
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/forge-scheduler/forge/internal/config"
)

func TestLastLine(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		parts []string
		want  string
	}{
		"none":             {nil, ""},
		"blank":            {[]string{" \n\t\r\n"}, ""},
		"one":              {[]string{"no such file"}, "no such file"},
		"last":             {[]string{"first\nsecond\n"}, "second"},
		"blank lines":      {[]string{"first\n\n \n\x1b[0m\n"}, "first"},
		"split":            {[]string{"fi", "rst\nsec", "ond\r\n"}, "second"},
		"colors":           {[]string{"\x1b[1;31merr", "or:\x1b[0m disk full\x1b[K\n"}, "error: disk full"},
		"title":            {[]string{"bad\x1b]0;title\a\x1b]8;;http://x\x1b\\ link\n"}, "bad link"},
		"open string":      {[]string{"failed\n\x1b]0;never closed"}, "failed"},
		"progress":         {[]string{"10%\r20%\rgave up"}, "gave up"},
		"bytes":            {[]string{"bad \xff\xfe\x00\u202e name\n"}, "bad \ufffd\ufffd name"},
		"secret":           {[]string{"password hunter22-abc was refused\n"}, "password [redacted] was refused"},
		"split secret":     {[]string{"hunt", "er22-abc refused\n"}, "[redacted] refused"},
		"colored secret":   {[]string{"hunter\x1b[31m22-abc refused\n"}, "[redacted] refused"},
		"long line":        {[]string{strings.Repeat("é", maxLastLine)}, strings.Repeat("é", maxLastLine/2) + "…"},
		"after a long one": {[]string{strings.Repeat("x", 3*tailBytes), "\nend"}, "end"},
		"long write":       {[]string{"gone\n", strings.Repeat("y", 3*tailBytes) + "\nlast\n"}, "last"},
		"many writes":      {append(strings.Split(strings.Repeat("a line that is written,", 5000), ","), "\nthe last"), "the last"},
	} {
		secrets := newRedactor(config.Job{Env: map[string]string{"API_TOKEN": "hunter22-abc"}}, "")
		w := &tailWriter{Writer: io.Discard, secrets: secrets}
		for _, part := range test.parts {
			if n, err := w.Write([]byte(part)); n != len(part) || err != nil {
				t.Fatal(n, err)
			}
		}
		if got := w.lastLine(); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
		if len(w.tail) > 2*tailBytes {
			t.Errorf("%s: %d bytes are kept", name, len(w.tail))
		}
	}
}

// However a secret of several lines is written, none of it is shown.
func TestLastLineOfASecret(t *testing.T) {
	t.Parallel()
	secret := strings.Repeat("0123456789abcdef\n", 40) + "the end of a private key"
	secrets := newRedactor(config.Job{Env: map[string]string{"PRIVATE_KEY": secret}}, "")
	for fill := range 1200 {
		w := &tailWriter{Writer: io.Discard, secrets: secrets}
		_, _ = w.Write([]byte(strings.Repeat("x", 2*tailBytes-fill) + secret[:fill%len(secret)]))
		_, _ = w.Write([]byte(secret[fill%len(secret):] + strings.Repeat("y", tailBytes-600+fill)))
		if got := w.lastLine(); strings.Contains(got, "private") || strings.Contains(got, "0123") || !utf8.ValidString(got) {
			t.Fatalf("with %d bytes: %q", fill, got)
		}
	}
}
