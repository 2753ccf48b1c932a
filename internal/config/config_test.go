package config

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// parseWith parses with the given variables and nothing else in the environment.
func parseWith(text string, environ ...string) (*Config, Report, error) {
	return Parse("forge.toml", []byte(text), LoadOptions{Environ: func() []string { return environ }})
}

// mustParse parses a text that has to be right.
func mustParse(t *testing.T, text string, environ ...string) *Config {
	t.Helper()
	c, report, err := parseWith(text, environ...)
	if err != nil {
		t.Fatalf("parse: %v\n%s", err, report)
	}
	return c
}

var ignoreSecrets = cmpopts.IgnoreUnexported(Config{}, Job{})

func readText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestTemplateLoadsClean(t *testing.T) {
	t.Parallel()
	c, report, err := parseWith(Template)
	if err != nil || len(report.Problems) > 0 {
		t.Fatalf("Template: %v\n%s", err, report)
	}
	if len(c.Crons) > 0 || len(c.Jobs) > 0 || len(c.Alerts) > 0 {
		t.Errorf("the template has live crons, jobs or alerts: %v %v %v", c.Crons, c.Jobs, c.Alerts)
	}
}

func TestExampleLoadsClean(t *testing.T) {
	t.Parallel()
	c, report, err := parseWith(readText(t, "../../forge.toml.example"))
	if err != nil || len(report.Problems) > 0 {
		t.Fatalf("example: %v\n%s", err, report)
	}
	kinds := map[string]bool{}
	for _, cron := range c.Crons {
		_, job, ok := c.JobFor(cron)
		if !ok {
			t.Errorf("cron %s has no job", cron.Name)
		}
		kinds[job.Kind] = true
	}
	if want := map[string]bool{KindShell: true, KindHTTP: true, KindSQL: true}; !cmp.Equal(kinds, want) {
		t.Errorf("kinds = %v, want %v", kinds, want)
	}
}

// commentedKey is a default in the template.
var commentedKey = regexp.MustCompile(`(?m)^#([a-z0-9_]+ = )`)

func TestTemplateShowsTheDefaults(t *testing.T) {
	t.Parallel()
	uncommented := commentedKey.ReplaceAllString(Template, "$1")
	c := mustParse(t, uncommented, "DATABASE_URL=postgres://a", "DIRECT_DATABASE_URL=postgres://b")
	want := Default()
	want.Database.URL, want.Database.LeaderURL = "postgres://a", "postgres://b"
	want.Node.ID, want.Node.APIURL = "node-1", "http://127.0.0.1:8080"
	want.CronDefaults.Timezone = "UTC"
	if diff := cmp.Diff(want, c, ignoreSecrets, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(Config{}, "Queues", "Jobs", "Crons")); diff != "" {
		t.Errorf("the template's defaults differ (-Default +template):\n%s", diff)
	}
	for _, k := range scalarKeys() {
		if k.path != "cron_defaults.timezone" && k.path != "cron_defaults.jitter" && k.path != "node.allowed_commands" && !strings.Contains(Template, "#"+k.name+" = ") {
			t.Errorf("the template lacks %s", k.path)
		}
	}
}

// TestExampleAgreesWithDefaults keeps the figures that the example writes down
// equal to the defaults, so that a newcomer sees the real ones.
func TestExampleAgreesWithDefaults(t *testing.T) {
	t.Parallel()
	c, want := mustParse(t, readText(t, "../../forge.toml.example")), Default()
	want.HTTP.AllowPrivateTargets = true // the example says why
	want.CronDefaults.Timezone = "UTC"
	if diff := cmp.Diff(want, c, ignoreSecrets, cmpopts.IgnoreFields(Config{}, "Queues", "Jobs", "Crons"),
		cmpopts.IgnoreFields(Node{}, "ID")); diff != "" {
		t.Errorf("the example's settings differ (-Default +example):\n%s", diff)
	}
}

func TestEmptyFileIsTheDefault(t *testing.T) {
	t.Parallel()
	c := mustParse(t, "")
	want := Default()
	want.CronDefaults.Timezone = "UTC"
	want.Node.ID = c.Node.ID
	want.Queues, want.Jobs = map[string]Queue{"default": {Priority: 1}}, map[string]Job{}
	if diff := cmp.Diff(want, c, ignoreSecrets); diff != "" {
		t.Errorf("empty file (-want +got):\n%s", diff)
	}
	if c.Node.ID == "" {
		t.Error("node.id is empty, want the host's name")
	}
}

// TestShowRoundTrips reads what Show writes and finds the same configuration.
func TestShowRoundTrips(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"template": Template, "example": readText(t, "../../forge.toml.example"), "full": full,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := mustParse(t, text, "TOKEN=s3cret-value")
			var shown bytes.Buffer
			if err := c.Show(&shown); err != nil {
				t.Fatal(err)
			}
			again := mustParse(t, shown.String(), "TOKEN=s3cret-value")
			if diff := cmp.Diff(c, again, ignoreSecrets, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("round trip (-first +again):\n%s\n%s", diff, shown.String())
			}
		})
	}
}

func TestShowLeavesOutWhatIsEmpty(t *testing.T) {
	t.Parallel()
	c := mustParse(t, `
[jobs.plain]
kind = "shell"
command = ["true"]
[jobs."odd.name"]
kind = "shell"
command = ["true"]
[jobs.once]
kind = "shell"
command = ["true"]
unique = { by_args = true }
[jobs.last]
kind = "go"
unique = { by_args = ["a\"b", "c"], debounce = "5s", max_wait = "1m" }
`)
	shown := showText(t, c)
	if want := "[jobs.last.unique]\nby_args = [\"a\\\"b\",\"c\"]\ndebounce = \"5s\"\nmax_wait = \"1m\"\n"; !strings.Contains(shown, want) {
		t.Errorf("no %s in\n%s", want, shown)
	}
	if got := strings.Count(shown, ".unique]"); got != 2 || !strings.Contains(shown, "[jobs.once.unique]\nby_args = true\n") {
		t.Errorf("%d sections of what is unique in\n%s", got, shown)
	}
	if got := strings.Count(shown, ".output]\ncapture = 262144\n"); got != 3 {
		t.Errorf("%d sections of output in\n%s", got, shown)
	}
}

// showText is the configuration as it is shown.
func showText(t *testing.T, c *Config) string {
	t.Helper()
	var shown bytes.Buffer
	if err := c.Show(&shown); err != nil {
		t.Fatal(err)
	}
	return shown.String()
}

// full holds every kind of value.
const full = `
[database]
url = "postgres://forge:${env:TOKEN}@db.internal/forge"
[node]
id = "n1"
tags = { zone = "a", "odd key" = "b" }
[cluster.leader_election.roles.billing]
lock_id = 77
[queues.slow]
max_workers = 3
[jobs.hook]
kind = "http"
url = "https://example.com/hook?a=b"
headers = { Authorization = "Bearer ${env:TOKEN}", Accept = "text/plain" }
body = "{}"
expect_status = [200, 204]
queue = "slow"
tags = { team = "x" }
[jobs.purge]
kind = "sql"
statement = "DELETE FROM sessions WHERE expires_at < now()"
database = "postgres://app@127.0.0.1/app"
statement_timeout = "5s"
[[crons]]
name = "purge"
schedule = "0 3 * * *"
job = "purge"
catch_up = true
args = { days = 7, deep = { list = [1, "two", 3.5, true] } }
[[crons]]
name = "ping"
schedule = "@every 30s"
url = "https://example.com/${env:TOKEN}"
paused = true
`

func TestShortFormsBecomeJobs(t *testing.T) {
	t.Parallel()
	c := mustParse(t, `
[[crons]]
name = "a-command"
schedule = "@daily"
command = ["date", "-u"]
[[crons]]
name = "a-request"
schedule = "@daily"
url = "https://example.com/"
[[crons]]
name = "a-statement"
schedule = "@daily"
sql = "SELECT 1"
`)
	for _, cron := range c.Crons {
		name, _, ok := c.JobFor(cron)
		if !ok || name != cron.Name || cron.Command != nil || cron.URL != "" || cron.SQL != "" {
			t.Errorf("JobFor(%+v) = %q, %v", cron, name, ok)
		}
	}
	if got := c.Jobs["a-command"]; got.Kind != KindShell || !cmp.Equal(got.Command, []string{"date", "-u"}) || got.Queue != "default" {
		t.Errorf("a-command = %+v", got)
	}
	if got := c.Jobs["a-request"]; got.Kind != KindHTTP || got.Method != "GET" {
		t.Errorf("a-request = %+v", got)
	}
	if got := c.Jobs["a-statement"]; got.Kind != KindSQL || got.Statement != "SELECT 1" || got.StatementTimeout != got.Timeout {
		t.Errorf("a-statement = %+v", got)
	}
}

func TestCompleteForConfigsBuiltInGo(t *testing.T) {
	t.Parallel()
	c := Default()
	c.Crons = []Cron{{Name: "beat", Schedule: "@every 1s", Command: []string{"true"}}}
	if report := c.Complete(); len(report.Problems) > 0 {
		t.Fatalf("Complete: %s", report)
	}
	if report := c.Complete(); len(report.Problems) > 0 {
		t.Fatalf("Complete again: %s", report)
	}
	if c.Crons[0].Overlap != "skip" || c.Jobs["beat"].Kind != KindShell {
		t.Errorf("not completed: %+v", c)
	}
	c.Crons[0].Job = "bate"
	if report := c.Complete(); !strings.Contains(report.String(), `unknown job (got "bate"); want "beat"`) {
		t.Errorf("Complete with a wrong job: %s", report)
	}
}

func TestQueueWorkers(t *testing.T) {
	t.Parallel()
	c := mustParse(t, "[node]\nslots = 8\n[queues.wide]\nmax_workers = 100\n[queues.narrow]\nmax_workers = 2\n")
	for queue, want := range map[string]int{"wide": 8, "narrow": 2, "default": 8} {
		if got := c.QueueWorkers(queue); got != want {
			t.Errorf("QueueWorkers(%s) = %d, want %d", queue, got, want)
		}
	}
}

func TestQueuePriorityIsTheJobsDefault(t *testing.T) {
	t.Parallel()
	c := mustParse(t, `
[queues.slow]
priority = 4
[jobs.one]
kind = "shell"
command = ["true"]
queue = "slow"
[jobs.two]
kind = "shell"
command = ["true"]
queue = "slow"
priority = 2
`)
	if c.Jobs["one"].Priority != 4 || c.Jobs["two"].Priority != 2 {
		t.Errorf("priorities = %d, %d, want 4, 2", c.Jobs["one"].Priority, c.Jobs["two"].Priority)
	}
}

// TestManyWrongNames checks that the time for finding the names that were meant is bounded.
func TestManyWrongNames(t *testing.T) {
	t.Parallel()
	const crons = 3000
	var jobs, unknownJobs, unknownZones, fine strings.Builder
	for i := range fewJobs + 1 {
		fmt.Fprintf(&jobs, "[jobs.report-%d]\nkind = \"go\"\n", i)
	}
	cron := func(text *strings.Builder, i int, job, zone string) {
		fmt.Fprintf(text, "[[crons]]\nname = \"cron-%d\"\nschedule = \"@daily\"\njob = %q\ntimezone = %q\n", i, job, zone)
	}
	for i := range crons {
		cron(&unknownJobs, i, "repotr-1", "UTC")
		cron(&unknownZones, i, "report-1", "Europe/Berln")
		cron(&fine, i, "report-1", "UTC")
	}
	_, report, _ := parseWith(jobs.String() + unknownJobs.String())
	if problems := report.Errors(); len(problems) != crons || problems[maxJobHints-1].Want != `"report-1"` || !strings.HasPrefix(problems[maxJobHints].Want, "[jobs.repotr-1] ") {
		t.Errorf("%d errors, two of them %v", len(problems), problems[maxJobHints-1:maxJobHints+1])
	}
	began := time.Now()
	mustParse(t, jobs.String()+fine.String())
	took := time.Since(began)
	began = time.Now()
	_, report, _ = parseWith(jobs.String() + unknownZones.String())
	if problems := report.Errors(); len(problems) != crons || problems[crons-1].Want != `an IANA name such as "Europe/Berlin"` {
		t.Errorf("%d errors, the last %v", len(problems), problems[len(problems)-1])
	}
	if wrong := time.Since(began); wrong > 8*took {
		t.Errorf("%s for wrong zones, %s for right ones", wrong, took)
	}
}
