// Package importer translates the schedules of other programs into crons of forge: crontabs,
// CronJobs of Kubernetes and the jobs of pg_cron.
//
// A translated cron fires at the instants at which the other program fires. Where forge has no
// equivalent for a setting, the result has a note; a schedule or command that cannot be
// translated is refused, with its place. Nothing is guessed.
package importer

import (
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/internal/config"
)

const (
	// maxInput bounds what is read, maxOutput what forge accepts as one file.
	maxInput, maxOutput = 4 << 20, 1 << 20
	// longestRun stands for "no timeout", which forge does not have.
	longestRun = config.Duration(24 * time.Hour)
)

// Result is what a source becomes.
type Result struct {
	// Source names the source, such as a file.
	Source string
	// Header are general remarks, which the file begins with.
	Header  []string
	Entries []Entry
}

// Entry is a part of the source: a cron, text that was refused, or only comments.
type Entry struct {
	// Line is where the part begins, from 1; 0 if the source has no lines.
	Line int
	// Comments are the source's own, without their marks.
	Comments []string
	// Text is the part as it stands in the source, for refused ones.
	Text string
	// Cron fires the job Work, which has its name. Both are zero if the part was refused.
	Cron config.Cron
	Work config.Job
	// Notes are what forge does differently for this cron.
	Notes []string
	// Refused are the reasons why the part is not a cron of forge.
	Refused []config.Problem
}

// Problems returns the reasons of all refusals, in the order of the source.
func (r *Result) Problems() []config.Problem {
	var all []config.Problem
	for _, entry := range r.Entries {
		all = append(all, entry.Refused...)
	}
	return all
}

// Notes returns the notes of all crons as warnings with their places.
func (r *Result) Notes() []config.Problem {
	var all []config.Problem
	for _, entry := range r.Entries {
		for _, note := range entry.Notes {
			all = append(all, config.Problem{File: r.Source, Line: entry.Line, Col: 1, Key: entry.Cron.Name, Message: note, Warning: true})
		}
	}
	return all
}

// Crons counts the crons.
func (r *Result) Crons() int {
	n := 0
	for _, entry := range r.Entries {
		if entry.Cron.Name != "" {
			n++
		}
	}
	return n
}

// Pause pauses every cron.
func (r *Result) Pause() {
	for i := range r.Entries {
		r.Entries[i].Cron.Paused = true
	}
}

// note adds a remark about a cron.
func (e *Entry) note(format string, args ...any) {
	e.Notes = append(e.Notes, fmt.Sprintf(format, args...))
}

// refuse records why a part is not a cron.
func (e *Entry) refuse(source string, line, column int, message, got, want string) {
	if got != "" {
		got = strconv.Quote(shorten(got))
	}
	e.Refused = append(e.Refused, config.Problem{File: source, Line: line, Col: column, Message: message, Got: got, Want: want})
}

// readAll reads a source of at most maxInput bytes in UTF-8.
func readAll(source string, r io.Reader) (string, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxInput+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("read %s: %w", source, err)
	case len(text) > maxInput:
		return "", fmt.Errorf("%s: larger than %d MiB; want less, in several imports", source, maxInput>>20)
	}
	for i, line := range strings.SplitAfter(string(text), "\n") {
		if strings.ContainsRune(line, 0) || strings.ToValidUTF8(line, "") != line {
			return "", fmt.Errorf("%s:%d: not text in UTF-8", source, i+1)
		}
	}
	return strings.TrimPrefix(string(text), "\ufeff"), nil
}

// add ends an entry: one that forge check rejects is refused.
func (r *Result) add(e Entry) {
	if len(e.Refused) == 0 {
		for _, problem := range rejected(e) {
			problem.File, problem.Line, problem.Col = r.Source, e.Line, 1
			e.Refused = append(e.Refused, problem)
		}
	}
	if len(e.Refused) > 0 {
		e.Cron, e.Work, e.Notes = config.Cron{}, config.Job{}, nil
	}
	r.Entries = append(r.Entries, e)
}

// rejected returns what forge check says against a cron and its job. The address of a database is
// left out: it may be a reference that only the nodes can resolve.
func rejected(e Entry) []config.Problem {
	var b strings.Builder
	e.Work.Database = ""
	writeJob(&b, e.Cron.Job, e.Work)
	writeCron(&b, e.Cron)
	_, report, _ := config.Parse("", []byte(b.String()), config.LoadOptions{Environ: func() []string { return nil }}) // the report has the error
	problems := report.Errors()
	for i, problem := range problems {
		if at := strings.LastIndexByte(problem.Key, '.'); at >= 0 {
			problems[i].Key = problem.Key[at+1:]
		}
	}
	return problems
}

// variableProblem says why a variable cannot be one of a job. It is empty if it can.
func variableProblem(name, value string) string {
	const job = "job"
	problems := rejected(Entry{
		Cron: config.Cron{Name: job, Schedule: "@manual", Job: job},
		Work: config.Job{Kind: config.KindShell, Command: []string{"true"}, Env: map[string]string{name: value}},
	})
	if len(problems) == 0 {
		return ""
	}
	return problems[0].Message
}

// shorten bounds a text in a message.
func shorten(text string) string {
	const most = 60
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}

var notInName = regexp.MustCompile(`[^a-z0-9_]+`)

// Names are those that crons have, so that further ones differ. An empty map has none.
type Names map[string]bool

// unique returns a name made from a text: lower-case words with hyphens, with a number if the name
// is taken.
func (n Names) unique(text string) string {
	const most = 60
	base := strings.Trim(notInName.ReplaceAllString(strings.ToLower(text), "-"), "-")
	base = strings.Trim(base[:min(len(base), most)], "-")
	if len(base) < 2 {
		base = strings.Trim("cron-"+base, "-")
	}
	name := base
	for i := 2; n[name]; i++ {
		name = base + "-" + strconv.Itoa(i)
	}
	n[name] = true
	return name
}
