package config

import (
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The rules that River has for kinds and queues.
const (
	maxJobName   = 100
	maxQueueName = 64

	wantJobName = "2 to 100 letters, digits and _ - . / : +, the first a letter, digit or _, as River wants of a kind"
)

var (
	jobName     = regexp.MustCompile(`\A[\w][\w\-\[\]<>\/.·:+]+\z`)
	queueName   = regexp.MustCompile(`\A[a-z0-9]+([_|\-]?[a-z0-9]+)*\z`)
	methodToken = regexp.MustCompile(`\A[A-Z][A-Z-]*\z`)
	headerToken = regexp.MustCompile("\\A[!#$%&'*+\\-.^_`|~0-9A-Za-z]+\\z")
)

// checkName checks the name of a cron or a job, which becomes River's kind.
func checkName(name string) (message string) {
	switch {
	case name == "":
		return "no name"
	case len([]rune(name)) > maxJobName:
		return "name too long"
	case !jobName.MatchString(name), strings.Contains(name, ".."):
		return "not a name"
	}
	return ""
}

func (l *loader) checkQueues() {
	for _, name := range slices.Sorted(maps.Keys(l.cfg.Queues)) {
		path, queue := join("queues", name), l.cfg.Queues[name]
		if l.has(path) && !ValidQueue(name) {
			l.wrongKey(path, "not a queue name", wantQueueName)
		}
		l.checkLimitPerKey(path+".limit_per_key", queue.LimitPerKey, "global_limit", queue.GlobalLimit)
		l.checkLimitPerKey(path+".max_workers_per_key", queue.MaxWorkersPerKey, "max_workers", queue.MaxWorkers)
		l.checkRateLimit(path, queue.RateLimit)
		l.checkFair(path, queue)
	}
	l.checkFairQueues()
	l.checkReserves()
}

// checkReserves checks the slots that queues reserve on this node.
func (l *loader) checkReserves() {
	reserved, last := 0, ""
	for _, name := range slices.Sorted(maps.Keys(l.cfg.Queues)) {
		path, queue := join("queues", name)+".reserve", l.cfg.Queues[name]
		if queue.Reserve == 0 || !l.ok(path) {
			continue
		}
		if most := queue.MaxWorkers; most > 0 && queue.Reserve > most {
			l.warn(path, fmt.Sprintf("more slots than the queue uses: max_workers is %d", most), "at most that")
		}
		reserved, last = reserved+l.cfg.QueueReserve(name), path
	}
	switch slots := l.cfg.Node.Slots; {
	case last == "" || !l.ok("node.slots"):
	case reserved > slots:
		l.wrong(last, "more reserved slots than the node has", strconv.Itoa(reserved), fmt.Sprintf("at most %d (node.slots) in all queues together", slots))
	case reserved == slots:
		l.warn(last, fmt.Sprintf("no slot is left for jobs of other queues: all %d are reserved", slots), "fewer")
	}
}

const wantQueueName = "1 to 64 lower-case letters and digits, with single _ or - between them"

// ValidQueue says whether a queue may have this name.
func ValidQueue(name string) bool { return len(name) <= maxQueueName && queueName.MatchString(name) }

func (l *loader) checkJobs() {
	for _, name := range slices.Sorted(maps.Keys(l.cfg.Jobs)) {
		path, job := join("jobs", name), l.cfg.Jobs[name]
		if _, short := l.aliases[path]; !short { // a cron's name is checked with the cron
			if message := checkName(name); message != "" {
				l.wrongKey(path, message, wantJobName)
			}
		}
		if !l.ok(path) || !l.ok(path+".kind") {
			continue
		}
		l.checkKind(path, job)
		l.checkCommon(path, job)
		l.checkJobSchema(path+".schema", job)
		switch job.Kind {
		case KindGo:
			l.checkGo(path)
		case KindShell:
			l.checkShell(path, job)
		case KindHTTP:
			l.checkRequest(path, job)
		case KindSQL:
			l.checkSQL(path, job)
		}
	}
}

// checkKind reports a missing kind, and keys of another kind than the job's.
func (l *loader) checkKind(path string, job Job) {
	value := reflect.ValueOf(job)
	likely := ""
	for _, f := range fieldsOf(value.Type()) {
		kind := f.tag.Get("kind")
		if kind == "" || !l.has(join(path, f.name)) {
			continue
		}
		if likely == "" {
			likely = kind
		}
		if job.Kind != "" && job.Kind != kind {
			l.wrongKey(join(path, f.name), fmt.Sprintf("a key of %s jobs in a job of kind %s", kind, job.Kind),
				"only keys of its own kind")
		}
	}
	switch {
	case job.Kind != "":
	case likely != "":
		l.wrongKey(path, "no kind", fmt.Sprintf("kind = %q", likely))
	default:
		l.wrongKey(path, "no kind", `kind = "shell", "http", "sql" or "go"`)
	}
}

func (l *loader) checkCommon(path string, job Job) {
	queue := path + ".queue"
	if l.has(queue) && l.ok(queue) {
		if !ValidQueue(job.Queue) {
			l.wrong(queue, "not a queue name", strconv.Quote(clip(job.Queue)), wantQueueName)
		} else if !l.has(join("queues", job.Queue)) && job.Queue != DefaultQueue {
			l.undeclaredQueue(queue, job.Queue)
		}
	}
	retry := path + ".retry"
	if job.Kind != KindGo && job.Retry.Backoff > job.Retry.MaxBackoff && l.ok(retry+".backoff") && l.ok(retry+".max_backoff") {
		l.wrong(retry+".max_backoff", "less than backoff", strconv.Quote(job.Retry.MaxBackoff.String()), "at least "+job.Retry.Backoff.String())
	}
	l.checkSecondRound(retry+".second_round", job.Retry)
	l.checkUnique(path+".unique", job.Unique)
	l.checkLimitPerKey(path+".limit_per_key", job.LimitPerKey, "global_limit", job.GlobalLimit)
	l.checkLimitPerKey(path+".max_workers_per_key", job.MaxWorkersPerKey, "global_limit", job.GlobalLimit)
	l.checkRateLimit(path, job.RateLimit)
	l.checkWeight(path+".weight", job)
	if job.Capability != "" && !printable.MatchString(job.Capability) {
		l.wrong(path+".capability", "not a capability", strconv.Quote(clip(job.Capability)), "a word without spaces")
	}
}

// checkExitCodes refuses a code with two meanings.
func (l *loader) checkExitCodes(path string, codes ExitCodes) {
	switch {
	case codes.Cancel != 0 && codes.Cancel == codes.Snooze, codes.Discard != 0 && codes.Discard == codes.Snooze:
		l.wrong(path+".snooze", "a code with two meanings", strconv.Itoa(codes.Snooze), "another code")
	case codes.Discard != 0 && codes.Discard == codes.Cancel:
		l.wrong(path+".discard", "a code with two meanings", strconv.Itoa(codes.Discard), "another code")
	}
}

// checkSecondRound sees to it that retention leaves the job there until then.
func (l *loader) checkSecondRound(path string, retry Retry) {
	if keep := l.cfg.Retention.Discarded; retry.SecondRound >= keep && l.ok(path) && l.ok("retention.discarded") {
		l.wrong(path, "not before the job is deleted", strconv.Quote(retry.SecondRound.String()),
			"less than retention.discarded = "+strconv.Quote(keep.String()))
	}
}

// undeclaredQueue warns of a queue without limits of its own when others have
// some: it may be a slip.
func (l *loader) undeclaredQueue(path, name string) {
	var declared []string
	for queue := range l.cfg.Queues {
		if l.has(join("queues", queue)) {
			declared = append(declared, queue)
		}
	}
	if near := nearest(name, append(declared, DefaultQueue)); near != "" {
		l.warn(path, "a queue without a section", fmt.Sprintf("%q, or [queues.%s]", near, name))
	}
}

// checkGo refuses what only the worker in the Go program says.
func (l *loader) checkGo(path string) {
	for _, key := range []string{"timeout", "retry.backoff", "retry.max_backoff", "output"} {
		if where := path + "." + key; l.has(where) && l.ok(where) {
			l.wrongKey(where, "the worker in the Go program decides that", "its Timeout, NextRetry or output there")
		}
	}
}

func (l *loader) checkShell(path string, job Job) {
	command := path + ".command"
	switch {
	case !l.ok(command):
	case len(job.Command) == 0:
		l.wrong(command, "no command", "", `a list such as ["date", "-u"]`)
	case job.Command[0] == "" && l.ok(element(command, 0)):
		l.wrong(command, "no program", `""`, "the program's name or absolute path first")
	case strings.Contains(job.Command[0], "/") && !filepath.IsAbs(job.Command[0]):
		l.wrong(element(command, 0), "relative path", strconv.Quote(clip(job.Command[0])), "an absolute path, or a bare name that is found on PATH")
	}
	for i, word := range job.Command {
		if strings.ContainsRune(word, 0) {
			l.wrong(element(command, i), "a NUL character", "", "text without it")
		}
		if strings.Contains(word, "${env:") || strings.Contains(word, "${file:") {
			l.warn(element(command, i), "references are not resolved in a command", `env = { NAME = "${env:NAME}" } and $NAME`)
		}
		if i == 0 {
			l.checkNoRun(element(command, i), word, "the program cannot depend on the run", "its values among the arguments")
		} else {
			l.checkRun(element(command, i), word)
		}
	}
	l.checkExitCodes(path+".exit_codes", job.ExitCodes)
	if job.Cwd != "" && !filepath.IsAbs(job.Cwd) {
		l.wrong(path+".cwd", "relative path", strconv.Quote(clip(job.Cwd)), "an absolute path")
	}
	l.checkVariables(path+".env", job.Env)
}

func (l *loader) checkVariables(path string, env map[string]string) {
	l.warnLiterals(path, env)
	for _, name := range slices.Sorted(maps.Keys(env)) {
		here := join(path, name)
		switch {
		case name == "" || strings.ContainsAny(name, "=\x00"):
			l.wrongKey(here, "not a variable's name", "a name without = and NUL")
		case strings.HasPrefix(name, "LD_") || strings.HasPrefix(name, "DYLD_"):
			l.wrongKey(here, "a variable that changes which code the program loads", "no LD_* or DYLD_*")
		case slices.Contains(notOverrides, name):
			l.wrongKey(here, "a variable that forge sets itself", "another name")
		case strings.ContainsRune(env[name], 0):
			l.wrong(here, "a NUL character", "", "text without it")
		}
		l.checkRun(here, env[name])
	}
}

func (l *loader) checkRequest(path string, job Job) {
	if where := path + ".url"; l.ok(where) {
		l.checkTarget(where, job.URL)
	}
	if where := path + ".method"; l.ok(where) && !methodToken.MatchString(job.Method) {
		want := "an HTTP method such as POST"
		if upper := strings.ToUpper(job.Method); methodToken.MatchString(upper) {
			want = strconv.Quote(upper)
		}
		l.wrong(where, "not an HTTP method", strconv.Quote(clip(job.Method)), want)
	}
	l.checkRun(path+".body", job.Body)
	headers := path + ".headers"
	l.warnLiterals(headers, job.Headers)
	for _, name := range slices.Sorted(maps.Keys(job.Headers)) {
		here := join(headers, name)
		lower := strings.ToLower(name)
		switch {
		case !headerToken.MatchString(name):
			l.wrongKey(here, "not a header's name", "letters, digits and -")
		case lower == "host":
			l.wrongKey(here, "the host cannot be overridden", "it in the url")
		case strings.HasPrefix(lower, "forge-"), lower == "idempotency-key", lower == "content-length", lower == "transfer-encoding":
			l.wrongKey(here, "a header that forge sets itself", "another name")
		case strings.ContainsFunc(job.Headers[name], headerControl):
			l.wrong(here, "a line end or NUL in a header", "", "text on one line")
		}
		l.checkRun(here, job.Headers[name])
	}
}

// headerControl says whether a character has no place in a header's value.
func headerControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }

// checkTarget checks the URL of a request. Its text is shown without secrets.
func (l *loader) checkTarget(path, target string) {
	if target == "" {
		l.wrong(path, "no URL", "", `a URL such as "https://example.com/hook"`)
		return
	}
	shown := l.shown(path, target)
	_, host, _ := strings.Cut(target, "://")
	host, _, _ = strings.Cut(host, "/")
	host, _, _ = strings.Cut(host, "?")
	l.checkNoRun(path, host, "the host cannot depend on the run", "its values after the host")
	l.checkRun(path, target)
	if !l.ok(path) {
		return
	}
	target, _ = ExpandRun(target, SampleRun, url.QueryEscape)
	u, err := url.Parse(target)
	switch {
	case err != nil || strings.ContainsAny(target, " \t\r\n"):
		l.wrong(path, "not a URL", shown, `a URL such as "https://example.com/hook"`)
	case u.Scheme != "http" && u.Scheme != "https":
		l.wrong(path, "not an HTTP address", shown, "http:// or https://")
	case u.User != nil:
		l.wrong(path, "a user in the URL", shown, `headers = { Authorization = "${env:NAME}" }`)
	case u.Hostname() == "":
		l.wrong(path, "no host", shown, `a URL such as "https://example.com/hook"`)
	case privateHost(u.Hostname()) && !l.cfg.HTTP.opens(u.Hostname()):
		l.wrong(path, "a loopback or private address", shown, "allow_private_targets = true or allow_cidrs in [http], or a public address")
	}
}

// shown is a value as a message may show it.
func (l *loader) shown(path, text string) string {
	if known, ok := l.cfg.secrets.references[path]; ok {
		text = known.text
	}
	return strconv.Quote(clip(redactAddress(text)))
}

func (l *loader) checkSQL(path string, job Job) {
	if where := path + ".statement"; l.ok(where) {
		if message, want := badStatement(job.Statement); message != "" {
			l.wrong(where, message, "", want)
		}
		l.checkNoRun(where, job.Statement, "a statement has bind parameters", "@tick")
		l.checkParameters(where, job.Statement)
	}
	where := path + ".statement_timeout"
	if l.has(where) && l.ok(where) && job.StatementTimeout > job.Timeout {
		l.warn(where, "longer than the job's timeout "+job.Timeout.String(), "at most that")
	}
	l.checkAddress(path+".database", job.Database)
}
