package importer

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/internal/config"
)

// written returns the TOML of a result, and fails the test unless forge check accepts it.
func written(t *testing.T, r *Result) string {
	t.Helper()
	var b strings.Builder
	if err := r.Write(&b); err != nil {
		t.Fatal(err)
	}
	if _, _, err := config.Parse("imported.toml", []byte(b.String()), config.LoadOptions{Environ: func() []string { return []string{"APP_URL=postgres://app"} }}); err != nil {
		t.Errorf("forge check rejects the import: %v\n%s", err, b.String())
	}
	return b.String()
}

func importCrontab(t *testing.T, text string, o CrontabOptions) *Result {
	t.Helper()
	result, err := Crontab("crontab", strings.NewReader(text), o)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func TestCrontab(t *testing.T) {
	t.Parallel()
	result := importCrontab(t, `# Edit this file with crontab -e.

SHELL=/bin/bash
PATH = "/usr/local/bin:/usr/bin"
MAILTO=ops@example.com
# Dump the database,
# keep a week.
30 2 * * MON-FRI	/opt/bin/backup.sh --full "a b"
CRON_TZ=America/New_York
@daily cd /srv/app && php artisan schedule:run >> /dev/null 2>&1
@reboot /usr/bin/tunnel
0 0 1 * * mail -s "100\% done" root%Hello,%line two
*/5 * * * FRI-MON date
`, CrontabOptions{Timezone: "Europe/Berlin"})
	const want = `
# Edit this file with crontab -e.

# Dump the database,
# keep a week.
[jobs.backup]
kind = "shell"
command = ["/bin/bash", "-c", '/opt/bin/backup.sh --full "a b"']
env = { PATH = "/usr/local/bin:/usr/bin", SHELL = "/bin/bash" }
timeout = "24h"
retry = { max_attempts = 1 }

[[crons]]
name = "backup"
schedule = "30 2 * * MON-FRI"
timezone = "Europe/Berlin"
job = "backup"
overlap = "allow"
catch_up = "none"

[jobs.artisan-schedule-run]
kind = "shell"
command = ["/bin/bash", "-c", "cd /srv/app && php artisan schedule:run >> /dev/null 2>&1"]
env = { PATH = "/usr/local/bin:/usr/bin", SHELL = "/bin/bash" }
timeout = "24h"
retry = { max_attempts = 1 }

[[crons]]
name = "artisan-schedule-run"
schedule = "@daily"
timezone = "America/New_York"
job = "artisan-schedule-run"
overlap = "allow"
catch_up = "none"

# Not imported: crontab:11:1: a cluster has no boot (got "@reboot"); want a service of the host, such as a systemd unit, or a schedule
#   @reboot /usr/bin/tunnel

[jobs.mail]
kind = "shell"
command = ["/bin/sh", "-c", "printf '%s\\n' \"$@\" | /bin/bash -c \"$0\"", 'mail -s "100% done" root', "Hello,", "line two"]
env = { PATH = "/usr/local/bin:/usr/bin", SHELL = "/bin/bash" }
timeout = "24h"
retry = { max_attempts = 1 }

[[crons]]
name = "mail"
schedule = "0 0 1 * *"
timezone = "America/New_York"
job = "mail"
overlap = "allow"
catch_up = "none"

# Not imported: crontab:13:11: day-of-week: the range runs backwards (got "FRI-MON"); want the smaller value first, or two ranges such as 5-6,0-1
#   */5 * * * FRI-MON date
`
	_, got, _ := strings.Cut(written(t, result), "\n\n")
	if diff := cmp.Diff(want, "\n"+got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if header := strings.Join(result.Header, "\n"); !strings.Contains(header, "line 5: MAILTO=ops@example.com") {
		t.Errorf("the header says nothing about MAILTO:\n%s", header)
	}
}

func TestSystemCrontab(t *testing.T) {
	t.Parallel()
	result := importCrontab(t, "HOME=/var/lib/app\nLD_PRELOAD=x.so\nRANDOM_DELAY=6\n"+
		"25 6 * * *\troot\ttest -x /usr/sbin/anacron || { cd / && run-parts --report /etc/cron.daily; }\n"+
		"* * * * * app /usr/bin/flock -n /tmp/lock nice -n 5 /usr/bin/python3 /srv/tick.py\n"+
		"5~9 4 * * * root\n", CrontabOptions{System: true, Timezone: "UTC"})
	written(t, result)
	daily, tick := result.Entries[0], result.Entries[1]
	if daily.Cron.Name != "cron-daily" && daily.Cron.Name != "cron" || daily.Work.User != "root" || daily.Work.Cwd != "/var/lib/app" || daily.Cron.Jitter.String() != "6m" {
		t.Errorf("got %+v %+v", daily.Cron, daily.Work)
	}
	if tick.Cron.Name != "tick" || tick.Work.User != "app" || tick.Cron.Jitter != 0 || !strings.Contains(tick.Notes[0], "RANDOM_DELAY=6 is not kept") {
		t.Errorf("got %+v %+v %q", tick.Cron, tick.Work, tick.Notes)
	}
	if want := `crontab:6:17: no command; want a command after the schedule`; result.Entries[2].Refused[0].String() != want {
		t.Errorf("got %v, want %s", result.Entries[2].Refused, want)
	}
	if !strings.Contains(strings.Join(result.Header, "\n"), "line 2: LD_PRELOAD is not kept: a variable that changes which code the program loads") {
		t.Errorf("header %q", result.Header)
	}
}

func TestRefusedLines(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"* * * *":                          "4 fields",
		"* * * * *":                        "no command; want a command after the schedule",
		"60 * * * * x":                     `minute: not a value (got "60"); want 0 to 59`,
		"* * * * 8 x":                      `day-of-week: not a value (got "8"); want 0 to 7, or a name such as mon`,
		"5/10 * * * * x":                   `minute: a step needs a range (got "5/10"); want 5-59/10, or the value alone`,
		"*/0 * * * * x":                    `minute: not a step (got "*/0")`,
		"*/a * * * * x":                    `minute: not a step (got "*/a")`,
		"0 0 31 2 * x":                     "never fires",
		"0 0 */40 * MON x":                 "a step beyond the range beside another day field",
		"0 0 L * * x":                      "day-of-month: not a value",
		"0 0 * January * x":                "month: not a value",
		"@every 5m x":                      `not a schedule (got "@every")`,
		"* * * * * echo ${run:-x}":         "${run:-x}",
		"CRON_TZ=Mars/Base\n0 0 * * * x":   "unknown time zone",
		"1,,2 * * * * x":                   `minute: not a value (got "1,,2")`,
		"10-5 * * * * x":                   "the range runs backwards",
		"5~1 * * * * x":                    "the range runs backwards",
		"1~5/2 * * * * x":                  "a random value with a step",
		"* * * * * " + "x\x01y" + "\x7f z": "",
	} {
		result := importCrontab(t, line+"\n", CrontabOptions{Timezone: "UTC"})
		written(t, result)
		var got []string
		for _, problem := range result.Problems() {
			got = append(got, problem.String())
		}
		if text := strings.Join(got, "\n"); !strings.Contains(text, want) || (want == "") != (text == "") {
			t.Errorf("%q: got %q, want %q", line, text, want)
		}
	}
}

func TestTranslatedSchedules(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"*/90 * * * * x":  "0 * * * *",
		"0 0 * * */7 x":   "0 0 * * 0",
		"0 0 * * 1-7/6 x": "0 0 * * 1,0",
		"0 0 * * 5-7 x":   "0 0 * * 5-7",
		"1~5 * * * * x":   "H(1-5) * * * *",
		"~ 3 * * * x":     "H(0-59) 3 * * *",
		"-0 3 * * * x":    "0 3 * * *",
		"0 0 */2 * MON x": "0 0 */2 * MON",
		"@every_minute x": "* * * * *",
		"5-5/9 * * * * x": "5 * * * *",
		"@midnight\tx":    "@midnight",
	} {
		result := importCrontab(t, line, CrontabOptions{Timezone: "UTC"})
		written(t, result)
		if got := result.Entries[0].Cron.Schedule; got != want {
			t.Errorf("%q became %q, want %q; %v", line, got, want, result.Problems())
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	taken := Names{}
	for _, c := range []struct{ command, want string }{
		{"/usr/bin/certbot -q renew", "certbot"},
		{"certbot renew", "certbot-renew"},
		{"certbot renew", "certbot-renew-2"},
		{"[ -x /usr/lib/x ] && if true; then /usr/lib/php/sessionclean; fi", "sessionclean"},
		{`sudo -u app A=1 bash -c "/srv/sync.sh"`, "sync"},
		{"java -jar /opt/Report.jar", "report"},
		{"/usr/bin/env python3.11 -m reports.daily", "reports-daily"},
		{"timeout -k 5 30m /bin/x_y", "x_y"},
		{"a", "cron-a"},
		{"bash", "bash"},
		{"$(which x)", "which"},
		{";", "command"},
	} {
		if got := taken.unique(nameOf([]string{"/bin/sh", "-c", c.command})); got != c.want {
			t.Errorf("%q is named %q, want %q", c.command, got, c.want)
		}
	}
}

// TestCommandsGetTheirInput runs the command of a line with a %: the text after it is the input.
func TestCommandsGetTheirInput(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		`* * * * * cat; printf '[\%s]' "$0"%one%two'"$x%`: "one\ntwo'\"$x\n[/bin/sh]",
		`* * * * * cat%`:                "",
		`* * * * * cat%a%%b`:            "a\n\nb\n",
		`* * * * * printf '\%s\\' x; :`: `x\`,
	} {
		command := importCrontab(t, line, CrontabOptions{Timezone: "UTC"}).Entries[0].Work.Command
		cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
		cmd.Env = os.Environ()
		got, err := cmd.CombinedOutput()
		if err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v, want %q", line, got, err, want)
		}
	}
}

func TestInputIsBounded(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		strings.Repeat("#", maxInput+1): "larger than 4 MiB",
		"# ok\n\xff\n":                  "crontab:2: not text in UTF-8",
		"\x00":                          "crontab:1: not text in UTF-8",
	} {
		if _, err := Crontab("crontab", strings.NewReader(text), CrontabOptions{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	long := importCrontab(t, "* * * * * "+strings.Repeat("x", 65<<10), CrontabOptions{})
	if problems := long.Problems(); len(problems) != 1 || !strings.Contains(problems[0].Message, "too long") {
		t.Errorf("got %v", problems)
	}
	many := importCrontab(t, strings.Repeat("* * * * * "+strings.Repeat("x", 60<<10)+"\n", 20), CrontabOptions{Timezone: "UTC"})
	if err := many.Write(&strings.Builder{}); err == nil || !strings.Contains(err.Error(), "at most 1 MiB") {
		t.Errorf("got %v", err)
	}
}
