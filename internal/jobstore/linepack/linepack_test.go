package linepack_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/internal/jobstore/linepack"
)

// service writes lines as programs do.
func service(lines int) string {
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same each time
	var text strings.Builder
	for i := range lines {
		fmt.Fprintf(&text, "2026-03-01T12:%02d:%02d.%03dZ ", i/60%60, i%60, random.IntN(1000))
		switch random.IntN(3) {
		case 0:
			fmt.Fprintf(&text, "GET /orders/%d took %dms\n", random.IntN(1_000_000), random.IntN(500))
		case 1:
			fmt.Fprintf(&text, "request %08x of user%d refused\n", random.Uint32(), random.IntN(100))
		default:
			fmt.Fprintf(&text, "%d rows in %.2fs\n", random.IntN(10_000), random.Float64())
		}
	}
	return text.String()
}

func TestTextsReadAsTheyWere(t *testing.T) {
	t.Parallel()
	for name, texts := range map[string][]string{
		"none":                  {},
		"empty":                 {"", ""},
		"a line":                {"done\n"},
		"no newline":            {"done"},
		"only newlines":         {"\n\n", "\n"},
		"lines of many chunks":  slices.Collect(strings.Lines(service(1000))),
		"a chunk of many lines": {service(1000)},
		"a line in two":         {"took 1", "7 ms\n", "took 170 ms\n"},
		"leading zeros":         {"08:05\n", "09:59\n", "a 7\n", "a 07\n", "a 0\n"},
		"long numbers":          {"1 999999999999999999\n", "2 1000000000000000000\n", "3 99999999999999999999999\n"},
		"hexadecimal":           {"id 00ff12\n", "id 123456\n", "id DEADBEEF 5\n"},
		"numbers in words":      {"v1.2 x86_64 22T10\n", "v3.14 x86_32 23T11\n"},
		"not of English":        {"größer als 5 µs\n", "größer als 17 µs, \u0661\x01\r\n"},
		"falling":               {"99\n", "98\n", "5\n", "4\n", "9223372036854775807\n"},
	} {
		encoded, ok := linepack.Append(nil, texts)
		if !ok {
			t.Errorf("%s: was not encoded", name)
			continue
		}
		got, err := linepack.NewReader(encoded).Texts(len(texts))
		if diff := cmp.Diff(texts, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
}

// Numbers take the bytes that they need, and templates are there once.
func TestLinesBecomeSmall(t *testing.T) {
	t.Parallel()
	text := service(3000)
	encoded, ok := linepack.Append(nil, []string{text})
	if most := len(text) / 3; !ok || len(encoded) > most {
		t.Errorf("%d bytes became %d (%v), want at most %d", len(text), len(encoded), ok, most)
	}
}

func TestWhatIsNotTaken(t *testing.T) {
	t.Parallel()
	var prose strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&prose, "%s is no sentence\n", strings.Repeat(string(rune('g'+i%17)), i))
	}
	for name, text := range map[string]string{
		"NUL": "a\x00b\n", "too much": strings.Repeat("x", 1<<22+1), "nothing in common": prose.String(),
	} {
		if to, ok := linepack.Append([]byte("before"), []string{text}); ok || string(to) != "before" {
			t.Errorf("%s: was taken", name)
		}
	}
}

func TestColumns(t *testing.T) {
	t.Parallel()
	var encoded []byte
	columns := [][]int64{
		{},
		{0},
		{-1},
		{7, 7, 7},
		{1, 2, 3, 4},
		{900, 3, 512, 77},
		{math.MinInt64, math.MaxInt64, 0, -5},
		{1_700_000_000_000_000, 1_700_000_000_000_901},
	}
	for _, column := range columns {
		encoded = linepack.AppendColumn(encoded, column)
	}
	r := linepack.NewReader(encoded)
	for _, want := range columns {
		if got := r.Column(len(want)); !slices.Equal(got, want) {
			t.Errorf("%v became %v", want, got)
		}
	}
	if err := r.Err(); err != nil {
		t.Error(err)
	}
	if r.Column(1); !errors.Is(r.Err(), linepack.ErrDamaged) {
		t.Error("read beyond the end")
	}
}

// Nothing shorter or longer than what was written is taken for it.
func TestDamagedLines(t *testing.T) {
	t.Parallel()
	text := service(20)
	encoded, _ := linepack.Append(nil, []string{text})
	for length := range encoded {
		if got, err := linepack.NewReader(encoded[:length]).Texts(1); err == nil {
			t.Errorf("%d of %d bytes gave %q", length, len(encoded), got)
		}
	}
	if _, err := linepack.NewReader(append(encoded, 0)).Texts(1); err == nil {
		t.Error("took a byte more")
	}
	if _, err := linepack.NewReader(encoded).Texts(2); err == nil {
		t.Error("took one text for two")
	}
}

func FuzzAppend(f *testing.F) {
	f.Add("a 1\nb 02", "c 3f\n")
	f.Add("", "1\r\n\n22\n")
	f.Fuzz(func(t *testing.T, one, two string) {
		want := []string{one, two}
		encoded, ok := linepack.Append(nil, want)
		if !ok {
			return
		}
		got, err := linepack.NewReader(encoded).Texts(2)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Fatalf("%v (-want +got):\n%s", err, diff)
		}
	})
}

// Whatever is read is an error or texts, and takes memory within bounds.
func FuzzTexts(f *testing.F) {
	encoded, _ := linepack.Append(nil, []string{service(5)})
	f.Add(encoded)
	f.Add([]byte{255, 255, 255, 7, 1, 200, 200, 200, 3, 0})
	f.Fuzz(func(t *testing.T, encoded []byte) {
		texts, err := linepack.NewReader(encoded).Texts(1)
		if (err == nil) != (len(texts) == 1) {
			t.Fatalf("%d texts and %v", len(texts), err)
		}
	})
}
