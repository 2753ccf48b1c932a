package config

import (
	"errors"
	"strconv"
	"strings"

	"github.com/forge-scheduler/forge/internal/cronexpr"
)

// parseSchedule reads a cron's expression under its policy.
func parseSchedule(cron Cron) (*cronexpr.Schedule, error) {
	return cronexpr.Parse(cron.Schedule, cronexpr.Options{
		Name:        cron.Name,
		Timezone:    cron.Timezone,
		DSTMissing:  cron.DSTMissing,
		DSTRepeated: cron.DSTRepeated,
	})
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
	at, ok := l.ix.places[path]
	if !ok || at.value >= len(l.ix.text) {
		return false
	}
	rest := l.ix.text[at.value:]
	quote := rest[:1]
	end := strings.IndexAny(rest[1:], quote+"\\\n")
	return (quote == `"` || quote == "'") && end > 0 && rest[1+end:2+end] == quote
}
