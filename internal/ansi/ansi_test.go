package ansi

import (
	"fmt"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestApply(t *testing.T) {
	t.Parallel()
	for params, want := range map[string]Style{
		"":                       {},
		"0":                      {},
		"1;31":                   {Foreground: 2, Bold: true},
		"97;104":                 {Foreground: 16, Background: 13},
		"31;39":                  {},
		"3;4;7;9":                {Italic: true, Underline: true, Reverse: true, Strike: true},
		"1;2;22":                 {},
		"38;5;9":                 {Foreground: 10},
		"38;5;196;1":             {Foreground: 2, Bold: true},
		"48;5;255":               {Background: 8},
		"38:5:2":                 {Foreground: 3},
		"38;2;255;255;255;4":     {Foreground: 16, Underline: true},
		"48;2;0;0;0":             {Background: 1},
		"38":                     {},
		"38;5":                   {},
		"38;5;999":               {},
		"38;2;1;2":               {},
		"38;7;1":                 {},
		"999999999999999999999":  {},
		"38;2;99999999999;0;0":   {Foreground: 2},
		"31;;1":                  {Foreground: 2, Bold: true},
		strings.Repeat("31;", 9): {Foreground: 2},
	} {
		var got Style
		got.Apply([]byte(params))
		if got != want {
			t.Errorf("%q: %+v, want %+v", params, got, want)
		}
	}
	styled := Style{Foreground: 2, Background: 3, Bold: true, Faint: true, Italic: true, Underline: true, Reverse: true, Strike: true}
	for _, off := range []string{"0", "39;49;22;23;24;27;29"} {
		got := styled
		if got.Apply([]byte(off)); got != (Style{}) {
			t.Errorf("%q leaves %+v", off, got)
		}
	}
}

// written renders what a Scanner passes on, with colors in braces.
func written(parts ...string) string {
	var out strings.Builder
	s := Scanner{Text: func(r rune) { out.WriteRune(r) }, Color: func(p []byte) { fmt.Fprintf(&out, "{%s}", p) }}
	for _, part := range parts {
		s.Scan(part)
	}
	return out.String()
}

func TestScannerAcceptsSplitSequences(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"\x1b[1;31mred\x1b[0m":                             "{1;31}red{0}",
		"a\x1b]0;title\x07b":                               "ab",
		"a\x1b]52;c;Zm9v\x1b\\b":                           "ab",
		"\x1b]8;;javascript:alert(1)\x1b\\x\x1b]8;;\x1b\\": "x",
		"a\x1b]1337;File=inline=1:AAAA\ab":                 "ab",
		"a\x1bP1$r\x1b\\b\x1b_x\x1b\\c\x1b^y\x1b\\d":       "abcd",
		"a\x1b[2Jb\x1b[10;1Hc\x1b[?1049hd\x1b[>4;1me":      "abcde",
		"a\x1b[<31mb\x1b[31 mc":                            "abc",
		"a\x1b[" + strings.Repeat("9", 1000) + "mb":        "ab",
		"a\x1b]never ended\nb":                             "ab",
		"\x1b\x1b\x1b[31mred\x1b":                          "{31}red",
		"10%\r20%\r\ndone":                                 "10%\n20%\ndone",
	} {
		runes := []rune(text)
		for i := range runes {
			if got := written(string(runes[:i]), string(runes[i:])); got != want {
				t.Errorf("%q split at %d: %q, want %q", text, i, got, want)
			}
		}
	}
}

func FuzzScanner(f *testing.F) {
	for _, text := range []string{"\x1b[1;31mred\x1b[0m", "\x1b]0;title\x07after", "a\x1b[38;2;1;2;3;48;5;200mb", "\xff\x1b[\xff31m\u202e\r\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		plain := Strip(text)
		if !utf8.ValidString(plain) || strings.ContainsFunc(plain, func(r rune) bool {
			return r != '\n' && r != '\t' && unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)
		}) {
			t.Errorf("%q becomes %q", text, plain)
		}
		if again := Strip(plain); again != plain {
			t.Errorf("%q becomes %q, and that %q", text, plain, again)
		}
		var style Style
		s := Scanner{Text: func(rune) {}, Color: func(params []byte) {
			if style.Apply(params); len(params) > maxParams || style.Foreground > 16 || style.Background > 16 {
				t.Errorf("%q sets %+v by %q", text, style, params)
			}
		}}
		s.Scan(text)
	})
}
