package config

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"github.com/google/go-cmp/cmp"
)

// places is TOML in every shape that a key can have.
const places = `# é comment with [brackets] and "quotes
top = 1
a.b."c.d" = "x # not a comment" # a comment
 [ node ] # spaces
	id = 'literal \'
tags = { zone = "z]}", "k\u00e9y" = 'v', deep.er = { x = [ { y = 1 }, [2, 3] ] } }
text = """
[not.a.table]
key = "no"
\""" still ""no""" 
raw = '''
]]'' '''''
list = [ # comment ]
  "one", # two
  "three",
  { four = 4 },
]
day = 1979-05-27 07:32:00Z
[[crons]]
name = "first"
  [crons.args]
  days = 7
[[crons]]
name = "second"
  [[crons.inner]]
  k = 1
  [[crons.inner]]
  k = 2
  [crons.inner.deep]
  z = 1
[jobs."send mail"]
url="u"
["quoted \"header\""]
v = true
`

func TestIndexFindsEveryKey(t *testing.T) {
	t.Parallel()
	ix, _, err := scan(places)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{ // line:column of the key, then of the value
		"top":                       "2:1 2:7",
		"a":                         "3:1 3:1",
		`a.b."c.d"`:                 "3:1 3:13",
		"node":                      "4:4 4:4",
		"node.id":                   "5:2 5:7",
		"node.tags":                 "6:1 6:8",
		"node.tags.zone":            "6:10 6:17",
		`node.tags."kéy"`:           "6:24 6:37",
		"node.tags.deep":            "6:42 6:42",
		"node.tags.deep.er":         "6:42 6:52",
		"node.tags.deep.er.x":       "6:54 6:58",
		"node.tags.deep.er.x[0]":    "6:60 6:60",
		"node.tags.deep.er.x[0].y":  "6:62 6:66",
		"node.tags.deep.er.x[1][1]": "6:75 6:75",
		"node.text":                 "7:1 7:8",
		"node.raw":                  "11:1 11:7",
		"node.list":                 "13:1 13:8",
		"node.list[1]":              "15:3 15:3",
		"node.list[2].four":         "16:5 16:12",
		"node.day":                  "18:1 18:7",
		"crons":                     "19:3 19:3",
		"crons[0]":                  "19:3 19:3",
		"crons[0].name":             "20:1 20:8",
		"crons[0].args":             "21:4 21:4",
		"crons[0].args.days":        "22:3 22:10",
		"crons[1]":                  "23:3 23:3",
		"crons[1].name":             "24:1 24:8",
		"crons[1].inner[0].k":       "26:3 26:7",
		"crons[1].inner[1].k":       "28:3 28:7",
		"crons[1].inner[1].deep.z":  "30:3 30:7",
		`jobs."send mail".url`:      "32:1 32:5",
		`"quoted \"header\"".v`:     "34:1 34:5",
	} {
		line, col := ix.key(path)
		valueLine, valueCol := ix.value(path)
		if got := fmt.Sprintf("%d:%d %d:%d", line, col, valueLine, valueCol); got != want {
			t.Errorf("%s at %s, want %s", path, got, want)
		}
	}
	if line, _ := ix.key("crons[1].inner[1].deep.missing.more"); line != 29 {
		t.Errorf("a missing key is sought at line %d, want that of its table, 29", line)
	}
	if line, col := ix.key("nowhere"); line != 0 || col != 0 {
		t.Errorf("an unknown path is at %d:%d, want 0:0", line, col)
	}
}

// TestIndexKnowsWhatTheDecoderSees compares the two on every text of the tests.
func TestIndexKnowsWhatTheDecoderSees(t *testing.T) {
	t.Parallel()
	texts := []string{places, full, Template, seed, readText(t, "../../forge.toml.example")}
	for _, cases := range [][]bad{badKeys, badTypes, badNode, badCrons, badJobs, badAlerts} {
		for _, c := range cases {
			texts = append(texts, c.text)
		}
	}
	for i, text := range texts {
		compareWithDecoder(t, fmt.Sprintf("text %d", i), text)
	}
}

// compareWithDecoder holds the scanner to the decoder: what is valid to the one
// is no syntax error to the other, and every key of the tree has a place.
func compareWithDecoder(t *testing.T, name, text string) {
	t.Helper()
	ix, _, err := scan(text)
	if errors.Is(err, errTooDeep) || errors.Is(err, errKeyLength) {
		return
	}
	tree := map[string]any{}
	if _, decodeErr := toml.Decode(text, &tree); decodeErr != nil {
		return
	}
	if err != nil {
		t.Errorf("%s: the scanner says %v, the decoder takes it:\n%s", name, err, text)
		return
	}
	var walk func(path string, value any)
	walk = func(path string, value any) {
		if _, ok := ix.places[path]; !ok && path != "" {
			t.Errorf("%s: no place for %s in:\n%s", name, path, text)
		}
		switch v := value.(type) {
		case map[string]any:
			for key, item := range v {
				walk(join(path, key), item)
			}
		default:
			if items, ok := asList(value); ok {
				for i, item := range items[:min(len(items), maxElements)] {
					walk(element(path, i), item)
				}
			}
		}
	}
	walk("", tree)
}

func FuzzIndex(f *testing.F) {
	for _, text := range []string{places, full, Template, "a = [[[", "[[a]]\n[a.b]\n", `"\u00e" = 1`, "a.'b'.\"c\" = {", "a = '''''' ", "a=1\r\n", "a = \"\\"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !strings.HasPrefix(text, "\ufeff") {
			compareWithDecoder(t, "fuzz", text)
		}
		_, report, err := parseWith(text)
		if (err != nil) != (len(report.Errors()) > 0) {
			t.Errorf("error %v, report %s", err, report)
		}
	})
}

func TestParent(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"":                      "",
		"a":                     "",
		"a.b":                   "a",
		"a[3]":                  "a",
		"a[3].b[1]":             "a[3].b",
		`a."b.c"`:               "a",
		`a."b\"].c".d`:          `a."b\"].c"`,
		`a."b\\"`:               "a",
		`"x.y"`:                 "",
		`jobs."a b".env."c[0]"`: `jobs."a b".env`,
	} {
		if got := parent(path); got != want {
			t.Errorf("parent(%s) = %s, want %s", path, got, want)
		}
	}
}

func TestNearest(t *testing.T) {
	t.Parallel()
	names := []string{"lease_duration", "refresh_interval", "check_interval", "url"}
	got := map[string]string{}
	for _, word := range []string{"leese_duration", "refresh", "checkinterval", "uri", "completely_else", "", strings.Repeat("x", 10_000)} {
		got[clip(word)] = nearest(word, names)
	}
	want := map[string]string{
		"leese_duration": "lease_duration", "refresh": "", "checkinterval": "check_interval", "uri": "url",
		"completely_else": "", "": "", clip(strings.Repeat("x", 10_000)): "",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("nearest (-want +got):\n%s", diff)
	}
}
