package config

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// written is when these files are read: the warnings look ahead from there.
var written = time.Date(2026, time.November, 20, 12, 0, 0, 0, time.UTC)

// scheduled is a cron with an expression, on line 3 of its file.
func scheduled(expression string) string {
	return inCron("schedule = \"" + expression + "\"\ncommand = [\"true\"]")
}

// with is a daily cron with one key more, on line 4.
func with(key string) string { return inCron(daily + key + "\ncommand = [\"true\"]") }

// named is a cron of a name that needs no job.
func named(name string) string {
	return "[[crons]]\nname = \"" + name + "\"\n" + daily + "url = \"https://example.com/\"\n"
}

const (
	atSchedule = "forge.toml:3:12: crons[0].schedule: "
	inSchedule = "forge.toml:3:13: crons[0].schedule: "
	atKey      = "forge.toml:4:12: crons[0]."
)

// cronCatalogue is all that can be wrong with a cron, numbered so that none is
// forgotten. A cron that is renamed (66) is shown by forge plan, and a file that
// is wrong when it is read again (92) by the node: both are tested in test/e2e.
var cronCatalogue = []bad{
	{"36 duplicate name", named("beat") + named("beat") + named("BEAT") + named("beat "), []string{
		`forge.toml:6:8: crons[1].name: a cron of this name exists (got "beat"); want another name than that of line 2`,
		`forge.toml:10:8: crons[2].name: a cron of this name exists (got "BEAT"); want another name than that of line 2`,
		`forge.toml:14:8: crons[3].name: not a name (got "beat "); want ` + wantJobName,
		`forge.toml:14:8: crons[3].name: a cron of this name exists (got "beat "); want another name than that of line 2`,
	}},
	{"37 empty name", named(""), []string{"forge.toml:2:8: crons[0].name: no name; want " + wantJobName}},
	{"37 long name", named(strings.Repeat("n", 101)), []string{`forge.toml:2:8: crons[0].name: name too long (got "` + strings.Repeat("n", 80) + `..."); want ` + wantJobName}},
	{"37 control character in a name", named(`a\tb`), []string{`forge.toml:2:8: crons[0].name: not a name (got "a\tb"); want ` + wantJobName}},
	{"37 path for a name", named("../x"), []string{`forge.toml:2:8: crons[0].name: not a name (got "../x"); want ` + wantJobName}},
	{"38 no schedule", inCron("command = [\"true\"]"), []string{
		"forge.toml:1:3: crons[0]: no schedule; want schedule = \"0 3 * * *\" (minute, hour, day, month, weekday) or \"@every 5m\"",
	}},
	{"39 both schedule and every", with(`every = "5m"`), []string{`forge.toml:4:1: crons[0].every: unknown key; want schedule = "@every 5m"`}},
	{"40 four fields", scheduled("* * * *"), []string{inSchedule + `expression: 4 fields (got "* * * *"); want 5 fields, or 6 with leading seconds`}},
	{"40 seven fields", scheduled("* * * * * * *"), []string{inSchedule + `expression: 7 fields (got "* * * * * * *"); want 5 fields, or 6 with leading seconds`}},
	{"an instant that has passed", scheduled("@at 2026-01-01T00:00:00Z"), []string{
		"forge.toml:3:12: warning: crons[0].schedule: the cron never fires again: its time has passed",
	}},
	{"an instant to come", scheduled("@at 2027-01-01T00:00:00Z"), nil},
	{"by hand only", scheduled("@manual"), nil},
	{"40 six fields", scheduled("0 * * * * *"), nil},
	{"41 minute 60", scheduled("60 * * * *"), []string{inSchedule + `minute: 60 is out of range (got "60"); want 0 to 59`}},
	{"42 weekday 8", scheduled("* * * * 8"), []string{`forge.toml:3:21: crons[0].schedule: day-of-week: 8 is out of range (got "8"); want 0 to 7 or SUN to SAT, or 5L, 5#3`}},
	{"42 weekday 7", scheduled("0 0 * * 7"), nil},
	{"43 step of 0", scheduled("*/0 * * * *"), []string{inSchedule + `minute: a step of 0 goes nowhere (got "*/0"); want at least 1`}},
	{"44 empty item", scheduled("1,2,,3 * * * *"), []string{`forge.toml:3:17: crons[0].schedule: minute: an item of the list is empty (got "1,2,,3"); want 0 to 59`}},
	{"44 half a range", scheduled("5- * * * *"), []string{inSchedule + `minute: a value is missing (got "5-"); want 0 to 59`}},
	{"45 step over the range", scheduled("*/61 * * * *"), []string{inSchedule + `minute: step 61 is larger than its range (got "*/61"); want at most 59`}},
	{"46 every 0s", scheduled("@every 0s"), []string{`forge.toml:3:20: crons[0].schedule: @every: the interval is too short (got "0s"); want at least 1s`}},
	{"46 every -5s", scheduled("@every -5s"), []string{`forge.toml:3:20: crons[0].schedule: @every: the interval is too short (got "-5s"); want at least 1s`}},
	{"46 every 1ns", scheduled("@every 1ns"), []string{`forge.toml:3:20: crons[0].schedule: @every: a tick needs a whole second (got "1ns"); want at least 1s`}},
	{"47 reboot", scheduled("@reboot"), []string{inSchedule + `@reboot: a cluster does not reboot; want @yearly, @monthly, @weekly, @daily, @hourly, @every 90s, @at 2027-01-01T00:00:00Z or @manual`}},
	{"48 31 February", scheduled("0 0 31 2 *"), []string{`forge.toml:3:17: crons[0].schedule: day-of-month: it never fires, no such date exists (got "31 2 *"); want a day up to 29 in February`}},
	{"48 30 February", scheduled("0 0 30 2 *"), []string{`forge.toml:3:17: crons[0].schedule: day-of-month: it never fires, no such date exists (got "30 2 *"); want a day up to 29 in February`}},
	{"48 31 of the short months", scheduled("0 0 31 4,6,9,11 *"), []string{
		`forge.toml:3:17: crons[0].schedule: day-of-month: it never fires, no such date exists (got "31 4,6,9,11 *"); want a day up to 30 in April, June, September or November`,
	}},
	{"49 29 February", scheduled("0 0 29 2 *"), []string{
		"forge.toml:3:12: warning: crons[0].schedule: it fires only on 29 February: next on 2028-02-29, 2032-02-29 and 2036-02-29",
	}},
	{"50 TZ=", scheduled("TZ="), []string{inSchedule + `expression: a time zone does not belong here (got "TZ="); want the zone in the key timezone`}},
	{"50 TZ=UTC", scheduled("TZ=UTC"), []string{inSchedule + `expression: a time zone does not belong here (got "TZ=UTC"); want the zone in the key timezone`}},
	{"50 CRON_TZ=UTC", scheduled("CRON_TZ=UTC * * * * *"), []string{
		`forge.toml:3:18: crons[0].schedule: expression: a time zone does not belong here (got "CRON_TZ=UTC * * * * *"); want the zone in the key timezone`,
	}},
	{"51 Mars/Base", with(`timezone = "Mars/Base"`), []string{atKey + `timezone: unknown time zone (got "Mars/Base"); want "UTC" or an IANA name such as "Europe/Berlin"`}},
	{"52 EST5EDT", with(`timezone = "EST5EDT"`), []string{atKey + `timezone: an abbreviation is not a place (got "EST5EDT"); want an IANA name such as "America/New_York"`}},
	{"52 Local", with(`timezone = "Local"`), []string{atKey + `timezone: the host's own zone differs between nodes (got "Local"); want "UTC" or an IANA name such as "Europe/Berlin"`}},
	{"54 malformed W", scheduled("0 0 32W * *"), []string{`forge.toml:3:17: crons[0].schedule: day-of-month: malformed W (got "32W"); want "1W" to "31W", or "LW"`}},
	{"54 malformed #", scheduled("0 0 * * 5#6"), []string{`forge.toml:3:21: crons[0].schedule: day-of-week: malformed # (got "5#6"); want "5#1" to "5#5" for the first to the fifth Friday`}},
	{"54 malformed L", scheduled("0 0 L-40 * *"), []string{`forge.toml:3:17: crons[0].schedule: day-of-month: malformed L (got "L-40"); want "L", or "L-1" to "L-30" for days before the last`}},
	{"54 malformed H", scheduled("H(5-1) * * * *"), []string{inSchedule + `minute: the range of H runs backwards (got "H(5-1)"); want "H", "H/15" or "H(0-29)"`}},
	{"55 full-width digits", scheduled("５ * * * *"), []string{inSchedule + `expression: a character is not ASCII (got "５"); want plain digits, letters and signs`}},
	{"56 line break", scheduled(`0 3\n* * *`), []string{atSchedule + `expression: it has a line break (got "\n"); want one line`}},
	{"57 ticks lost in a gap", inCron("schedule = \"0 */2 * * *\"\ntimezone = \"Europe/Berlin\"\ncommand = [\"true\"]"), []string{
		"forge.toml:3:12: warning: crons[0].schedule: daylight saving in Europe/Berlin takes ticks away from a minute or hour with *: there is no 02:00 on 2027-03-28, 02:00 on 2028-03-26 and 02:00 on 2029-03-25",
	}},
	{"57 fixed time in a gap, which loses no tick", inCron("schedule = \"30 2 * * *\"\ntimezone = \"Europe/Berlin\"\ncommand = [\"true\"]"), nil},
	{"58 both day fields", scheduled("0 0 13 * FRI"), []string{
		"forge.toml:3:12: warning: crons[0].schedule: day-of-month and day-of-week are both set, and either is enough: next on Fri 2026-11-27 00:00, Fri 2026-12-04 00:00, Fri 2026-12-11 00:00, Sun 2026-12-13 00:00 and Fri 2026-12-18 00:00",
	}},
	{"59 catch_up", with(`catch_up = "sometimes"`), []string{atKey + `catch_up: not a known value (got "sometimes"); want "none", "latest" or "all"`}},
	{"60 short window", with(`catch_up_window = "9s"`), []string{`forge.toml:4:19: crons[0].catch_up_window: out of range (got "9s"); want 10s to 31d`}},
	{"60 long window", with(`catch_up_window = "32d"`), []string{`forge.toml:4:19: crons[0].catch_up_window: out of range (got "32d"); want 10s to 31d`}},
	{"61 everything of a month", inCron("schedule = \"@every 1s\"\ncatch_up = \"all\"\ncatch_up_window = \"31d\"\ncommand = [\"true\"]"), []string{
		`forge.toml:5:19: crons[0].catch_up_window: catching up could mean up to 2,678,400 runs (got "31d"); want a shorter catch_up_window, or catch_up = "latest"`,
	}},
	{"62 overlap", with(`overlap = "maybe"`), []string{`forge.toml:4:11: crons[0].overlap: not a known value (got "maybe"); want "skip", "allow", "queue", "queue_all", "replace" or "replace_waiting"`}},
	{"63 jitter at the interval", inCron("schedule = \"@hourly\"\njitter = \"1h\"\ncommand = [\"true\"]"), []string{
		`forge.toml:4:10: crons[0].jitter: not below the shortest interval of the schedule "@hourly" (got "1h"); want less than 1h`,
	}},
	{"64 timeout over the interval", inCron("schedule = \"@every 10s\"\noverlap = \"allow\"\njob = \"slow\"") + "[jobs.slow]\nkind = \"shell\"\ncommand = [\"true\"]\ntimeout = \"1m\"\n", []string{
		`forge.toml:4:11: warning: crons[0].overlap: runs may pile up: the job's timeout 1m is longer than the cron's interval 10s; want overlap = "skip" or a shorter timeout`,
	}},
}

func TestCronCatalogue(t *testing.T) {
	t.Parallel()
	for _, c := range cronCatalogue {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, report, err := Parse("forge.toml", []byte(c.text), LoadOptions{
				Environ: func() []string { return nil }, now: func() time.Time { return written },
			})
			if diff := cmp.Diff(c.want, messages(report)); diff != "" {
				t.Errorf("report (-want +got):\n%s", diff)
			}
			if refused := len(report.Errors()) > 0; refused != (err != nil) {
				t.Errorf("error = %v with %d errors in the report", err, len(report.Errors()))
			}
		})
	}
}

// hostsZone makes this test binary look for a zone of its host's.
const hostsZone = "CONFIG_TEST_HOSTS_ZONE"

// 53: a zone that only this host has is none. Where zones lie is asked once in a
// process, so a child looks.
func TestTheHostsZonesDoNotCount(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	zone := append([]byte("TZif"), make([]byte, 40)...) // the shortest file of a zone
	zone[39], zone[43] = 1, 4                           // one offset, four letters
	zone = append(zone, 0, 0, 14, 16, 0, 0, 'N', 'O', 'D', 0)
	if err := os.MkdirAll(filepath.Join(dir, "Node"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "Node", "Only"), zone, 0o600); err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestTheHostsZoneInAChild$") //nolint:gosec // ourselves
	child.Env = append(os.Environ(), "ZONEINFO="+dir, hostsZone+"=Node/Only")
	if output, err := child.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, output)
	}
}

// TestTheHostsZoneInAChild does nothing unless it runs as the child of another
// test.
func TestTheHostsZoneInAChild(t *testing.T) {
	t.Parallel()
	name := os.Getenv(hostsZone)
	if name == "" {
		return
	}
	if _, err := time.LoadLocation(name); err != nil {
		t.Fatalf("the host does not have it: %v", err)
	}
	_, report, _ := parseWith(with(`timezone = "` + name + `"`))
	want := []string{atKey + `timezone: unknown time zone (got "Node/Only"); want "UTC" or an IANA name such as "Europe/Berlin"`}
	if diff := cmp.Diff(want, messages(report)); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}

// 65: the number of crons is bounded.
func TestCountOfCrons(t *testing.T) {
	t.Parallel()
	for crons, want := range map[int][]string{
		100_000:   nil,
		100_001:   {"forge.toml: warning: crons: very many crons (got 100,001); want no more than 100,000 in one cluster"},
		1_000_000: {"forge.toml: warning: crons: very many crons (got 1,000,000); want no more than 100,000 in one cluster"},
		1_000_001: {"forge.toml: crons: too many crons (got 1,000,001); want at most 1,000,000"},
	} {
		l := newLoader("forge.toml", LoadOptions{})
		if ok := l.checkCount(crons); ok != (crons <= 1_000_000) {
			t.Errorf("%d crons: %v", crons, ok)
		}
		if diff := cmp.Diff(want, messages(l.report)); diff != "" {
			t.Errorf("%d crons (-want +got):\n%s", crons, diff)
		}
	}
}
