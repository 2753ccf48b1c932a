package importer

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronexpr"
)

// CrontabOptions say how a crontab is read.
type CrontabOptions struct {
	// System is set for the format of /etc/crontab, with a user before each command.
	System bool
	// Timezone is the zone of cron: that of its host.
	Timezone string
}

// Crontab translates a crontab, with the rules of Vixie cron and cronie. The error is about the
// source as a whole; what is wrong with a line is in the result.
func Crontab(source string, r io.Reader, o CrontabOptions) (*Result, error) {
	text, err := readAll(source, r)
	if err != nil {
		return nil, err
	}
	c := crontab{Result: &Result{Source: source}, options: o, names: Names{}, environment: map[string]string{}, zone: o.Timezone}
	c.Header = []string{
		"cron starts each command in the home directory of its user, with PATH=/usr/bin:/bin; forge in the node's directory, with the node's PATH. Set cwd and env where a command depends on them.",
		"cron has no timeout: these jobs have one of 24h.",
	}
	for i, line := range strings.Split(text, "\n") {
		c.line(i+1, strings.TrimSuffix(line, "\r"))
	}
	c.flush()
	return c.Result, nil
}

// crontab is the state between two lines.
type crontab struct {
	*Result
	options CrontabOptions
	names   Names
	// comments are those since the last line that was not one; firstComment is their line.
	comments     []string
	firstComment int

	environment map[string]string
	zone        string
	delay       string // RANDOM_DELAY, in minutes
}

var assignment = regexp.MustCompile(`^\s*("[^"]*"|'[^']*'|[^\s="']+)\s*=\s*(.*?)\s*$`)

func (c *crontab) line(number int, line string) {
	trimmed := strings.TrimSpace(line)
	switch {
	case trimmed == "":
		c.flush()
	case strings.HasPrefix(trimmed, "#"):
		if len(c.comments) == 0 {
			c.firstComment = number
		}
		c.comments = append(c.comments, strings.TrimPrefix(strings.TrimPrefix(trimmed, "#"), " "))
	default:
		if set := assignment.FindStringSubmatch(line); set != nil {
			c.flush()
			c.set(number, unquote(set[1]), unquote(set[2]))
			return
		}
		c.entry(number, line)
	}
}

// flush ends the comments that belong to no cron.
func (c *crontab) flush() {
	if len(c.comments) > 0 {
		c.Entries = append(c.Entries, Entry{Line: c.firstComment, Comments: c.comments})
		c.comments = nil
	}
}

func unquote(text string) string {
	if n := len(text); n >= 2 && text[0] == text[n-1] && (text[0] == '"' || text[0] == '\'') {
		return text[1 : n-1]
	}
	return text
}

// set reads an assignment, which holds for the lines after it.
func (c *crontab) set(number int, name, value string) {
	switch name {
	case "CRON_TZ":
		c.zone = cmp.Or(value, c.options.Timezone)
	case "RANDOM_DELAY":
		c.delay = value
	case "MAILTO", "MAILFROM":
		if value != "" {
			c.Header = append(c.Header, fmt.Sprintf("line %d: %s=%s: forge mails no output. It keeps it (forge job logs), and on_failure = { notify = [...] } notifies receivers of failed runs.", number, name, value))
		}
	case "CONTENT_TYPE", "CONTENT_TRANSFER_ENCODING": // of the mail
	default:
		if reason := variableProblem(name, value); reason != "" {
			c.Header = append(c.Header, fmt.Sprintf("line %d: %s is not kept: %s.", number, name, reason))
			delete(c.environment, name)
			return
		}
		c.environment[name] = value
	}
}

// entry reads a line with a schedule and a command.
func (c *crontab) entry(number int, line string) {
	e := Entry{Line: number, Comments: c.comments, Text: strings.TrimSpace(line)}
	c.comments = nil
	if len(line) > 64<<10 {
		e.Text = shorten(e.Text)
		e.refuse(c.Source, number, 1, "a line that is too long", "", "at most 64 KiB")
	} else if err := c.read(&e, line); err != nil {
		bad := &fieldError{column: 1, message: err.Error()}
		errors.As(err, &bad)
		e.refuse(c.Source, number, bad.column, bad.message, bad.got, bad.wanted)
	}
	c.add(e)
}

func (c *crontab) read(e *Entry, line string) error {
	rest := lineReader{text: line}
	first := rest.next()
	if unlogged, found := strings.CutPrefix(first.text, "-"); found { // cronie: do not log the command
		first = word{unlogged, first.column + 1}
	}
	schedule, err := c.schedule(e, first, &rest)
	if err != nil {
		return err
	}
	user := ""
	if c.options.System {
		account := rest.next()
		if user, _, _ = strings.Cut(account.text, ":"); user == "" {
			return &fieldError{account.column, "no user", "", "a user and a command after the schedule, as in /etc/crontab"}
		}
	}
	command := rest.rest()
	if command == "" || strings.HasPrefix(command, "*") {
		return &fieldError{rest.column(), "no command", command, "a command after the schedule"}
	}
	e.Cron = config.Cron{Schedule: schedule, CronPolicy: e.Cron.CronPolicy}
	e.Cron.Timezone, e.Cron.Overlap, e.Cron.CatchUp = c.zone, "allow", "none"
	e.Work = c.work(command, user)
	e.Cron.Name = c.names.unique(nameOf(e.Work.Command))
	e.Cron.Job = e.Cron.Name
	c.jitter(e)
	return nil
}

// macros are the schedules of one word. Cron's own are also forge's.
var macros = map[string]string{
	"@yearly": "@yearly", "@annually": "@annually", "@monthly": "@monthly", "@weekly": "@weekly", "@daily": "@daily",
	"@midnight": "@midnight", "@hourly": "@hourly", "@every_minute": "* * * * *",
}

func (c *crontab) schedule(e *Entry, first word, rest *lineReader) (string, error) {
	if strings.HasPrefix(first.text, "@") {
		if macro, ok := macros[first.text]; ok {
			return macro, nil
		}
		if first.text == "@reboot" {
			return "", &fieldError{first.column, "a cluster has no boot", first.text, "a service of the host, such as a systemd unit, or a schedule"}
		}
		return "", &fieldError{first.column, "not a schedule", first.text, "@hourly, @daily, @weekly, @monthly, @yearly or five fields"}
	}
	words := []word{first}
	for len(words) < len(fieldRanges) {
		words = append(words, rest.next())
	}
	for i, w := range words {
		if w.text == "" {
			return "", &fieldError{1, fmt.Sprintf("%d fields", i), strings.TrimSpace(rest.text), "five fields and a command"}
		}
	}
	translated, err := vixie.translate(words)
	e.schedule(translated)
	return translated.text, err
}

// schedule takes over a translated expression.
func (e *Entry) schedule(translated expression) {
	e.Cron.Schedule = translated.text
	if translated.wallClock {
		e.Cron.DSTMissing, e.Cron.DSTRepeated = cronexpr.Skip, cronexpr.Both
	}
	e.Notes = append(e.Notes, translated.notes...)
}

// work returns the job of a command, which a shell runs as cron's does.
func (c *crontab) work(command, user string) config.Job {
	shell := cmp.Or(c.environment["SHELL"], "/bin/sh")
	program, input, hasInput := splitPercent(command)
	job := config.Job{
		Kind: config.KindShell, Command: []string{shell, "-c", program}, User: user, Env: maps.Clone(c.environment),
		Timeout: longestRun, Retry: config.Retry{MaxAttempts: 1},
	}
	if hasInput && len(input) > 0 {
		job.Command = append([]string{"/bin/sh", "-c", `printf '%s\n' "$@" | ` + shell + ` -c "$0"`, program}, input...)
	}
	if home := c.environment["HOME"]; path.IsAbs(home) {
		job.Cwd = home
	}
	return job
}

// jitter keeps cronie's RANDOM_DELAY.
func (c *crontab) jitter(e *Entry) {
	if c.delay == "" || c.delay == "0" {
		return
	}
	minutes, err := strconv.Atoi(c.delay)
	if err != nil || minutes < 0 {
		e.note("RANDOM_DELAY=%s is not kept: not a number of minutes", c.delay)
		return
	}
	schedule, err := cronexpr.Parse(e.Cron.Schedule, cronexpr.Options{Name: e.Cron.Name, Timezone: e.Cron.Timezone})
	if err != nil {
		return // add refuses it
	}
	delay := time.Duration(minutes) * time.Minute
	if delay >= schedule.MinInterval() || delay > 31*24*time.Hour {
		e.note("RANDOM_DELAY=%s is not kept: not shorter than the interval of the schedule", c.delay)
		return
	}
	e.Cron.Jitter = config.Duration(delay)
}

// splitPercent splits a command at the first unescaped %: the program's input follows, in which each
// further % ends a line. A backslash before a % is dropped.
func splitPercent(command string) (program string, input []string, hasInput bool) {
	var parts []string
	var part strings.Builder
	escaped := false
	for i := range len(command) {
		char := command[i]
		switch {
		case escaped && char == '%':
			text := part.String()
			part.Reset()
			part.WriteString(text[:len(text)-1] + "%")
			escaped = false
		case char == '%':
			parts = append(parts, part.String())
			part.Reset()
		default:
			part.WriteByte(char)
			escaped = char == '\\' && !escaped
		}
	}
	parts = append(parts, part.String())
	input = parts[1:]
	if n := len(input); n > 0 && input[n-1] == "" { // the text ends with the line
		input = input[:n-1]
	}
	return parts[0], slices.Clip(input), len(parts) > 1
}

// wordsOf returns all words of a line.
func wordsOf(line string) []word {
	reader := lineReader{text: line}
	var words []word
	for w := reader.next(); w.text != ""; w = reader.next() {
		words = append(words, w)
	}
	return words
}

// lineReader reads words of a line.
type lineReader struct {
	text string
	at   int
}

// next returns the next word, or an empty one at the end.
func (r *lineReader) next() word {
	r.skip()
	start := r.at
	for r.at < len(r.text) && !blank(r.text[r.at]) {
		r.at++
	}
	column := len([]rune(r.text[:start])) + 1
	return word{r.text[start:r.at], column}
}

func (r *lineReader) rest() string {
	r.skip()
	return r.text[r.at:]
}

func (r *lineReader) column() int { return len([]rune(r.text[:r.at])) + 1 }

func (r *lineReader) skip() {
	for r.at < len(r.text) && blank(r.text[r.at]) {
		r.at++
	}
}

func blank(char byte) bool { return char == ' ' || char == '\t' }
