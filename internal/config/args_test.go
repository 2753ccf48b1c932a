package config

import (
	"runtime"
	"strings"
	"testing"
)

// 70 to 72: args that no job gets, wherever they come from.
func TestCheckArgs(t *testing.T) {
	t.Parallel()
	deep := func(levels int) string {
		return strings.Repeat(`{"a":`, levels) + "1" + strings.Repeat("}", levels)
	}
	for _, c := range []struct{ name, args, want string }{
		{"none", "", ""},
		{"an object", ` {"a": [1, 2.5e3, "x", null, true, {"b": {}}]} `, ""},
		{"not JSON", `{"a": nope}`, `args: not JSON: invalid character 'o' in literal null (expecting 'u'); want ` + wantArgs},
		{"half of it", `{"a": [1`, "args: not JSON: it does not end; want " + wantArgs},
		{"two of them", `{} {}`, "args: not JSON: something follows the object; want " + wantArgs},
		{"a list", `[1]`, "args: not an object; want " + wantArgs},
		{"null", `null`, "args: not an object; want " + wantArgs},
		{"a name twice", `{"a": {"b": 1, "b": 2}}`, "args.a.b: stands twice; want each name once"},
		{"71: 64 KiB", `{"a":"` + strings.Repeat("x", 64<<10-8) + `"}`, ""},
		{"71: a byte more", `{"a":"` + strings.Repeat("x", 64<<10-7) + `"}`, "args: too large (got 65537 bytes as JSON); want at most 64 KiB"},
		{"71: 64 levels", deep(64), ""},
		{"71: a level more", deep(65), "args: nested too deeply at byte 320; want at most 64 levels"},
		{"71: 10,000 levels", deep(10_000), "args: nested too deeply at byte 320; want at most 64 levels"},
		{"71: NUL", `{"a b": ["x", "y\u0000"]}`, `args."a b"[1]: a NUL character, which PostgreSQL's jsonb refuses; want text without it`},
		{"71: NUL in a name", `{"a\u0000": 1}`, `args."a\x00": a NUL character, which PostgreSQL's jsonb refuses; want text without it`},
		{"71: no NUL but its text", `{"a": "\\u0000"}`, ""},
		{"72: invalid UTF-8", "{\"a\": \"\xff\"}", "args: invalid UTF-8 (got byte 0xff at offset 7); want UTF-8"},
		{"72: a replacement character", "{\"a\": \"\uFFFD\"}", ""},
		{"72: a high surrogate alone", `{"a": "\ud83dx"}`, `args: half of a surrogate pair (got \ud83d at offset 7); want whole characters`},
		{"72: a low surrogate alone", `{"a": "\\\ude00"}`, `args: half of a surrogate pair (got \ude00 at offset 9); want whole characters`},
		{"72: a pair", `{"a": "\ud83d\ude00"}`, ""},
		{"a number too large", `{"a": 1e999999}`, "args.a: a number out of range (got 1e999999); want 1e-323 to 1.7e308, or 0"},
		{"a number too small", `{"a": -1E-20000}`, "args.a: a number out of range (got -1E-20000); want 1e-323 to 1.7e308, or 0"},
		{"zero", `{"a": 0.0e-5}`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := ""
			if err := CheckArgs([]byte(c.args)); err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// The path to a value is long where a name is. It is built for an error alone.
func TestCheckArgsIsLinear(t *testing.T) { //nolint:paralleltest // it counts what the process allocates
	name := strings.Repeat("k", 30_000)
	args := []byte(`{"` + name + `":[` + strings.Repeat("1,", 15_000) + `1]}`)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := CheckArgs(args)
	runtime.ReadMemStats(&after)
	if err != nil {
		t.Fatal(err)
	}
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 16<<20 {
		t.Errorf("%d bytes of args cost %d MiB", len(args), allocated>>20)
	}
}
