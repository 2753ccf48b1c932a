package cronexpr_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/cronexpr"
)

func TestDescribe(t *testing.T) {
	t.Parallel()
	tests := []struct{ expression, zone, want string }{
		{"* * * * * *", "", "every second"},
		{"*/10 * * * * *", "", "every 10 seconds"},
		{"0 * * * * *", "", "every minute"},
		{"30 * * * * *", "", "at second 30 of every minute"},
		{"* * * * *", "", "every minute"},
		{"*/15 * * * *", "", "every 15 minutes"},
		{"*/7 * * * *", "", "at minutes 0, 7, 14, 21, 28, 35, 42, 49 and 56 of every hour"},
		{"5 * * * *", "", "at minute 5 of every hour"},
		{"@hourly", "Europe/Berlin", "every hour (Europe/Berlin)"},
		{"0 */2 * * *", "", "every 2 hours"},
		{"15 */2 * * *", "", "at minute 15 of every 2nd hour"},
		{"0 9-17 * * 1-5", "", "at minute 0 of hours 9 to 17 on Monday to Friday"},
		{"*/15 9-17 * * *", "", "every 15th minute of hours 9 to 17"},
		{"* * 9 * * *", "", "every second of hour 9"},
		{"* 30 9 * * *", "", "every second of minute 30 of hour 9"},
		{"30 2 * * *", "Europe/Berlin", "at 02:30 every day (Europe/Berlin)"},
		{"0,30 2 * * *", "", "at 02:00 and 02:30 every day"},
		{"15 30 2 * * *", "", "at 02:30:15 every day"},
		{"0 9 * * 1-5", "", "at 09:00 on Monday to Friday"},
		{"0 9 * * 6,0", "", "at 09:00 on Saturday and Sunday"},
		{"0 0 * 1,6-8 *", "", "at 00:00 every day in January and June to August"},
		{"* * * 1 *", "", "every minute in January"},
		{"0 0 1,15 * *", "", "at 00:00 on days 1 and 15 of every month"},
		{"0 0 1 1 *", "", "at 00:00 on day 1 in January"},
		{"0 0 L * *", "", "at 00:00 on the last day of every month"},
		{"0 0 L-3,15W,LW 2 *", "", "at 00:00 on 3 days before the last day, the weekday nearest to day 15 and the last weekday in February"},
		{"0 0 * * 5#3", "", "at 00:00 on the third Friday of every month"},
		{"0 0 * * 5L", "", "at 00:00 on the last Friday of every month"},
		{"0 0 13 * 5", "", "at 00:00 on day 13 or on Friday"},
		{"0 0 */10 * 1", "", "at 00:00 on days 1, 11, 21 and 31 if on Monday"},
		{"0 0 1-31 * 1", "", "at 00:00 every day"},
		{"@every 90s/15s", "", "every 1 minute 30 seconds, shifted by 15 seconds"},
		{"@every 1h", "", "every hour"},
		{"@every 1h/1m", "", "every hour, shifted by 1 minute"},
		{"@at 2027-01-01T00:00:00Z", "Europe/Berlin", "once, at 2027-01-01 01:00:00 CET"},
		{"@manual", "", "only when triggered"},
	}
	for _, tt := range tests {
		t.Run(tt.expression, func(t *testing.T) {
			t.Parallel()
			s := mustParse(t, tt.expression, cronexpr.Options{Timezone: tt.zone})
			if got := s.Describe(); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if s.Manual() != (tt.expression == "@manual") {
				t.Errorf("Manual() = %t", s.Manual())
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	const berlin = "Europe/Berlin"
	tests := []struct {
		expression, zone string
		want             []string
	}{
		{"0 0 29 2 *", "", []string{"it fires only on 29 February: next on 2028-02-29, 2032-02-29 and 2036-02-29"}},
		{"0 0 29 * *", "", nil},
		{"0 0 L 2 *", "", nil},
		{"0 0 13 * 5", "", []string{"day-of-month and day-of-week are both set, and either is enough: next on " +
			"Fri 2026-11-27 00:00, Fri 2026-12-04 00:00, Fri 2026-12-11 00:00, Sun 2026-12-13 00:00 and Fri 2026-12-18 00:00"}},
		{"0 0 */2 * 5", "", nil},
		{"0 */2 * * *", berlin, []string{"daylight saving in Europe/Berlin takes ticks away from a minute or hour with *: " +
			"there is no 02:00 on 2027-03-28, 02:00 on 2028-03-26 and 02:00 on 2029-03-25"}},
		{"*/20 2 * * *", berlin, []string{"daylight saving in Europe/Berlin takes ticks away from a minute or hour with *: " +
			"there is no 02:00 on 2027-03-28, 02:00 on 2028-03-26 and 02:00 on 2029-03-25"}},
		{"15 * * * *", "Australia/Lord_Howe", []string{"daylight saving in Australia/Lord_Howe takes ticks away from a minute or hour with *: " +
			"there is no 02:15 on 2027-10-03, 02:15 on 2028-10-01 and 02:15 on 2029-10-07"}},
		{"0 */2 * * *", "", nil},
		{"*/15 * * * *", berlin, nil},
		{"30 * * * *", berlin, nil},
		{"*/20 2 * * 1", berlin, nil},
		{"30 2 * * *", berlin, nil},
		{"@every 90s", berlin, nil},
		{"@manual", "", nil},
	}
	for _, tt := range tests {
		t.Run(tt.expression+" "+tt.zone, func(t *testing.T) {
			t.Parallel()
			s := mustParse(t, tt.expression, cronexpr.Options{Timezone: tt.zone})
			if got := s.Warnings(instant(t, "2026-11-20T00:00:00Z")); !slices.Equal(got, tt.want) {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

func TestMinInterval(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	tests := []struct {
		expression, zone string
		want             time.Duration
	}{
		{"* * * * * *", "Europe/Berlin", time.Second},
		{"*/7 * * * *", "", 4 * time.Minute},
		{"*/15 * * * *", "Europe/Berlin", 15 * time.Minute},
		{"45 * * * *", "Australia/Lord_Howe", 30 * time.Minute},
		{"0 */2 * * *", "Europe/Berlin", time.Hour},
		{"0 2,3 * * *", "Europe/Berlin", time.Hour},
		{"30 2,3 * * *", "Europe/Berlin", 30 * time.Minute},
		{"0 0,23 * * *", "", time.Hour},
		{"0 0 * * *", "", day},
		{"0 0 * * *", "Asia/Tokyo", day},
		{"0 0 * * *", "Europe/Berlin", day - time.Hour},
		{"0 */4 * * *", "Atlantic/Azores", time.Hour}, // 00:00 is repeated
		{"0 0 * * 1", "", 7 * day},
		{"0 0 * * 1", "Europe/Berlin", 7*day - time.Hour},
		{"0 0,12 * * 1", "", 12 * time.Hour},
		{"0 0 1 * *", "", 28 * day},
		{"0 0 29 2 *", "", 1461 * day},
		{"@every 90s", "Europe/Berlin", 90 * time.Second},
		{"@manual", "", cronexpr.Forever},
		{"@at 2027-01-01T00:00:00Z", "", cronexpr.Forever},
	}
	for _, tt := range tests {
		t.Run(tt.expression+" "+tt.zone, func(t *testing.T) {
			t.Parallel()
			if got := mustParse(t, tt.expression, cronexpr.Options{Timezone: tt.zone}).MinInterval(); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestTZData(t *testing.T) {
	t.Parallel()
	if version := cronexpr.TZDataVersion(); !regexp.MustCompile(`^20\d\d[a-z]$`).MatchString(version) {
		t.Errorf("version %q", version)
	}
	data, err := os.ReadFile("zoneinfo.zip")
	if err != nil {
		t.Fatal(err)
	}
	recorded, err := os.ReadFile("zoneinfo.version")
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	if !strings.HasSuffix(strings.TrimSpace(string(recorded)), "\n"+hex.EncodeToString(sum[:])) {
		t.Error("zoneinfo.version does not belong to zoneinfo.zip: run go generate")
	}
}

// TestZones checks the assumptions of the search: zones load, their segments are days
// long and in order, and offsets never differ by two days.
func TestZones(t *testing.T) {
	t.Parallel()
	names := cronexpr.ZoneNames()
	if len(names) < 500 {
		t.Fatalf("only %d zones", len(names))
	}
	for _, name := range names {
		zone, err := cronexpr.LoadZone(name)
		if err != nil {
			t.Fatal(err)
		}
		if again, _ := cronexpr.LoadZone(name); again != zone {
			t.Fatalf("%s is loaded twice", name)
		}
		checkSegments(t, zone)
	}
}

// checkSegments follows the segments of a zone and checks that its offset never changes
// twice within four days.
func checkSegments(t *testing.T, zone *time.Location) {
	t.Helper()
	at := time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC).In(zone)
	changed := time.Time{}
	for at.Year() < 2045 {
		_, end := at.ZoneBounds()
		if end.IsZero() {
			return
		}
		if !end.After(at) { // see segmentAt
			at = at.Add(time.Hour)
			continue
		}
		_, before := at.Zone()
		_, after := end.Zone()
		if before != after {
			if !changed.IsZero() && end.Sub(changed) < 4*24*time.Hour {
				t.Errorf("%s: changes at %s and %s", zone, changed, end)
			}
			changed = end
		}
		at = end
	}
}
