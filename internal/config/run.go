package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// RunValues are what ${run:NAME} can stand for. Nothing that a row says freely is
// among them, such as the args or the name of a cron: a command may hand its
// words to a shell.
type RunValues struct {
	JobID   int64
	Job     string
	Attempt int
	Term    int64
	Node    string
	// Tick is zero where no cron fired the job.
	Tick time.Time
}

// SampleRun stands for a run where there is none yet.
var SampleRun = RunValues{JobID: 1, Job: "job", Attempt: 1, Term: 1, Node: "node", Tick: time.Unix(0, 0).UTC()}

// runNames are the names after ${run:, as sql parameters have them.
var runNames = []string{"attempt", "job", "job_id", "node", "term", "tick"}

const runOpening = "${run:"

// RunError says what is wrong with a ${run:NAME}.
type RunError struct{ Message, Got, Want string }

func (e *RunError) Error() string {
	text := fmt.Sprintf("%s (got %q)", e.Message, clip(e.Got))
	if e.Want != "" {
		text += "; want " + e.Want
	}
	return text
}

// ExpandRun puts the values of a run in place of each ${run:NAME}; escape, if
// any, makes them fit what surrounds them. The error is a *RunError.
func ExpandRun(text string, values RunValues, escape func(string) string) (string, error) {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(text, runOpening)
		b.WriteString(before)
		if !found {
			return b.String(), nil
		}
		body, rest, closed := strings.Cut(after, "}")
		if !closed {
			return "", &RunError{"without its closing brace", runOpening + body, "${run:tick}"}
		}
		value, err := values.lookUp(body)
		if err != nil {
			return "", err
		}
		if escape != nil {
			value = escape(value)
		}
		b.WriteString(value)
		text = rest
	}
}

// lookUp returns the value of NAME, of tick-1d or of tick:%Y-%m-%d.
func (v RunValues) lookUp(body string) (string, error) {
	name, rest := body, ""
	if end := strings.IndexAny(body, "+-:"); end >= 0 {
		name, rest = body[:end], body[end:]
	}
	got := runOpening + body + "}"
	switch {
	case !slices.Contains(runNames, name):
		return "", &RunError{"a run has no such value", got, suggest(name, runNames)}
	case name == "tick":
		return v.tick(rest, got)
	case rest != "":
		return "", &RunError{"only a tick can be moved or formatted", got, runOpening + name + "}"}
	}
	switch name {
	case "job":
		return v.Job, nil
	case "node":
		return v.Node, nil
	case "attempt":
		return strconv.Itoa(v.Attempt), nil
	case "term":
		return strconv.FormatInt(v.Term, 10), nil
	default:
		return strconv.FormatInt(v.JobID, 10), nil
	}
}

// tick moves and formats the tick as the rest of its name says.
func (v RunValues) tick(rest, got string) (string, error) {
	move, format, formatted := strings.Cut(rest, ":")
	at := v.Tick.UTC()
	if move != "" {
		by, err := ParseDuration(move[1:])
		if err != nil {
			return "", &RunError{"the tick is moved by " + err.Error(), got, "${run:tick-1d}"}
		}
		if move[0] == '-' {
			by = -by
		}
		at = at.Add(by.Std())
	}
	text := at.Format(time.RFC3339Nano)
	if formatted {
		var err error
		if text, err = strftime(at, format); err != nil {
			return "", &RunError{err.Error(), got, "${run:tick:%Y-%m-%d}, of " + formatLetters()}
		}
	}
	if v.Tick.IsZero() {
		return "", &RunError{"there is no tick: no cron fired this job", got, ""}
	}
	return text, nil
}

// formats are the letters of strftime that stand for digits: nothing else in
// them depends on a language.
var formats = map[byte]string{
	'Y': "2006", 'm': "01", 'd': "02", 'H': "15", 'M': "04", 'S': "05", 'y': "06", 'j': "002", 'F': "2006-01-02", 'T': "15:04:05",
}

func formatLetters() string {
	letters := make([]string, 0, len(formats)+2)
	for letter := range formats {
		letters = append(letters, "%"+string(letter))
	}
	letters = append(letters, "%s", "%%")
	slices.Sort(letters)
	return strings.Join(letters, " ")
}

func strftime(at time.Time, format string) (string, error) {
	if format == "" {
		return "", errors.New("an empty format")
	}
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			b.WriteByte(format[i])
			continue
		}
		i++
		switch {
		case i == len(format):
			return "", errors.New("a format that ends in %")
		case format[i] == '%':
			b.WriteByte('%')
		case format[i] == 's':
			b.WriteString(strconv.FormatInt(at.Unix(), 10))
		case formats[format[i]] != "":
			b.WriteString(at.Format(formats[format[i]]))
		default:
			return "", fmt.Errorf("an unknown letter %%%c in the format", format[i])
		}
	}
	return b.String(), nil
}

// checkRun checks the ${run:NAME} in a text.
func (l *loader) checkRun(path, text string) {
	if !l.ok(path) {
		return
	}
	_, err := ExpandRun(text, SampleRun, nil)
	if wrong, ok := errors.AsType[*RunError](err); ok {
		l.wrong(path, wrong.Message, strconv.Quote(clip(wrong.Got)), wrong.Want)
	}
}

// checkNoRun refuses them where a run's values have no place.
func (l *loader) checkNoRun(path, text, message, want string) {
	if _, after, found := strings.Cut(text, runOpening); found && l.ok(path) {
		body, _, _ := strings.Cut(after, "}")
		l.wrong(path, message, strconv.Quote(clip(runOpening+body+"}")), want)
	}
}
