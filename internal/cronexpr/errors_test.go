package cronexpr_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/internal/cronexpr"
)

func TestParseErrors(t *testing.T) {
	t.Parallel()
	tests := []struct {
		expression string
		position   int
		want       string
	}{
		{"", 0, `expression: it is empty; want 5 fields, or 6 with leading seconds`},
		{"  \t ", 0, `expression: it is empty; want 5 fields, or 6 with leading seconds`},
		{"* * * *", 1, `expression: 4 fields (got "* * * *"); want 5 fields, or 6 with leading seconds`},
		{"*", 1, `expression: 1 field (got "*"); want 5 fields, or 6 with leading seconds`},
		{"* * * * * * *", 1, `expression: 7 fields (got "* * * * * * *"); want 5 fields, or 6 with leading seconds`},
		{"60 * * * *", 1, `minute: 60 is out of range (got "60"); want 0 to 59`},
		{"* 24 * * *", 3, `hour: 24 is out of range (got "24"); want 0 to 23`},
		{"60 * * * * *", 1, `second: 60 is out of range (got "60"); want 0 to 59`},
		{"* * 0 * *", 5, `day-of-month: 0 is out of range (got "0"); want 1 to 31, or L, L-3, 15W, LW`},
		{"* * * 13 *", 7, `month: 13 is out of range (got "13"); want 1 to 12 or JAN to DEC`},
		{"* * * JANUARY *", 7, `month: "JANUARY" is not a value (got "JANUARY"); want 1 to 12 or JAN to DEC`},
		{"* * * * 8", 9, `day-of-week: 8 is out of range (got "8"); want 0 to 7 or SUN to SAT, or 5L, 5#3`},
		{"* * * * 99999999999999999999", 9, `day-of-week: 99999999999999999999 is out of range (got "99999999999999999999"); want 0 to 7 or SUN to SAT, or 5L, 5#3`},
		{"*/0 * * * *", 1, `minute: a step of 0 goes nowhere (got "*/0"); want at least 1`},
		{"*/60 * * * *", 1, `minute: step 60 is larger than its range (got "*/60"); want at most 59`},
		{"*/90 * * * *", 1, `minute: step 90 is larger than its range (got "*/90"); want at most 59`},
		{"10-20/11 * * * *", 1, `minute: step 11 is larger than its range (got "10-20/11"); want at most 10`},
		{"50/10 * * * *", 1, `minute: step 10 is larger than its range (got "50/10"); want at most 9`},
		{"59/2 * * * *", 1, `minute: a step of more than 1 needs a range (got "59/2"); want the value without a step`},
		{"* * * * */7", 9, `day-of-week: step 7 is larger than its range (got "*/7"); want at most 6`},
		{"*/ * * * *", 1, `minute: a step is a whole number (got "*/"); want a step such as "*/5"`},
		{"*/-5 * * * *", 1, `minute: a step is a whole number (got "*/-5"); want a step such as "*/5"`},
		{"*/2/2 * * * *", 1, `minute: a step is a whole number (got "*/2/2"); want a step such as "*/5"`},
		{"1,2,,3 * * * *", 5, `minute: an item of the list is empty (got "1,2,,3"); want 0 to 59`},
		{"* 1, * * *", 5, `hour: an item of the list is empty (got "1,"); want 0 to 23`},
		{"1,2,x * * * *", 5, `minute: "X" is not a value (got "x"); want 0 to 59`},
		{"5- * * * *", 1, `minute: a value is missing (got "5-"); want 0 to 59`},
		{"-5 * * * *", 1, `minute: a value is missing (got "-5"); want 0 to 59`},
		{"1-2-3 * * * *", 1, `minute: "2-3" is not a value (got "1-2-3"); want 0 to 59`},
		{"+5 * * * *", 1, `minute: "+5" is not a value (got "+5"); want 0 to 59`},
		{"** * * * *", 1, `minute: "**" is not a value (got "**"); want 0 to 59`},
		{"? * * * *", 1, `minute: ? is for days only (got "?"); want "*"`},
		{"* * ?/2 * *", 5, `day-of-month: ? stands alone (got "?/2"); want "?" or "*"`},
		{"* * 1,? * *", 7, `day-of-month: ? stands alone (got "?"); want "?" or "*"`},
		{"* * 32W * *", 5, `day-of-month: malformed W (got "32W"); want "1W" to "31W", or "LW"`},
		{"* * 1-5W * *", 5, `day-of-month: malformed W (got "1-5W"); want "1W" to "31W", or "LW"`},
		{"* * L-40 * *", 5, `day-of-month: malformed L (got "L-40"); want "L", or "L-1" to "L-30" for days before the last`},
		{"* * L3 * *", 5, `day-of-month: malformed L (got "L3"); want "L", or "L-1" to "L-30" for days before the last`},
		{"* * L/2 * *", 5, `day-of-month: this form takes no step (got "L/2"); want it without the step`},
		{"* * * * 5#6", 9, `day-of-week: malformed # (got "5#6"); want "5#1" to "5#5" for the first to the fifth Friday`},
		{"* * * * 8#1", 9, `day-of-week: 8 is out of range (got "8#1"); want 0 to 7 or SUN to SAT, or 5L, 5#3`},
		{"* * * * L", 9, `day-of-week: L needs a weekday here (got "L"); want "5L" for the last Friday`},
		{"5L * * * *", 1, `minute: "5L" is not a value (got "5L"); want 0 to 59`},
		{"H(5-1) * * * *", 1, `minute: the range of H runs backwards (got "H(5-1)"); want "H", "H/15" or "H(0-29)"`},
		{"H(5 * * * *", 1, `minute: malformed H (got "H(5"); want "H", "H/15" or "H(0-29)"`},
		{"H5 * * * *", 1, `minute: malformed H (got "H5"); want "H", "H/15" or "H(0-29)"`},
		{"H(0-60) * * * *", 1, `minute: 60 is out of range (got "H(0-60)"); want 0 to 59`},
		{"H/90 * * * *", 1, `minute: step 90 is larger than its range (got "H/90"); want at most 59`},
		{"0 0 31 2 *", 5, `day-of-month: it never fires, no such date exists (got "31 2 *"); want a day up to 29 in February`},
		{"0 0 30 FEB ?", 5, `day-of-month: it never fires, no such date exists (got "30 FEB ?"); want a day up to 29 in February`},
		{"0 0 31 4,6,9,11 *", 5, `day-of-month: it never fires, no such date exists (got "31 4,6,9,11 *"); want a day up to 30 in April, June, September or November`},
		{"0 0 15W * */6", 5, `day-of-month: it never fires, no such date exists (got "15W * */6"); want a day that exists`},
		{"0 0 0 L-30 2 *", 7, `day-of-month: it never fires, no such date exists (got "L-30 2 *"); want a day up to 29 in February`},
		{"TZ=UTC", 1, `expression: a time zone does not belong here (got "TZ=UTC"); want the zone in the key timezone`},
		{"CRON_TZ=UTC * * * * *", 6, `expression: a time zone does not belong here (got "CRON_TZ=UTC * * * * *"); want the zone in the key timezone`},
		{"* * ５ * *", 5, `expression: a character is not ASCII (got "５"); want plain digits, letters and signs`},
		{"* *\u00a0* * *", 4, "expression: a character is not ASCII (got \"\\u00a0\"); want plain digits, letters and signs"},
		{"* * * *\n*", 8, `expression: it has a line break (got "\n"); want one line`},
		{"* * * *\x00*", 8, `expression: it has a control character (got "\x00"); want printable text`},
		{"* * * * \xff", 9, `expression: a character is not ASCII (got "�"); want plain digits, letters and signs`},
		{strings.Repeat("*", 1001), 1001, `expression: it is too long (got "` + strings.Repeat("*", 60) + `..."); want at most 1000 characters`},
		{"@reboot", 1, `@reboot: a cluster does not reboot; want @yearly, @monthly, @weekly, @daily, @hourly, @every 90s, @at 2027-01-01T00:00:00Z or @manual`},
		{"@dayly", 1, `macro: unknown macro (got "@dayly"); want @yearly, @monthly, @weekly, @daily, @hourly, @every 90s, @at 2027-01-01T00:00:00Z or @manual`},
		{"@daily 5", 8, `@daily: there is text behind it (got "5"); want "@daily" alone`},
		{"@manual now", 9, `@manual: there is text behind it (got "now"); want "@manual" alone`},
		{"@every", 1, `@every: its value is missing; want "@every 90s", or "@every 90s/15s" with a phase`},
		{"@every 1h 30m", 11, `@every: there is text behind it (got "30m"); want "@every 90s", or "@every 90s/15s" with a phase`},
		{"@every 0s", 8, `@every: the interval is too short (got "0s"); want at least 1s`},
		{"@every -5s", 8, `@every: the interval is too short (got "-5s"); want at least 1s`},
		{"@every 1ns", 8, `@every: a tick needs a whole second (got "1ns"); want at least 1s`},
		{"@every 1.5s", 8, `@every: a tick needs a whole second (got "1.5s"); want whole seconds`},
		{"@every 5", 8, `@every: not a duration (got "5"); want a number and a unit such as "90s", "5m" or "1d"`},
		{"@every soon", 8, `@every: not a duration (got "soon"); want a number and a unit such as "90s", "5m" or "1d"`},
		{"@every 9999999h", 8, `@every: the interval is too long (got "9999999h"); want at most 366d`},
		{"@every 99999999999999999999999w1w", 8, `@every: the interval is too long (got "99999999999999999999999w1w"); want at most 366d`},
		{"@every 90s/", 12, `@every: not a duration; want a number and a unit such as "90s", "5m" or "1d"`},
		{"@every 90s/90s", 12, `@every: the phase is not below the interval (got "90s/90s"); want 0s up to the interval`},
		{"@every 90s/-1s", 12, `@every: the phase is not below the interval (got "90s/-1s"); want 0s up to the interval`},
		{"@at tomorrow", 5, `@at: not a time with a zone (got "tomorrow"); want RFC 3339 such as "2027-01-01T00:00:00Z"`},
		{"@at 2027-01-01T00:00:00", 5, `@at: not a time with a zone (got "2027-01-01T00:00:00"); want RFC 3339 such as "2027-01-01T00:00:00Z"`},
		{"@at 2027-01-01T00:00:00.5Z", 5, `@at: a tick needs a whole second (got "2027-01-01T00:00:00.5Z"); want no fraction`},
	}
	for _, tt := range tests {
		t.Run(tt.expression, func(t *testing.T) {
			t.Parallel()
			s, err := cronexpr.Parse(tt.expression, cronexpr.Options{})
			if s != nil {
				t.Error("a schedule beside the error")
			}
			checkParseError(t, err, tt.expression, tt.position, tt.want)
		})
	}
}

func checkParseError(t *testing.T, err error, expression string, position int, want string) {
	t.Helper()
	e, ok := errors.AsType[*cronexpr.ParseError](err)
	if !ok {
		t.Fatalf("got %v, want a *ParseError", err)
	}
	if e.Error() != want {
		t.Errorf("message\ngot  %s\nwant %s", e, want)
	}
	if e.Position != position || e.Expression != expression {
		t.Errorf("at %d of %q, want %d of %q", e.Position, e.Expression, position, expression)
	}
}

func TestOptionErrors(t *testing.T) {
	t.Parallel()
	tests := []struct {
		options cronexpr.Options
		want    string
	}{
		{cronexpr.Options{Timezone: "Mars/Base"}, `timezone: unknown time zone (got "Mars/Base"); want "UTC" or an IANA name such as "Europe/Berlin"`},
		{cronexpr.Options{Timezone: "Europe/Berln"}, `timezone: unknown time zone (got "Europe/Berln"); want an IANA name such as "Europe/Berlin"`},
		{cronexpr.Options{Timezone: "europe/berlin"}, `timezone: unknown time zone (got "europe/berlin"); want an IANA name such as "Europe/Berlin"`},
		{cronexpr.Options{Timezone: "../../etc/passwd"}, `timezone: unknown time zone (got "../../etc/passwd"); want "UTC" or an IANA name such as "Europe/Berlin"`},
		{cronexpr.Options{Timezone: "Local"}, `timezone: the host's own zone differs between nodes (got "Local"); want "UTC" or an IANA name such as "Europe/Berlin"`},
		{cronexpr.Options{Timezone: "EST5EDT"}, `timezone: an abbreviation is not a place (got "EST5EDT"); want an IANA name such as "America/New_York"`},
		{cronexpr.Options{Timezone: "MST"}, `timezone: an abbreviation is not a place (got "MST"); want an IANA name such as "America/Denver"`},
		{cronexpr.Options{Timezone: "Zulu"}, `timezone: an abbreviation is not a place (got "Zulu"); want "UTC"`},
		{cronexpr.Options{Timezone: "Poland"}, `timezone: a name without an area is obsolete (got "Poland"); want "UTC" or an IANA name such as "Europe/Berlin"`},
		{cronexpr.Options{DSTMissing: "later"}, `dst_missing: unknown value (got "later"); want "run-after", "shift" or "skip"`},
		{cronexpr.Options{DSTRepeated: "twice"}, `dst_repeated: unknown value (got "twice"); want "first", "last" or "both"`},
	}
	for _, tt := range tests {
		t.Run(tt.options.Timezone+tt.options.DSTMissing+tt.options.DSTRepeated, func(t *testing.T) {
			t.Parallel()
			_, err := cronexpr.Parse("0 0 * * *", tt.options)
			checkParseError(t, err, "0 0 * * *", 0, tt.want)
		})
	}
}
