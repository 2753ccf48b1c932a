package chaos

import (
	"fmt"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/test/chaos/checker"
)

// outage is how long nobody has looked at the crons when the run begins.
const outage = 10 * time.Minute

// cron is what the run configures, in the words of forge.toml, and what the
// checker is told, in its own.
type cron struct {
	checker.Cron

	schedule string
	more     string // further keys
	takes    time.Duration
	missed   bool // it was due during the outage
}

// crons has every policy. Those that were due in the outage are slow or skip, so
// that the run does not begin with a thousand jobs.
func crons(now, until time.Time) []cron {
	every := func(d time.Duration) checker.Rule { return checker.Rule{Every: d} }
	kathmandu, err := time.LoadLocation("Asia/Kathmandu")
	if err != nil {
		panic(err)
	}
	first, last := now.Add(-time.Minute).In(kathmandu).Hour(), until.Add(time.Hour).In(kathmandu).Hour()
	hours := []int{}
	for hour := first; ; hour = (hour + 1) % 24 {
		if hours = append(hours, hour); hour == last {
			break
		}
	}
	const s = time.Second
	return []cron{
		{Cron: checker.Cron{Name: "pulse", Rule: every(s), Overlap: checker.OverlapAllow, CatchUp: checker.CatchUpAll}, schedule: "@every 1s"},
		{Cron: checker.Cron{Name: "skip", Rule: checker.Rule{}}, schedule: "* * * * * *", takes: 1300 * time.Millisecond, missed: true},
		{
			Cron:     checker.Cron{Name: "queue", Rule: every(2 * s), Overlap: checker.OverlapQueue, CatchUp: checker.CatchUpAll, Limit: 3},
			schedule: "@every 2s", takes: 2500 * time.Millisecond, missed: true,
		},
		{
			Cron:     checker.Cron{Name: "queue-all", Rule: every(4 * s), Overlap: checker.OverlapQueueAll, CatchUp: checker.CatchUpNone},
			schedule: "@every 4s", takes: 700 * time.Millisecond,
		},
		{
			Cron:     checker.Cron{Name: "replace", Rule: every(2 * s), Overlap: checker.OverlapReplace, CatchUp: checker.CatchUpLatest},
			schedule: "@every 2s", takes: 2200 * time.Millisecond, missed: true,
		},
		{
			Cron:     checker.Cron{Name: "replace-waiting", Rule: every(3 * s), Overlap: checker.OverlapReplaceWaiting, CatchUp: checker.CatchUpLatest},
			schedule: "@every 3s", takes: 3300 * time.Millisecond, missed: true,
		},
		{
			Cron: checker.Cron{
				Name: "zone", Overlap: checker.OverlapAllow, CatchUp: checker.CatchUpNone,
				Rule: checker.Rule{Zone: kathmandu, Hours: hours, Seconds: thirds()},
			},
			schedule: fmt.Sprintf("*/3 * %s * * *", list(hours)), more: `timezone = "Asia/Kathmandu"`,
		},
		{
			Cron:     checker.Cron{Name: "jitter", Rule: every(3 * s), Overlap: checker.OverlapAllow, Jitter: 2 * s},
			schedule: "@every 3s", more: `jitter = "2s"`,
		},
		{
			Cron:     checker.Cron{Name: "excluded", Rule: every(s), Overlap: checker.OverlapAllow, Excluded: &checker.Rule{Seconds: thirds()}},
			schedule: "@every 1s", more: `exclude = ["*/3 * * * * *"]`,
		},
		{
			Cron:     checker.Cron{Name: "all", Rule: every(5 * s), Overlap: checker.OverlapAllow, CatchUp: checker.CatchUpAll, Limit: 4, Window: 5 * time.Minute},
			schedule: "@every 5s", missed: true,
		},
		{Cron: checker.Cron{Name: "latest", Rule: every(6 * s), Overlap: checker.OverlapAllow}, schedule: "@every 6s", missed: true},
		{Cron: checker.Cron{Name: "none", Rule: every(6 * s), Overlap: checker.OverlapAllow, CatchUp: checker.CatchUpNone}, schedule: "@every 6s", missed: true},
	}
}

func thirds() []int {
	var seconds []int
	for second := 0; second < 60; second += 3 {
		seconds = append(seconds, second)
	}
	return seconds
}

func list(numbers []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(numbers), " ", ","), "[]")
}

// complete fills in forge's defaults, which the checker has to be told too.
func (c *cron) complete(until time.Time) {
	c.Until = until
	if c.Overlap == "" {
		c.Overlap = checker.OverlapSkip
	}
	if c.CatchUp == "" {
		c.CatchUp = checker.CatchUpLatest
	}
	if c.Window == 0 {
		c.Window = time.Hour
	}
	if c.Limit == 0 {
		c.Limit = 10
	}
}

// Jobs that are enqueued by hand: one that does nothing else than to testify, one
// with a limit for each tenant, one with a rate for each tenant, one of tenants that take turns, one
// that kills itself at every attempt, and one that prints without end, almost.
const (
	ackedJob   = "acked"
	limitedJob = "limited"
	ratedJob   = "rated"
	turnJob    = "turn"
	poisonJob  = "poison"
	floodJob   = "flood"

	fairQueues = 2 // that of limitedJob and that of turnJob
)

// config writes the cluster's file. A job's witness leaves its lines in
// testimony; marker is in the environment of every process of the run.
func config(crons []cron, witness, testimony, marker string) string {
	text := &strings.Builder{}
	text.WriteString("[node]\ndrain_timeout = \"10s\"\n")
	job := func(name string, attempts int, command ...string) {
		fmt.Fprintf(text, `
[jobs.%s]
kind = "shell"
command = ["%s"]
env = { %s = %q }
retry = { max_attempts = %d, backoff = "1s" }
`, name, strings.Join(command, `", "`), markerName, marker, attempts)
	}
	job(ackedJob, 100, witness, testimony, "0s")
	fmt.Fprintf(text, "\n[queues.%s]\nlimit_per_key = { key = \"args.tenant\", limit = %d }\nfair_by = \"args.tenant\"\n", limitedJob, keyLimit)
	job(limitedJob, 100, witness, testimony, "200ms")
	fmt.Fprintf(text, "queue = %q\n", limitedJob)
	fmt.Fprintf(text, "\n[queues.%s]\nrate_limit = { limit = %d, per = %q, key = \"args.tenant\" }\n", ratedJob, rateLimit, ratePer)
	job(ratedJob, 100, witness, testimony, "0s")
	fmt.Fprintf(text, "queue = %q\n", ratedJob)
	fmt.Fprintf(text, "\n[queues.%s]\nmax_workers = 1\nfair_by = \"args.tenant\"\n", turnJob)
	job(turnJob, 100, witness, testimony, turnTakes.String())
	fmt.Fprintf(text, "queue = %q\n", turnJob)
	job(poisonJob, 2, "sh", "-c", witness+" "+testimony+" 0s; kill -9 $$")
	job(floodJob, 100, "sh", "-c", "head -c 4000000 /dev/zero | tr '\\\\0' x | fold; exec "+witness+" "+testimony+" 0s")
	for _, c := range crons {
		job(c.Name, 100, witness, testimony, c.takes.String())
		fmt.Fprintf(text, `
[[crons]]
name = %q
job = %q
schedule = %q
overlap = %q
catch_up = %q
catch_up_window = %q
catch_up_limit = %d
end_at = %q
%s
`, c.Name, c.Name, c.schedule, c.Overlap, c.CatchUp, c.Window, c.Limit, c.Until.UTC().Format(time.RFC3339), c.more)
	}
	return text.String()
}
