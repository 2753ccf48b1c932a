package filter

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var keys = []Key{
	{Name: "kind", Example: "send*"},
	{Name: "state", Type: Choice, Values: []string{"running", "discarded"}, Example: "running"},
	{Name: "took", Type: Duration, Example: ">10s"},
	{Name: "since", Type: Instant, Example: "2h"},
}

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]Term{
		"":                           nil,
		" \t ":                       nil,
		"kind:send":                  {{Key: "kind", Text: Pattern{"send"}}},
		"kind:send*":                 {{Key: "kind", Text: Pattern{"send", ""}}},
		"kind:*a*b":                  {{Key: "kind", Text: Pattern{"", "a", "b"}}},
		`kind:"a *\"\\b"*`:           {{Key: "kind", Text: Pattern{`a *"\b`, ""}}},
		`kind:a:b`:                   {{Key: "kind", Text: Pattern{"a:b"}}},
		`kind:C:\x`:                  {{Key: "kind", Text: Pattern{`C:\x`}}},
		`kind:""`:                    {{Key: "kind", Text: Pattern{""}}},
		"  kind:é  state:running ":   {{Key: "kind", Text: Pattern{"é"}}, {Key: "state", Text: Pattern{"running"}}},
		"took:>10s took:<1h30m":      {{Key: "took", Longer: true, Span: 10 * time.Second}, {Key: "took", Span: 90 * time.Minute}},
		"since:2d":                   {{Key: "since", Span: 48 * time.Hour}},
		"since:2026-11-20T02:00:00Z": {{Key: "since", At: time.Date(2026, 11, 20, 2, 0, 0, 0, time.UTC)}},
	} {
		f, err := Parse(text, keys)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		got := f.Terms()
		for i := range got {
			if got[i].Key == "took" || got[i].Key == "since" {
				got[i].Text = nil
			}
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Term{}), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
		again, err := Parse(f.String(), keys)
		if err != nil || again.String() != f.String() {
			t.Errorf("%q is written as %q, which is read as %q, %v", text, f, again, err)
		}
	}
}

func TestParseNamesMistakes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"send":                              `filter, character 1: found "send", want KEY:VALUE, such as kind:send*`,
		"kind:a  knd:b":                     `filter, character 9: found the key "knd", want "kind"`,
		"é:b":                               `filter, character 1: found the key "é", want one of kind, state, took, since`,
		"kind:é nothing:b":                  `filter, character 8: found the key "nothing", want one of kind, state, took, since`,
		"kind:":                             `filter, character 6: found "", want a text, such as kind:send*`,
		`kind:a"b c`:                        `filter, character 7: found quotes without an end, want another "`,
		"state:run*":                        `filter, character 7: found "run*", want one of running, discarded`,
		"state:lost":                        `filter, character 7: found "lost", want one of running, discarded`,
		"took:10s":                          `filter, character 6: found "10s", want > or < and a duration, such as took:>10s`,
		"took:>":                            `filter, character 6: found ">", want > or < and a duration, such as took:>10s`,
		"took:>>1s":                         `filter, character 6: found ">>1s", want > or < and a duration, such as took:>10s`,
		"took:>soon":                        `filter, character 6: found ">soon", want > or < and a duration, such as took:>10s`,
		"took:>1*s":                         `filter, character 6: found ">1*s", want > or < and a duration, such as took:>10s`,
		"since:yesterday":                   `filter, character 7: found "yesterday", want how long ago, or an instant in RFC 3339, such as since:2h or since:2026-11-20T02:00:00Z`,
		"kind:" + strings.Repeat("a", 8188): "filter, character 1: found 8193 bytes, want at most 8192",
		"since:0":                           `filter, character 7: found "0", want how long ago, or an instant in RFC 3339, such as since:2h or since:2026-11-20T02:00:00Z`,
	} {
		f, err := Parse(text, keys)
		if mistake, ok := errors.AsType[*Error](err); !ok || mistake.Error() != want {
			t.Errorf("%q is read as %q, %v, want %s", text, f, err, want)
		}
	}
}

// The terms that programs make are written in a form that is read as the same term.
func TestWrittenTermsAreRead(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"a", "a b", `a"b`, `a\b`, `"`, `\`, "a*b", "*", "**", " ", "é*", "a:b", "\n"} {
		for _, term := range []Term{Is("kind", text), Written("kind", text)} {
			f, err := Parse(New(term).String(), keys)
			if err != nil || len(f.Terms()) != 1 || !cmp.Equal(f.Terms()[0].Text, term.Text) {
				t.Errorf("%q is written as %s, which is read as %q, %v", text, term, f.Terms(), err)
			}
		}
	}
	var none *Filter
	if none.String() != "" || none.Terms() != nil || none.Of("kind") != nil || New() != nil {
		t.Error("a filter without terms is not empty")
	}
}

func TestPatternMatches(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		text         string
		fits, differ []string
		like         string
	}{
		{"send", []string{"send"}, []string{"sends", "asend", ""}, "send"},
		{"send*", []string{"send", "send_mail"}, []string{"resend"}, "send%"},
		{"*mail", []string{"mail", "send_mail"}, []string{"mails"}, "%mail"},
		{"a*a", []string{"aa", "aba"}, []string{"a", "ab"}, "a%a"},
		{"a*b*c*d", []string{"abcd", "axbxcxd"}, []string{"acbd", "abd"}, "a%b%c%d"},
		{"*", []string{"", "x"}, nil, "%"},
		{`50%_\*`, []string{`50%_\`}, []string{"500"}, `50\%\_\\%`},
	} {
		p := Written("kind", test.text).Text
		for _, fit := range test.fits {
			if !p.Matches(fit) {
				t.Errorf("%s does not match %q", test.text, fit)
			}
		}
		for _, other := range test.differ {
			if p.Matches(other) {
				t.Errorf("%s matches %q", test.text, other)
			}
		}
		if p.Like() != test.like {
			t.Errorf("%s is %s for LIKE, want %s", test.text, p.Like(), test.like)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"kind:send* took:>10s", `kind:"a b" since:2h`, `kind:\`, "state:running", "kind:\x00", "took:<1h", `kind:"`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		parsed, err := Parse(text, keys)
		if err != nil {
			return
		}
		again, err := Parse(parsed.String(), keys)
		if err != nil || !cmp.Equal(parsed.Terms(), again.Terms(), cmp.AllowUnexported(Term{})) {
			t.Errorf("%q is written as %q, which is read as %q, %v", text, parsed, again, err)
		}
	})
}
