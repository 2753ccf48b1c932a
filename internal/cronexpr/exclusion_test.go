package cronexpr_test

import (
	"strings"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/cronexpr"
)

func TestExclusionCovers(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		text, zone string
		covered    string
		free       string
	}{
		{"2026-12-25", "UTC", "2026-12-25T00:00:00Z 2026-12-25T23:59:59Z", "2026-12-24T23:59:59Z 2026-12-26T00:00:00Z"},
		{"2026-12-25", "Europe/Berlin", "2026-12-24T23:00:00Z 2026-12-25T22:59:59Z", "2026-12-25T23:00:00Z 2026-12-24T22:59:59Z"},
		{"2026-03-29", "Europe/Berlin", "2026-03-28T23:00:00Z 2026-03-29T21:59:59Z", "2026-03-29T22:00:00Z"},
		{"* 0-5 * * *", "Europe/Berlin", "2026-07-01T22:00:00Z 2026-07-02T03:59:59Z", "2026-07-02T04:00:00Z 2026-07-01T21:59:59Z"},
		{"30 2 * * *", "UTC", "2026-07-01T02:30:00Z 2026-07-01T02:30:59Z", "2026-07-01T02:31:00Z"},
		{"0 30 2 * * *", "UTC", "2026-07-01T02:30:00Z", "2026-07-01T02:30:01Z"},
		{"* * * * SAT,SUN", "UTC", "2026-11-21T12:00:00Z", "2026-11-20T23:59:59Z 2026-11-23T00:00:00Z"},
		{"* * L * *", "UTC", "2026-02-28T12:00:00Z", "2028-02-28T12:00:00Z"},
		{"@daily", "UTC", "2026-02-28T00:00:30Z", "2026-02-28T00:01:00Z"},
	} {
		e, err := cronexpr.ParseExclusion(test.text, cronexpr.Options{Timezone: test.zone})
		if err != nil {
			t.Fatal(err)
		}
		for want, instants := range map[bool]string{true: test.covered, false: test.free} {
			for text := range strings.FieldsSeq(instants) {
				if at := instant(t, text); e.Covers(at) != want {
					t.Errorf("%s in %s covers %s: %t", e, test.zone, text, !want)
				}
			}
		}
	}
}

// TestExclusionCoversItsTicks checks that an expression covers its own ticks where no gap
// moves them.
func TestExclusionCoversItsTicks(t *testing.T) {
	t.Parallel()
	for _, expression := range []string{"*/7 * * * *", "*/20 5 1-3 * * *", "0 12 15W * *", "15 8 * * 5#3"} {
		o := cronexpr.Options{Timezone: "America/New_York"}
		s := mustParse(t, expression, o)
		e, err := cronexpr.ParseExclusion(expression, o)
		if err != nil {
			t.Fatal(err)
		}
		start, n := instant(t, "2026-04-01T00:00:00Z"), 0
		for at := range s.Between(start, start.AddDate(0, 10, 0)) {
			if n++; !e.Covers(at) || e.Covers(at.Add(-61*time.Second)) && expression[0] != '*' {
				t.Fatalf("%s and %s", expression, at)
			}
		}
		if n == 0 {
			t.Error("no ticks")
		}
	}
}

func TestBadExclusions(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"2026-02-30": `date: it is neither a date nor an expression (got "2026-02-30"); want a date that exists, such as 2026-12-25, or 5 fields, or 6 with leading seconds`,
		"25.12.2026": "neither a date nor an expression",
		"":           "neither a date nor an expression",
		"@every 5m":  "it names no times on the wall",
		"@manual":    "it names no times on the wall",
		"61 * * * *": "minute: ",
	} {
		if _, err := cronexpr.ParseExclusion(text, cronexpr.Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %s", text, err, want)
		}
	}
	if _, err := cronexpr.ParseExclusion("2026-12-25", cronexpr.Options{Timezone: "Mars"}); err == nil {
		t.Error("a wrong zone was accepted")
	}
}
