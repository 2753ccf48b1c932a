package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dustin/go-humanize"

	"github.com/forge-scheduler/forge/internal/cronexpr"
)

const (
	// manyTicks is how many ticks a catch-up may fire without a warning.
	manyTicks = 10_000
	// mostTicks is how many ticks may be in a window of which all are to be
	// caught up: no limit that can be written lets more fire.
	mostTicks = 1_000_000
)

func (l *loader) checkCrons() {
	l.checkZone("scheduler.timezone", l.cfg.Scheduler.Timezone)
	if l.has("cron_defaults.timezone") {
		l.checkZone("cron_defaults.timezone", l.cfg.CronDefaults.Timezone)
	}
	if !l.checkCount(len(l.cfg.Crons)) {
		return
	}
	first := make(map[string]int, len(l.cfg.Crons))
	for i, cron := range l.cfg.Crons {
		path := element("crons", i)
		l.checkCronName(i, cron.Name, first)
		l.checkCronJob(path, cron)
		l.checkArgs(path+".args", cron.Args)
		l.checkCronArgs(path+".args", cron)
		if l.has(path + ".timezone") {
			l.checkZone(path+".timezone", cron.Timezone)
		}
		l.checkSchedule(path, cron)
		l.checkOnFailure(path+".on_failure", cron.OnFailure)
		l.checkAbout(path, cron)
	}
}

// Bounds of what a cron says about itself, in characters.
const (
	maxDescription = 1000
	maxOwner       = 100
	maxRunbook     = 2000
)

// checkAbout checks what a cron says about itself.
func (l *loader) checkAbout(path string, cron Cron) {
	l.checkText(path+".description", cron.Description, maxDescription)
	l.checkText(path+".owner", cron.Owner, maxOwner)
	if where := path + ".runbook"; l.checkText(where, cron.Runbook, maxRunbook) && cron.Runbook != "" {
		u, err := url.Parse(cron.Runbook)
		switch {
		case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || strings.ContainsAny(cron.Runbook, " \t\r\n"):
			l.wrong(where, "not a URL", strconv.Quote(clip(redactAddress(cron.Runbook))), "https://HOST/PATH")
		case u.User != nil:
			l.wrong(where, "a user in the URL", "", "the URL without it: everybody who may see the cron sees the runbook")
		}
	}
}

// checkText checks a text that people read. It reports whether the text is fine.
func (l *loader) checkText(path, text string, most int) bool {
	if !l.ok(path) {
		return false
	}
	switch length := utf8.RuneCountInString(text); {
	case length > most:
		l.wrong(path, "too long", fmt.Sprintf("%d characters", length), fmt.Sprintf("at most %d", most))
	case strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) && r != '\n' }):
		l.wrong(path, "a control character", strconv.Quote(clip(text)), "text")
	default:
		return true
	}
	return false
}

func (l *loader) checkOnFailure(path string, then OnFailure) {
	if len(then.Notify) == 0 && l.has(path) && l.ok(path) && l.ok(path+".notify") {
		l.warn(path, "nobody is told", `notify = ["NAME"]`)
	}
	l.checkReceivers(path+".notify", then.Notify)
}

// checkCount bounds the number of crons: the scheduler's leader keeps all of
// them in memory.
func (l *loader) checkCount(crons int) bool {
	switch {
	case crons > l.limits.mostCrons:
		l.add("crons", true, Problem{Message: "too many crons", Got: humanize.Comma(int64(crons)), Want: "at most " + humanize.Comma(int64(l.limits.mostCrons))})
		return false
	case crons > l.limits.manyCrons:
		l.add("crons", true, Problem{
			Message: "very many crons", Got: humanize.Comma(int64(crons)), Want: "no more than " + humanize.Comma(int64(l.limits.manyCrons)) + " in one cluster",
			Warning: true,
		})
	}
	return true
}

// checkCronName checks a name and that no other cron has it, in whatever case.
func (l *loader) checkCronName(i int, name string, first map[string]int) {
	where := element("crons", i) + ".name"
	if !l.ok(where) {
		return
	}
	if message := checkName(name); message != "" {
		got := ""
		if name != "" {
			got = strconv.Quote(clip(name))
		}
		l.wrong(where, message, got, wantJobName)
	}
	folded := strings.ToLower(strings.TrimSpace(name))
	if other, taken := first[folded]; taken && folded != "" {
		l.wrong(where, "a cron of this name exists", strconv.Quote(clip(name)), "another name than that of "+l.where(element("crons", other)+".name"))
		return
	}
	first[folded] = i
}

// checkCronJob checks that a cron says what to do, once.
func (l *loader) checkCronJob(path string, cron Cron) {
	var forms []string
	for _, form := range []string{"job", "command", "url", "sql"} {
		if l.has(join(path, form)) || form == "job" && cron.Job != "" {
			forms = append(forms, form)
		}
		if !l.ok(join(path, form)) {
			return
		}
	}
	if len(l.cfg.Jobs) > 0 && l.aliases[join("jobs", cron.Name)] == path {
		return
	}
	const want = "one of job, command, url or sql"
	switch {
	case len(forms) > 1:
		l.wrongKey(join(path, forms[1]), "more than one thing to do: "+strings.Join(forms, " and "), want)
	case len(forms) == 0:
		l.wrongKey(path, "nothing to do", want)
	case cron.Job == "" && l.ok(path+".name"):
		l.wrong(join(path, forms[0]), "nothing to do", "", want)
	case cron.Job != "":
		if _, ok := l.cfg.Jobs[cron.Job]; !ok {
			l.unknownJob(path+".job", cron.Job)
		}
	}
}

// fewJobs are so few that an error lists all of them. maxJobHints bounds the errors for which a
// name is compared with those of all jobs, of which there may be very many.
const (
	fewJobs     = 10
	maxJobHints = 20
)

func (l *loader) unknownJob(path, name string) {
	want := ""
	switch {
	case len(l.cfg.Jobs) <= fewJobs:
		want = suggest(name, slices.Collect(maps.Keys(l.cfg.Jobs)))
	case l.jobHints < maxJobHints:
		l.jobHints++
		if near := nearest(name, slices.Collect(maps.Keys(l.cfg.Jobs))); near != "" {
			want = strconv.Quote(near)
		}
	}
	if want == "" {
		want = "[jobs." + clip(name) + "] (of kind go for a Go program's worker), or command, url or sql in its place"
	}
	l.wrong(path, "unknown job", strconv.Quote(clip(name)), want)
}

func (l *loader) checkArgs(path string, args map[string]any) {
	if len(args) == 0 || !l.ok(path) {
		return
	}
	if text, err := json.Marshal(args); err == nil && len(text) > MaxArgs {
		l.wrong(path, "args too large", strconv.Itoa(len(text))+" bytes as JSON", "at most 64 KiB")
	}
}

// checkZone checks a time zone by itself, so that a wrong one is not blamed on
// the schedule.
func (l *loader) checkZone(path, zone string) {
	if !l.ok(path) {
		return
	}
	err, known := l.zoneErrors[zone]
	if !known {
		if _, err = cronexpr.LoadZone(zone); err == nil {
			return
		}
		l.zoneErrors[zone] = err // finding the nearest zone takes a millisecond
	}
	l.badExpression(path, err)
}

// checkSchedule checks the expression and what the policy makes of it.
func (l *loader) checkSchedule(path string, cron Cron) {
	where := path + ".schedule"
	if cron.Schedule == "" && l.ok(where) {
		const want = `schedule = "0 3 * * *" (minute, hour, day, month, weekday) or "@every 5m"`
		if l.has(where) {
			l.wrong(where, "no schedule", `""`, want)
		} else {
			l.wrongKey(path, "no schedule", want)
		}
		return
	}
	if !l.ok(where) || !l.ok(path+".every") {
		return
	}
	if !l.ok(path+".timezone") || !l.ok("cron_defaults.timezone") || !l.ok("scheduler.timezone") {
		cron.Timezone = "UTC" // its own mistake is reported
	}
	parsed, err := cronexpr.Parse(cron.Schedule, cronexpr.Options{
		Name: cron.Name, Timezone: cron.Timezone, DSTMissing: cron.DSTMissing, DSTRepeated: cron.DSTRepeated,
	})
	if err != nil {
		l.badExpression(where, err)
		return
	}
	for _, warning := range parsed.Warnings(l.now()) {
		l.warn(where, warning, "")
	}
	l.checkInterval(path, cron, parsed.MinInterval())
	l.checkJitter(path, cron, parsed.MinInterval())
	l.checkBounds(path, cron, parsed)
	l.checkExclude(path, cron, parsed)
}

// checkJitter keeps each tick before the one that follows it.
func (l *loader) checkJitter(path string, cron Cron, interval time.Duration) {
	where := l.firstGiven(path+".jitter", "cron_defaults.jitter")
	if cron.Jitter == 0 || cron.Jitter.Std() < interval || !l.ok(where) {
		return
	}
	want := fmt.Sprintf("less than %s", Duration(interval))
	if !l.has(path + ".jitter") {
		want = fmt.Sprintf("a jitter of its own for cron %s, less than %s", cron.Name, Duration(interval))
	}
	l.wrong(where, "not below the shortest interval of the schedule "+strconv.Quote(clip(cron.Schedule)), strconv.Quote(cron.Jitter.String()), want)
}

func (l *loader) checkBounds(path string, cron Cron, schedule *cronexpr.Schedule) {
	start, end := cron.StartAt.Time(), cron.EndAt.Time()
	if _, ok := schedule.Next(l.now()); !ok && !schedule.Manual() {
		l.warn(path+".schedule", "the cron never fires again: its time has passed", "")
	}
	switch where := path + ".end_at"; {
	case end.IsZero() || !l.ok(where):
	case !start.IsZero() && !end.After(start):
		l.wrong(where, "not after start_at", strconv.Quote(string(cron.EndAt)), "an instant after "+string(cron.StartAt))
	case end.Before(l.now()):
		l.warn(where, "the cron never fires again: end_at has passed", "")
	}
}

// soonTicks is how many of the next ticks are looked at for one that is not
// excluded.
const soonTicks = 1000

func (l *loader) checkExclude(path string, cron Cron, schedule *cronexpr.Schedule) {
	var exclusions []*cronexpr.Exclusion
	for i, text := range cron.Exclude {
		where := element(path+".exclude", i)
		if !l.ok(where) {
			continue
		}
		exclusion, err := cronexpr.ParseExclusion(text, cronexpr.Options{Name: cron.Name, Timezone: cron.Timezone})
		if err != nil {
			l.badExpression(where, err)
			continue
		}
		exclusions = append(exclusions, exclusion)
	}
	if len(exclusions) == 0 {
		return
	}
	at, ok := schedule.Next(l.now())
	for range soonTicks {
		if !ok || !slices.ContainsFunc(exclusions, func(e *cronexpr.Exclusion) bool { return e.Covers(at) }) {
			return
		}
		at, ok = schedule.Next(at)
	}
	l.warn(path+".exclude", fmt.Sprintf("each of the next %d ticks is excluded", soonTicks), "")
}

func (l *loader) checkInterval(path string, cron Cron, interval time.Duration) {
	if interval <= 0 {
		return
	}
	inWindow := int64(cron.CatchUpWindow.Std() / interval)
	ticks := min(inWindow, int64(cron.CatchUpLimit))
	switch {
	case cron.CatchUp != "all":
	case inWindow > mostTicks:
		l.wrong(l.firstGiven(path+".catch_up_window", path+".catch_up", "cron_defaults.catch_up_window", path+".schedule"),
			"catching up could mean up to "+humanize.Comma(inWindow)+" runs", strconv.Quote(cron.CatchUpWindow.String()),
			`a shorter catch_up_window, or catch_up = "latest"`)
	case ticks > manyTicks:
		l.warn(l.firstGiven(path+".catch_up_limit", path+".catch_up", path+".schedule"),
			"catching up could fire "+humanize.Comma(ticks)+" ticks", "a lower catch_up_limit or a shorter catch_up_window")
	}
	timeout := join("jobs", cron.Job) + ".timeout"
	if job, ok := l.cfg.Jobs[cron.Job]; ok && cron.Overlap == "allow" && l.has(timeout) && job.Timeout.Std() > interval {
		l.warn(l.firstGiven(path+".overlap", timeout), fmt.Sprintf("runs may pile up: the job's timeout %s is longer than the cron's interval %s",
			job.Timeout, Duration(interval)), `overlap = "skip" or a shorter timeout`)
	}
}

// badExpression reports an error of cronexpr at its column inside the value.
func (l *loader) badExpression(path string, err error) {
	parse, ok := errors.AsType[*cronexpr.ParseError](err)
	if !ok {
		l.wrong(path, err.Error(), "", "")
		return
	}
	p := Problem{Message: parse.Problem, Want: parse.Want}
	if parse.Field != "" && parse.Field != "timezone" {
		p.Message = parse.Field + ": " + parse.Problem
	}
	if parse.Found != "" {
		p.Got = strconv.Quote(clip(parse.Found))
	}
	l.add(path, false, p)
	if last := &l.report.Problems[len(l.report.Problems)-1]; last.Line > 0 && parse.Position > 0 && l.plainString(path) {
		last.Col += parse.Position
	}
}

// plainString says whether the value at a path is a string on one line without
// escapes, so that columns in it are columns in the file.
func (l *loader) plainString(path string) bool {
	found, ok := l.spot(path)
	if !ok || found.place.value >= len(found.text) {
		return false
	}
	rest := found.text[found.place.value:]
	quote := rest[:1]
	end := strings.IndexAny(rest[1:], quote+"\\\n")
	return (quote == `"` || quote == "'") && end > 0 && rest[1+end:2+end] == quote
}
