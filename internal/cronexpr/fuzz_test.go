package cronexpr_test

import (
	"errors"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/cronexpr"
)

// FuzzParse checks that no input panics or hangs, that every error has a position, and
// that every schedule has ticks.
func FuzzParse(f *testing.F) {
	for _, expression := range []string{
		"* * * * *", "*/5 0-23/2 1,15 JAN-DEC MON-FRI", "0 30 2 * * *", "0 0 29 2 *", "0 0 31 2 *",
		"0 0 L-3,15W,LW * 5#3,5L", "H H(0-5) H/3 * H", "0 22-2 * NOV-FEB FRI-MON", "0 0 ? * ?",
		"@every 90s/15s", "@every -5s", "@at 2027-01-01T00:00:00Z", "@manual", "@daily", "@reboot",
		"TZ=", "CRON_TZ=UTC * * * * *", "*/90 * * * *", "1,2,,3 * * * *", "５ * * * *", "* * * *\n*",
		"@every 1d12h", "@every 9999999999999999999w", "0 0 29W 2 */6", "* * * * * * *", "",
	} {
		f.Add(expression, "job", "Europe/Berlin", uint32(0), int64(1774749600))
	}
	f.Add("0 12 * * *", "", "Pacific/Apia", uint32(4), int64(1325152800))
	f.Add("30 2 * * *", "x", "Local", uint32(8), int64(-1<<63))
	missing := []string{"run-after", "shift", "skip"}
	repeated := []string{"first", "last", "both"}
	f.Fuzz(func(t *testing.T, expression, name, zone string, policies uint32, unix int64) {
		started := time.Now()
		s, err := cronexpr.Parse(expression, cronexpr.Options{
			Name: name, Timezone: zone, DSTMissing: missing[policies%3], DSTRepeated: repeated[policies/3%3],
		})
		if err != nil {
			checkFuzzError(t, expression, err)
			return
		}
		after := time.Unix(unix, 0)
		for range 3 {
			next, ok := s.Next(after)
			if ok && !next.After(after) {
				t.Fatalf("%q: Next(%s) = %s", expression, after, next)
			}
			after = next
		}
		if s.Describe() == "" || s.MinInterval() < time.Second {
			t.Fatalf("%q: %q, every %s", expression, s.Describe(), s.MinInterval())
		}
		s.Warnings(time.Unix(unix, 0))
		if spent := time.Since(started); spent > 20*time.Second {
			t.Fatalf("%q took %s", expression, spent)
		}
	})
}

func checkFuzzError(t *testing.T, expression string, err error) {
	t.Helper()
	e, ok := errors.AsType[*cronexpr.ParseError](err)
	if !ok || e.Field == "" || e.Problem == "" || e.Want == "" || e.Expression != expression {
		t.Fatalf("%q: %#v", expression, err)
	}
	if e.Position < 0 || e.Position > len(expression)+1 {
		t.Fatalf("%q: position %d", expression, e.Position)
	}
}
