package cronexpr_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/internal/cronexpr"
)

func mustParse(tb testing.TB, expression string, o cronexpr.Options) *cronexpr.Schedule {
	tb.Helper()
	s, err := cronexpr.Parse(expression, o)
	if err != nil {
		tb.Fatalf("Parse(%q, %+v): %v", expression, o, err)
	}
	return s
}

func instant(tb testing.TB, text string) time.Time {
	tb.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		tb.Fatal(err)
	}
	return at
}

// onDay returns the ticks of one civil day of the cron's zone.
func onDay(t *testing.T, s *cronexpr.Schedule, day string) []string {
	t.Helper()
	midnight, err := time.Parse(time.DateOnly, day)
	if err != nil {
		t.Fatal(err)
	}
	var ticks []string
	for at := range s.Between(midnight.AddDate(0, 0, -2), midnight.AddDate(0, 0, 3)) {
		if at.Format(time.DateOnly) == day {
			ticks = append(ticks, strings.TrimSuffix(at.Format("15:04-07:00"), ":00"))
		}
	}
	return ticks
}

func TestDaylightSaving(t *testing.T) {
	t.Parallel()
	tests := []struct {
		expression, zone, missing, repeated, day, want string
	}{
		{"30 2 * * *", "Europe/Berlin", "", "", "2026-03-29", "03:00+02"},
		{"30 2 * * *", "Europe/Berlin", "shift", "", "2026-03-29", "03:30+02"},
		{"30 2 * * *", "Europe/Berlin", "skip", "", "2026-03-29", ""},
		{"30 2 * * *", "Europe/Berlin", "", "", "2026-10-25", "02:30+02"},
		{"30 2 * * *", "Europe/Berlin", "", "last", "2026-10-25", "02:30+01"},
		{"30 2 * * *", "Europe/Berlin", "", "both", "2026-10-25", "02:30+02 02:30+01"},
		{"*/30 0-3 * * *", "Europe/Berlin", "", "", "2026-10-25", "00:00+02 00:30+02 01:00+02 01:30+02 02:00+02 02:30+02 02:00+01 02:30+01 03:00+01 03:30+01"},
		{"*/30 1-3 * * *", "Europe/Berlin", "", "", "2026-03-29", "01:00+01 01:30+01 03:00+02 03:30+02"},
		{"0 */2 * * *", "Europe/Berlin", "", "", "2026-03-29", "00:00+01 04:00+02 06:00+02 08:00+02 10:00+02 12:00+02 14:00+02 16:00+02 18:00+02 20:00+02 22:00+02"},
		{"0 2,3 * * *", "Europe/Berlin", "", "", "2026-03-29", "03:00+02"},
		{"0,30 2,3 * * *", "Europe/Berlin", "shift", "", "2026-03-29", "03:00+02 03:30+02"},
		{"15,45 2,3 * * *", "Europe/Berlin", "shift", "", "2026-03-29", "03:15+02 03:45+02"},
		{"0,20 2,3 * * *", "Europe/Berlin", "run-after", "", "2026-03-29", "03:00+02 03:20+02"},
		{"0 3 * * *", "Europe/Berlin", "skip", "", "2026-03-29", "03:00+02"},
		{"59 1 * * *", "Europe/Berlin", "", "last", "2026-10-25", "01:59+02"},
		{"30 1 * * *", "Europe/Berlin", "", "last", "2026-03-29", "01:30+01"},
		{"30 2 * * *", "America/New_York", "", "", "2026-03-08", "03:00-04"},
		{"30 1 * * *", "America/New_York", "", "", "2026-11-01", "01:30-04"},
		{"15 2 * * *", "Australia/Lord_Howe", "", "", "2026-10-04", "02:30+11"},
		{"15 2 * * *", "Australia/Lord_Howe", "shift", "", "2026-10-04", "02:45+11"},
		{"45 1 * * *", "Australia/Lord_Howe", "", "", "2026-04-05", "01:45+11"},
		{"45 1 * * *", "Australia/Lord_Howe", "", "last", "2026-04-05", "01:45+10:30"},
		{"0 0 * * *", "Africa/Cairo", "", "", "2026-04-24", "01:00+03"},
		{"0 0 * * *", "Asia/Beirut", "", "", "2026-03-29", "01:00+03"},
		{"0 0 * * *", "America/Havana", "", "", "2026-03-08", "01:00-04"},
		{"0 0 * * *", "America/Sao_Paulo", "", "", "2018-11-04", "01:00-02"},
		// The gap is the last hour of the previous day; its tick is the first of this
		// day.
		{"30 23 * * *", "America/Nuuk", "", "", "2025-03-30", "00:00-01 23:30-01"},
		{"30 23 * * *", "America/Nuuk", "", "", "2025-03-29", ""},
		// A gap of three hours is made up for, the date line is not.
		{"30 1 * * *", "Antarctica/Casey", "", "", "2020-10-04", "03:01+11"},
		{"0 12 * * *", "Pacific/Apia", "", "", "2011-12-30", ""},
		{"0 12 * * *", "Pacific/Apia", "", "", "2011-12-31", "12:00+14"},
		{"0 */12 * * *", "Pacific/Apia", "", "", "2011-12-31", "00:00+14 12:00+14"},
		// Go's segments are off by a day on this date.
		{"0 12 * * *", "Europe/Berlin", "", "", "2040-12-31", "12:00+01"},
		{"0 12 * * *", "America/Santiago", "", "", "2040-12-31", "12:00-03"},
		// A seconds field of * does not make a wildcard cron.
		{"*/30 30 2 * * *", "Europe/Berlin", "", "", "2026-03-29", "03:00+02"},
		{"*/30 30 2 * * *", "Europe/Berlin", "", "", "2026-10-25", "02:30+02 02:30+02"},
		// H/n follows the wall clock like */n; H is one fixed value.
		{"30 H/1 * * *", "Europe/Berlin", "", "", "2026-10-25", "00:30+02 01:30+02 02:30+02 02:30+01 03:30+01 04:30+01 05:30+01 06:30+01 07:30+01 08:30+01 09:30+01 10:30+01 11:30+01 12:30+01 13:30+01 14:30+01 15:30+01 16:30+01 17:30+01 18:30+01 19:30+01 20:30+01 21:30+01 22:30+01 23:30+01"},
		{"30 H(2-2) * * *", "Europe/Berlin", "", "", "2026-10-25", "02:30+02"},
	}
	for _, tt := range tests {
		t.Run(strings.Join([]string{tt.expression, tt.zone, tt.day, tt.missing + tt.repeated}, " "), func(t *testing.T) {
			t.Parallel()
			s := mustParse(t, tt.expression, cronexpr.Options{
				Timezone: tt.zone, DSTMissing: tt.missing, DSTRepeated: tt.repeated,
			})
			if diff := cmp.Diff(strings.Fields(tt.want), onDay(t, s, tt.day), cmp.Transformer("join", func(l []string) string { return strings.Join(l, " ") })); diff != "" {
				t.Errorf("ticks (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSkippedTicks(t *testing.T) {
	t.Parallel()
	tests := []struct{ expression, missing, want string }{
		{"30 2 * * *", "skip", "2026-03-29T03:00:00+02:00 skipped"},
		{"0,30 2 * * *", "skip", "2026-03-29T03:00:00+02:00 skipped"},
		{"0 2,3 * * *", "skip", "2026-03-29T03:00:00+02:00"},
		{"30 2,3 * * *", "skip", "2026-03-29T03:00:00+02:00 skipped, 2026-03-29T03:30:00+02:00"},
		{"30 2 * * *", "run-after", "2026-03-29T03:00:00+02:00"},
		{"*/30 2 * * *", "skip", ""},
	}
	for _, tt := range tests {
		t.Run(tt.expression+" "+tt.missing, func(t *testing.T) {
			t.Parallel()
			s := mustParse(t, tt.expression, cronexpr.Options{Timezone: "Europe/Berlin", DSTMissing: tt.missing})
			var got []string
			for tick := range s.Ticks(instant(t, "2026-03-28T12:00:00Z"), instant(t, "2026-03-29T12:00:00Z")) {
				text := tick.At.Format(time.RFC3339)
				if tick.SkippedDST {
					text += " skipped"
				}
				got = append(got, text)
			}
			if text := strings.Join(got, ", "); text != tt.want {
				t.Errorf("got %q, want %q", text, tt.want)
			}
		})
	}
}

func TestNext(t *testing.T) {
	t.Parallel()
	const after = "2026-11-20T10:07:30Z" // a Friday
	tests := []struct{ expression, want string }{
		{"* * * * * *", "2026-11-20 10:07:31, 2026-11-20 10:07:32"},
		{"*/20 * * * * *", "2026-11-20 10:07:40, 2026-11-20 10:08:00"},
		{"* * * * *", "2026-11-20 10:08:00, 2026-11-20 10:09:00"},
		{"15 10 5 * * *", "2026-11-21 05:10:15, 2026-11-22 05:10:15"},
		{"  0\t9 * * MON-FRI ", "2026-11-23 09:00:00, 2026-11-24 09:00:00"},
		{"0 0 1 jan *", "2027-01-01 00:00:00, 2028-01-01 00:00:00"},
		{"0 0 * * 7", "2026-11-22 00:00:00, 2026-11-29 00:00:00"},
		{"0 0 * * 0", "2026-11-22 00:00:00, 2026-11-29 00:00:00"},
		{"0 0 * * 6-7", "2026-11-21 00:00:00, 2026-11-22 00:00:00, 2026-11-28 00:00:00"},
		{"0 0 * * 7-1", "2026-11-22 00:00:00, 2026-11-23 00:00:00, 2026-11-29 00:00:00"},
		{"0 0 * * FRI-MON", "2026-11-21 00:00:00, 2026-11-22 00:00:00, 2026-11-23 00:00:00, 2026-11-27 00:00:00"},
		{"0 0 * * FRI-TUE/2", "2026-11-22 00:00:00, 2026-11-24 00:00:00, 2026-11-27 00:00:00"},
		{"0 22-2 * * *", "2026-11-20 22:00:00, 2026-11-20 23:00:00, 2026-11-21 00:00:00, 2026-11-21 01:00:00, 2026-11-21 02:00:00, 2026-11-21 22:00:00"},
		{"0 0 1 NOV-FEB *", "2026-12-01 00:00:00, 2027-01-01 00:00:00, 2027-02-01 00:00:00, 2027-11-01 00:00:00"},
		{"0 0 30-2 * *", "2026-11-30 00:00:00, 2026-12-01 00:00:00, 2026-12-02 00:00:00, 2026-12-30 00:00:00, 2026-12-31 00:00:00"},
		{"5-5/1 10 * * *", "2026-11-21 10:05:00, 2026-11-22 10:05:00"},
		{"5-5 10 * * *", "2026-11-21 10:05:00, 2026-11-22 10:05:00"},
		{"59/1 10 * * *", "2026-11-20 10:59:00, 2026-11-21 10:59:00"},
		{"0 22-4/3 * * *", "2026-11-20 22:00:00, 2026-11-21 01:00:00, 2026-11-21 04:00:00, 2026-11-21 22:00:00"},
		{"5/20 10 * * *", "2026-11-20 10:25:00, 2026-11-20 10:45:00, 2026-11-21 10:05:00"},
		{"1-10/3,30 10 * * *", "2026-11-20 10:10:00, 2026-11-20 10:30:00, 2026-11-21 10:01:00, 2026-11-21 10:04:00"},
		{"0 0 L * *", "2026-11-30 00:00:00, 2026-12-31 00:00:00, 2027-01-31 00:00:00, 2027-02-28 00:00:00"},
		{"0 0 L-3 * ?", "2026-11-27 00:00:00, 2026-12-28 00:00:00, 2027-01-28 00:00:00, 2027-02-25 00:00:00"},
		{"0 0 15W * ?", "2026-12-15 00:00:00, 2027-01-15 00:00:00, 2027-02-15 00:00:00, 2027-03-15 00:00:00, 2027-04-15 00:00:00, 2027-05-14 00:00:00"},
		{"0 0 1w 5 *", "2027-05-03 00:00:00, 2028-05-01 00:00:00"},
		{"0 0 31W * *", "2026-12-31 00:00:00, 2027-01-29 00:00:00, 2027-03-31 00:00:00"},
		{"0 0 LW * *", "2026-11-30 00:00:00, 2026-12-31 00:00:00, 2027-01-29 00:00:00, 2027-02-26 00:00:00"},
		{"0 0 1,L * *", "2026-11-30 00:00:00, 2026-12-01 00:00:00, 2026-12-31 00:00:00"},
		{"0 0 * * 5#3", "2026-12-18 00:00:00, 2027-01-15 00:00:00"},
		{"0 0 ? * fri#5", "2027-01-29 00:00:00, 2027-04-30 00:00:00"},
		{"0 0 * * 5L", "2026-11-27 00:00:00, 2026-12-25 00:00:00, 2027-01-29 00:00:00"},
		{"0 0 * * 7L,1#1", "2026-11-29 00:00:00, 2026-12-07 00:00:00, 2026-12-27 00:00:00"},
		// Vixie's rule: when both fields are restricted, either is enough; a leading * is
		// unrestricted.
		{"0 0 13 * 5", "2026-11-27 00:00:00, 2026-12-04 00:00:00, 2026-12-11 00:00:00, 2026-12-13 00:00:00"},
		{"0 0 */2 * MON", "2026-11-23 00:00:00, 2026-12-07 00:00:00, 2026-12-21 00:00:00"},
		{"0 0 13 * */5", "2026-12-13 00:00:00, 2027-06-13 00:00:00"},
		{"0 0 13 * ?", "2026-12-13 00:00:00, 2027-01-13 00:00:00"},
		{"0 0 29 2 *", "2028-02-29 00:00:00, 2032-02-29 00:00:00"},
		{"@yearly", "2027-01-01 00:00:00, 2028-01-01 00:00:00"},
		{"@Annually", "2027-01-01 00:00:00, 2028-01-01 00:00:00"},
		{"@monthly", "2026-12-01 00:00:00, 2027-01-01 00:00:00"},
		{"@weekly", "2026-11-22 00:00:00, 2026-11-29 00:00:00"},
		{"@daily", "2026-11-21 00:00:00, 2026-11-22 00:00:00"},
		{"@midnight", "2026-11-21 00:00:00, 2026-11-22 00:00:00"},
		{"@hourly", "2026-11-20 11:00:00, 2026-11-20 12:00:00"},
		{"@every 90s", "2026-11-20 10:09:00, 2026-11-20 10:10:30"},
		{"@every 90s/15s", "2026-11-20 10:07:45, 2026-11-20 10:09:15"},
		{"@every 1d", "2026-11-21 00:00:00, 2026-11-22 00:00:00"},
		{"@every 1h30m/0s", "2026-11-20 10:30:00, 2026-11-20 12:00:00"},
		{"@at 2027-01-01T00:00:00+01:00", "2026-12-31 23:00:00, never"},
		{"@at 2026-11-20T10:07:30Z", "never"},
		{"@manual", "never"},
	}
	for _, tt := range tests {
		t.Run(tt.expression, func(t *testing.T) {
			t.Parallel()
			s := mustParse(t, tt.expression, cronexpr.Options{})
			var got []string
			at := instant(t, after)
			for range strings.Count(tt.want, ",") + 1 {
				next, ok := s.Next(at)
				if !ok {
					got = append(got, "never")
					break
				}
				got = append(got, next.Format(time.DateTime))
				at = next
			}
			if text := strings.Join(got, ", "); text != tt.want {
				t.Errorf("got  %s\nwant %s", text, tt.want)
			}
		})
	}
}

func TestNextAtTheEdges(t *testing.T) {
	t.Parallel()
	zoned := cronexpr.Options{Timezone: "America/New_York"}
	tests := []struct {
		name, expression string
		after            time.Time
		want             string
	}{
		{"strictly after", "0 0 * * *", time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), "2026-01-01T05:00:00Z"},
		{"within a second", "* * * * * *", time.Date(2026, 1, 1, 0, 0, 0, 999, time.UTC), "2026-01-01T00:00:01Z"},
		{"zero time", "0 0 1 1 *", time.Time{}, "0001-01-01T04:56:02Z"},
		{"before all ticks", "@every 1s", time.Unix(-1<<60, 0), "0001-01-01T00:00:00Z"},
		{"before the epoch", "@every 90s", time.Date(1969, 12, 31, 23, 59, 0, 0, time.UTC), "1970-01-01T00:00:00Z"},
		{"a century without a leap day", "0 0 29 2 *", time.Date(2096, 3, 1, 0, 0, 0, 0, time.UTC), "2104-02-29T05:00:00Z"},
		{"a leap day on a weekend", "0 0 29 2 */6", time.Date(2076, 3, 1, 0, 0, 0, 0, time.UTC), "2088-02-29T05:00:00Z"},
		{"the last second", "59 59 23 31 12 *", time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC), "never"},
		{"after all ticks", "* * * * *", time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), "never"},
		{"far after all ticks", "* * * * *", time.Unix(1<<60, 0), "never"},
		{"every after all ticks", "@every 1s", time.Unix(1<<60, 0), "never"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := "never"
			if next, ok := mustParse(t, tt.expression, zoned).Next(tt.after); ok {
				got = next.UTC().Format(time.RFC3339)
				if next.Location().String() != "America/New_York" {
					t.Errorf("Next is in %s", next.Location())
				}
			}
			if got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestTicksInInterval(t *testing.T) {
	t.Parallel()
	s := mustParse(t, "*/10 * * * *", cronexpr.Options{})
	after, until := instant(t, "2026-01-01T00:00:00Z"), instant(t, "2026-01-01T01:00:00Z")
	ticks := slices.Collect(s.Between(after, until))
	if len(ticks) != 6 || !ticks[0].Equal(after.Add(10*time.Minute)) || !ticks[5].Equal(until) {
		t.Errorf("Between (after, until] = %v", ticks)
	}
	if n := countTicks(s, until, after); n != 0 {
		t.Errorf("%d ticks backwards", n)
	}
	for tick := range s.Ticks(after, until) { // a caller may stop after the first
		if !tick.At.Equal(ticks[0]) {
			t.Errorf("the first tick is %s", tick.At)
		}
		break
	}
}

// countTicks returns the number of ticks in (after, until].
func countTicks(s *cronexpr.Schedule, after, until time.Time) int {
	return len(slices.Collect(s.Between(after, until)))
}

func TestHash(t *testing.T) {
	t.Parallel()
	// These values must never change: every cron with an H would move.
	golden := []struct{ name, expression, want string }{
		{"", "H H * * *", "at 23:48 every day"},
		{"backup", "H H * * *", "at 16:52 every day"},
		{"backup", "H(0-9) H(2-4) * * *", "at 03:02 every day"},
		{"backup", "H/20 * * * *", "at minutes 12, 32 and 52 of every hour"},
	}
	for _, tt := range golden {
		if got := mustParse(t, tt.expression, cronexpr.Options{Name: tt.name}).Describe(); got != tt.want {
			t.Errorf("%s of %q: got %q, want %q", tt.expression, tt.name, got, tt.want)
		}
	}
	minutes := map[int]bool{}
	for i := range 1000 {
		name := strings.Repeat("x", i)
		at, _ := mustParse(t, "H 4 H * *", cronexpr.Options{Name: name}).Next(instant(t, "2027-02-01T00:00:00Z"))
		if at.Month() != time.February || at.Hour() != 4 {
			t.Fatalf("H of the days left February: %v", at)
		}
		minutes[at.Minute()] = true
	}
	if len(minutes) != 60 {
		t.Errorf("1000 names use %d minutes of 60", len(minutes))
	}
}
