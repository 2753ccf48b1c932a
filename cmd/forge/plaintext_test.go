package main

import (
	"bytes"
	"io"
	"testing"
)

func TestPlainTextRemovesControlSequences(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, text, colored, bare string }{
		{"text", "a\tb €\n", "a\tb €\n", "a\tb €\n"},
		{"colours", "\x1b[1;31mred\x1b[0m", "\x1b[1;31mred\x1b[0m\x1b[0m", "red"},
		{"cursor", "a\x1b[2Jb\x1b[10;1Hc\x1b[?25ld\x1b[>4;1me", "abcde", "abcde"},
		{"title", "a\x1b]0;title\x07b", "ab", "ab"},
		{"clipboard", "a\x1b]52;c;Zm9v\x1b\\b", "ab", "ab"},
		{"link", "\x1b]8;;http://x\x1b\\text\x1b]8;;\x1b\\", "text", "text"},
		{"device string", "a\x1bP1$r\x1b\\b", "ab", "ab"},
		{"open string", "a\x1b]0;never closed\nb", "ab", "ab"},
		{"reset", "a\x1bcb\x1b(0c", "abc", "abc"},
		{"C1", "a\u009b2Jb\u0090c", "a2Jbc", "a2Jbc"},
		{"controls", "a\bb\vc\x7fd\x0ee", "abcde", "abcde"},
		{"direction", "a\u202eb", "a\uFFFDb", "a\uFFFDb"},
		{"progress", "10%\r20%\r\ndone\r\n", "10%\n20%\ndone\n", "10%\n20%\ndone\n"},
		{"long sequence", "a\x1b[" + string(bytes.Repeat([]byte("1;"), 100)) + "mb", "ab", "ab"},
		{"broken sequence", "a\x1b[1\nb", "a\nb", "a\nb"},
	} {
		runes := []rune(test.text)
		for i := range runes {
			for _, colors := range []bool{true, false} {
				var out bytes.Buffer
				p := newPlainText(&out, colors)
				_, _ = io.WriteString(p, string(runes[:i]))
				_, _ = io.WriteString(p, string(runes[i:]))
				_ = p.Close()
				want := test.bare
				if colors {
					want = test.colored
				}
				if out.String() != want {
					t.Errorf("%s, split at %d, colours %v: got %q, want %q", test.name, i, colors, out.String(), want)
				}
			}
		}
	}
}
