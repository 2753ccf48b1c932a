package window

import (
	"errors"
	"net/url"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/cronexpr"
)

var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// parse parses an address like Parse.
func parse(t *testing.T, query string, usual time.Duration) (Window, error) {
	t.Helper()
	values, err := url.ParseQuery(query)
	if err != nil {
		t.Fatal(err)
	}
	return Parse(values, now, usual)
}

func TestParse(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]struct{ from, to, text string }{
		"":         {"2026-11-20T11:00:00Z", "2026-11-20T12:00:00Z", "last 1h"},
		"span=6h":  {"2026-11-20T06:00:00Z", "2026-11-20T12:00:00Z", "last 6h"},
		"span=90m": {"2026-11-20T10:30:00Z", "2026-11-20T12:00:00Z", "last 90m"},
		"span=1w":  {"2026-11-13T12:00:00Z", "2026-11-20T12:00:00Z", "last 7d"},
		"from=2026-11-20T02:00&to=2026-11-20T03:00:30":                        {"2026-11-20T02:00:00Z", "2026-11-20T03:00:30Z", "2026-11-20 02:00 to 03:00:30 UTC"},
		"from=2026-11-19+22:00&to=2026-11-20+02:00":                           {"2026-11-19T22:00:00Z", "2026-11-20T02:00:00Z", "2026-11-19 22:00 to 2026-11-20 02:00 UTC"},
		"from=2026-11-19&to=2026-11-20&zone=Europe/Berlin":                    {"2026-11-18T23:00:00Z", "2026-11-19T23:00:00Z", "2026-11-19 00:00 to 2026-11-20 00:00 CET"},
		"from=2026-10-24T12:00&to=2026-10-25T12:00&zone=Europe/Berlin":        {"2026-10-24T10:00:00Z", "2026-10-25T11:00:00Z", "2026-10-24 12:00 CEST to 2026-10-25 12:00 CET"},
		"from=2026-11-20T02:00:00.5Z&to=2026-11-20T05:00:00%2B01:00":          {"2026-11-20T02:00:00.5Z", "2026-11-20T04:00:00Z", "2026-11-20 02:00 to 04:00 UTC"},
		"from=2026-11-20T02:00Z&to=x":                                         {}, // an error
		"from=2026-11-18T12:00":                                               {"2026-11-18T12:00:00Z", "2026-11-20T12:00:00Z", "since 2026-11-18 12:00 UTC"},
		"to=2026-11-18T12:00":                                                 {"2026-11-18T11:00:00Z", "2026-11-18T12:00:00Z", "2026-11-18 11:00 to 12:00 UTC"},
		"from=2026-11-20T11:00:00Z&to=2026-11-21T11:00:00Z&zone=Asia/Kolkata": {"2026-11-20T11:00:00Z", "2026-11-21T11:00:00Z", "2026-11-20 16:30 to 2026-11-21 16:30 IST"},
	} {
		w, err := parse(t, query, time.Hour)
		if want.from == "" {
			if err == nil {
				t.Errorf("%s: no error", query)
			}
			continue
		}
		if err != nil || stamp(w.From) != want.from || stamp(w.To) != want.to || w.String() != want.text {
			t.Errorf("%s: %s to %s, %q, %v; want %v", query, stamp(w.From), stamp(w.To), w, err, want)
			continue
		}
		again, err := Parse(pairsOf(w), now, time.Hour)
		if err != nil || again != w {
			t.Errorf("%s is written as %v, which is read as %+v, %v; want %+v", query, w.Pairs(), again, err, w)
		}
	}
}

func pairsOf(w Window) url.Values {
	values, pairs := url.Values{}, w.Pairs()
	for i := 0; i < len(pairs); i += 2 {
		values.Set(pairs[i], pairs[i+1])
	}
	return values
}

func TestParseNamesMistakes(t *testing.T) {
	t.Parallel()
	const instant = `want an instant such as 2026-11-20T02:00:00Z, or 2026-11-20 02:00 in UTC`
	for query, want := range map[string]string{
		"span=yesterday":                    `span: found "yesterday", want a duration from 1s to 3660d, such as 6h`,
		"span=10ms":                         `span: found "10ms", want a duration from 1s to 3660d, such as 6h`,
		"span=99999d":                       `span: found "99999d", want a duration from 1s to 3660d, such as 6h`,
		"span=1h&to=2026-11-20":             `span: found it together with from or to, want either span, or from and to`,
		"from=yesterday":                    `from: found "yesterday", ` + instant,
		"from=1969-12-31":                   `from: found "1969-12-31", ` + instant,
		"to=9999-12-31":                     `to: found "9999-12-31", ` + instant,
		"from=2026-11-20+03:00&to=20261120": `to: found "20261120", ` + instant,
		"from=2026-11-20+03:00&to=2026-11-20+02:00&zone=Europe/Berlin": `from: found 2026-11-20 03:00:00 CET, want an instant before to, which is 2026-11-20 02:00:00 CET`,
		"from=2026-11-20+03:00&to=2026-11-20+03:00":                    `from: found 2026-11-20 03:00:00 UTC, want an instant before to, which is 2026-11-20 03:00:00 UTC`,
		"from=2026-11-20T03:00:00Z&to=2026-11-20T03:00:00.5Z":          `to: found 2026-11-20 03:00:00 UTC, want an instant at least 1s after from`,
		"from=2000-01-01": `to: found 2026-11-20 12:00:00 UTC, want an instant at most 3660d after from`,
		"from=2026-11-21": `from: found 2026-11-21 00:00:00 UTC, want an instant before to, which is 2026-11-20 12:00:00 UTC`,
		"zone=CET":        `zone: found "CET", want an IANA name such as "Europe/Berlin"`,
		"zone=Local":      `zone: found "Local", want "UTC" or an IANA name such as "Europe/Berlin"`,
		"zone=x&span=y":   "zone: found \"x\", want \"UTC\" or an IANA name such as \"Europe/Berlin\"\nspan: found \"y\", want a duration from 1s to 3660d, such as 6h",
	} {
		_, err := parse(t, query, time.Hour)
		if _, ok := errors.AsType[*Error](err); !ok || err.Error() != want {
			t.Errorf("%s: %v\nwant %s", query, err, want)
		}
	}
}

// The window of a list may be open, and of any width.
func TestParseOfLists(t *testing.T) {
	t.Parallel()
	for query, inside := range map[string][4]bool{ // 1990, from, before to, to
		"":                          {true, true, true, true},
		"from=2026-11-20T02:00:00Z": {false, true, true, true},
		"to=2026-11-20T03:00:00Z":   {true, true, true, false},
		"from=2026-11-20T02:00:00Z&to=2026-11-20T03:00:00Z": {false, true, true, false},
	} {
		w, err := parse(t, query, 0)
		if err != nil || w.Live {
			t.Errorf("%q: %+v, %v", query, w, err)
		}
		to := time.Date(2026, 11, 20, 3, 0, 0, 0, time.UTC)
		for i, at := range []time.Time{time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC), to.Add(-time.Hour), to.Add(-1), to} {
			if w.Has(at) != inside[i] {
				t.Errorf("%q has %s: %v", query, at, w.Has(at))
			}
		}
	}
	if _, err := parse(t, "from=1970-01-01&to=2199-01-01", 0); err != nil {
		t.Error(err)
	}
}

func TestWindowsMove(t *testing.T) {
	t.Parallel()
	berlin, err := cronexpr.LoadZone("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	w := Last(time.Hour, now, berlin)
	if earlier := w.Earlier(); earlier.String() != "2026-11-20 11:00 to 12:00 CET" || earlier.Live || earlier.Later().String() != "2026-11-20 12:00 to 13:00 CET" {
		t.Errorf("before %s is %s, and then comes %s", w, earlier, earlier.Later())
	}
	if got := w.Field(w.From) + " " + w.In(time.UTC).Field(w.From.Add(time.Second)); got != "2026-11-20T12:00 2026-11-20T11:00:01" {
		t.Errorf("the fields have %s", got)
	}
}

func TestName(t *testing.T) {
	t.Parallel()
	for width, want := range map[time.Duration]string{
		time.Second: "1s", 90 * time.Second: "90s", time.Hour: "1h", 24 * time.Hour: "24h", 36 * time.Hour: "36h", 48 * time.Hour: "2d", 720 * time.Hour: "30d", 1500 * time.Millisecond: "1.5s",
	} {
		if got := Name(width); got != want {
			t.Errorf("%v is named %s, want %s", width, got, want)
		}
	}
}
