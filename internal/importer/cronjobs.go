package importer

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronexpr"
)

// CronJobs translates the CronJobs among the YAML documents of Kubernetes, also those of a List.
// defaultZone is the zone of those without timeZone: that of kube-controller-manager. The crons get
// names that are not taken, which become taken.
func CronJobs(source string, r io.Reader, defaultZone string, taken Names) (*Result, error) {
	text, err := readAll(source, r)
	if err != nil {
		return nil, err
	}
	k := manifests{Result: &Result{Source: source}, zone: defaultZone, names: taken}
	k.Header = []string{
		"forge starts no containers: a command runs on a node, and its program must be installed there.",
		"A CronJob without activeDeadlineSeconds has no timeout: its job has one of 24h.",
	}
	decoder := yaml.NewDecoder(strings.NewReader(text))
	for {
		var document yaml.Node
		switch err := decoder.Decode(&document); {
		case errors.Is(err, io.EOF):
			return k.Result, nil
		case err != nil:
			return nil, fmt.Errorf("%s: %w", source, err)
		}
		expanded, err := (&expander{open: map[*yaml.Node]bool{}}).expand(&document)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", source, err)
		}
		if len(expanded.Content) > 0 {
			k.object(value{expanded.Content[0]})
		}
	}
}

// manifests is the state between two objects.
type manifests struct {
	*Result
	zone  string
	names Names
}

func (k *manifests) object(object value) {
	kind := object.get("kind").text()
	switch kind {
	case "List", "CronJobList":
		for _, item := range object.get("items").list() {
			k.object(item)
		}
	case "CronJob":
		k.cronJob(object)
	default:
		k.Header = append(k.Header, fmt.Sprintf("line %d: skipped, because it is no CronJob (kind %q).", object.Line, kind))
	}
}

func (k *manifests) cronJob(object value) {
	name := object.get("metadata", "name").text()
	e := Entry{Line: object.Line, Text: "CronJob " + name}
	comments := object.HeadComment
	if len(object.Content) > 0 {
		comments += "\n" + object.Content[0].HeadComment
	}
	for line := range strings.SplitSeq(comments, "\n") {
		if line = strings.TrimSpace(strings.TrimLeft(line, "#")); line != "" {
			e.Comments = append(e.Comments, line)
		}
	}
	reader := cronJobReader{manifests: k, entry: &e, spec: object.get("spec")}
	if version := object.get("apiVersion"); version.text() != "batch/v1" && version.text() != "batch/v1beta1" {
		reader.refuse(version.or(object), "not a version of CronJob", version.text(), `"batch/v1"`)
	}
	if name == "" {
		reader.refuse(object.get("metadata").or(object), "no metadata.name", "", "the CronJob's name")
	}
	reader.read()
	if len(e.Refused) == 0 {
		e.Cron.Name = k.names.unique(name)
		e.Cron.Job = e.Cron.Name
	}
	k.add(e)
}

// cronJobReader reads one CronJob.
type cronJobReader struct {
	*manifests
	entry *Entry
	spec  value
}

func (r *cronJobReader) refuse(at value, message, got, want string) {
	r.entry.refuse(r.Source, at.Line, at.Column, message, got, want)
}

func (r *cronJobReader) read() {
	cron, work := &r.entry.Cron, &r.entry.Work
	*work = config.Job{Kind: config.KindShell, Timeout: longestRun}
	r.schedule()
	cron.Paused = r.truth(r.spec.get("suspend"))
	r.concurrency()
	r.deadline()
	job := r.spec.get("jobTemplate", "spec")
	r.retries(job)
	if seconds, given := r.seconds(job.get("activeDeadlineSeconds")); given {
		work.Timeout = config.Duration(min(seconds, 30*24*time.Hour))
		if work.Retry.MaxAttempts > 1 {
			r.entry.note("activeDeadlineSeconds bounds all attempts together, timeout each of them")
		}
	}
	pod := job.get("template", "spec")
	r.container(pod)
	r.dropped("the CronJob", r.spec, "schedule", "timeZone", "suspend", "concurrencyPolicy", "startingDeadlineSeconds", "jobTemplate",
		"successfulJobsHistoryLimit", "failedJobsHistoryLimit")
	r.dropped("the job", job, "backoffLimit", "activeDeadlineSeconds", "template", "ttlSecondsAfterFinished", "completionMode", "suspend",
		"manualSelector", "podReplacementPolicy")
	r.dropped("the pod", pod, "containers", "restartPolicy", "dnsPolicy", "schedulerName", "terminationGracePeriodSeconds")
}

// schedule reads the expression, with the rules of the library that Kubernetes uses. A time that
// daylight saving skips does not run there, and one that it repeats runs twice.
func (r *cronJobReader) schedule() {
	at, cron := r.spec.get("schedule"), &r.entry.Cron
	text := strings.TrimSpace(at.text())
	cron.Timezone = r.spec.get("timeZone").text()
	if prefix, rest, found := strings.Cut(text, " "); found && strings.Contains(prefix, "TZ=") {
		cron.Timezone, text = prefix[strings.Index(prefix, "=")+1:], strings.TrimSpace(rest)
	}
	if cron.Timezone == "" {
		cron.Timezone = r.zone
		r.entry.note("without timeZone a CronJob has the zone of kube-controller-manager, here %s", r.zone)
	}
	if cron.Timezone != "UTC" && cron.Timezone != "Etc/UTC" {
		cron.DSTMissing, cron.DSTRepeated = cronexpr.Skip, cronexpr.Both
	}
	if text == "" {
		r.refuse(at.or(r.spec), "no spec.schedule", "", "five fields, such as 30 2 * * *")
		return
	}
	if strings.HasPrefix(text, "@") {
		r.macro(at, text)
		return
	}
	words := wordsOf(text)
	if len(words) != len(fieldRanges) {
		r.refuse(at, fmt.Sprintf("%d fields", len(words)), text, "five fields, such as 30 2 * * *")
		return
	}
	translated, err := robfig.translate(words)
	if bad, ok := errors.AsType[*fieldError](err); ok {
		r.refuse(at, bad.message, bad.got, bad.wanted)
		return
	}
	cron.Schedule = translated.text
}

func (r *cronJobReader) macro(at value, text string) {
	cron := &r.entry.Cron
	if macro, ok := macros[text]; ok && text != "@every_minute" {
		cron.Schedule = macro
		return
	}
	interval, err := time.ParseDuration(strings.TrimPrefix(text, "@every "))
	if !strings.HasPrefix(text, "@every ") || err != nil {
		r.refuse(at, "not a schedule", text, "@hourly, @daily, @weekly, @monthly, @yearly, @every 1h or five fields")
		return
	}
	cron.Schedule = "@every " + strconv.FormatInt(max(1, int64(interval/time.Second)), 10) + "s"
	cron.DSTMissing, cron.DSTRepeated = "", ""
	r.entry.note("Kubernetes counts @every from the last run, forge from 1970: the runs are as far apart, at other times")
}

func (r *cronJobReader) concurrency() {
	at, cron := r.spec.get("concurrencyPolicy"), &r.entry.Cron
	switch at.text() {
	case "", "Allow":
		cron.Overlap = "allow"
	case "Replace":
		cron.Overlap = "replace"
	case "Forbid":
		cron.Overlap = "queue"
		if r.spec.get("startingDeadlineSeconds").Node != nil {
			cron.Overlap = "skip"
			r.entry.note("Forbid: Kubernetes starts a run that an earlier one delayed by less than startingDeadlineSeconds; forge skips it")
		} else {
			r.entry.note("Forbid: as in Kubernetes, a run that was due meanwhile starts when the earlier one ends; overlap = \"skip\" would not start it")
		}
	default:
		r.refuse(at, "not a concurrencyPolicy", at.text(), "Allow, Forbid or Replace")
	}
}

// deadline reads how long after its time a run may still start: Kubernetes starts the newest one.
func (r *cronJobReader) deadline() {
	const least, most = 10 * time.Second, 31 * 24 * time.Hour
	cron := &r.entry.Cron
	cron.CatchUp, cron.CatchUpWindow = "latest", config.Duration(most)
	if seconds, given := r.seconds(r.spec.get("startingDeadlineSeconds")); given {
		cron.CatchUpWindow = config.Duration(max(least, min(most, seconds)))
		if seconds < time.Minute {
			r.entry.note("startingDeadlineSeconds: a tick up to 60s late counts as on time in forge")
		}
	}
}

func (r *cronJobReader) retries(job value) {
	retry := &r.entry.Work.Retry
	retry.MaxAttempts = 7 // Kubernetes' default of 6 retries
	if limit, given := r.number(job.get("backoffLimit")); given {
		retry.MaxAttempts = int(min(limit, 999)) + 1
	}
	if retry.MaxAttempts > 1 { // as its job controller waits
		retry.Backoff, retry.MaxBackoff = config.Duration(10*time.Second), config.Duration(6*time.Minute)
	}
}

// dropped notes the keys of a table that have no equivalent.
func (r *cronJobReader) dropped(what string, table value, known ...string) {
	var names []string
	for name, v := range table.pairs() {
		empty := v.Kind != yaml.ScalarNode && len(v.Content) == 0
		if !slices.Contains(known, name) && !empty {
			names = append(names, name)
		}
	}
	if len(names) > 0 {
		r.entry.note("not kept of %s: %s", what, strings.Join(names, ", "))
	}
}

func (r *cronJobReader) truth(at value) bool {
	text := at.text()
	if text != "" && text != "true" && text != "false" {
		r.refuse(at, "not a truth value", text, "true or false")
	}
	return text == "true"
}

func (r *cronJobReader) seconds(at value) (time.Duration, bool) {
	n, given := r.number(at)
	return time.Duration(min(n, 366*24*3600)) * time.Second, given
}

func (r *cronJobReader) number(at value) (int64, bool) {
	text := at.text()
	if text == "" {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		r.refuse(at, "not a number", text, "a whole number of at least 0")
		return 0, false
	}
	return n, true
}
