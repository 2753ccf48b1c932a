package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// maxPrinted bounds the problems in the text of a report.
const maxPrinted = 50

// Environment stands for a file in problems of environment variables.
const Environment = "environment"

// ErrNotFound says that there is no file where Load looked.
var ErrNotFound = errors.New("not found")

// Problem is one thing that is wrong, or that deserves a look, in a file or an
// environment variable.
type Problem struct {
	// File is the name that was given to Load or Parse, that of an included file, or
	// "environment".
	File string `json:"file"`
	// Line and Col count from 1, Col in characters; 0 where there is no place.
	Line int `json:"line,omitempty"`
	Col  int `json:"col,omitempty"`
	// Key is the path of the key, such as cluster.name or crons[0].schedule.
	Key string `json:"key,omitempty"`
	// Message is what is wrong; Got and Want are empty where they add nothing.
	Message string `json:"message"`
	Got     string `json:"got,omitempty"`
	Want    string `json:"want,omitempty"`
	// Warning is a problem that does not keep the file from being used.
	Warning bool `json:"warning,omitempty"`
}

// String returns the problem on one line:
// forge.toml:LINE:COL: KEY: what is wrong (got X); want Y.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", p.Line, p.Col)
	}
	b.WriteString(": ")
	if p.Warning {
		b.WriteString("warning: ")
	}
	if p.Key != "" {
		b.WriteString(p.Key + ": ")
	}
	b.WriteString(p.Message)
	if p.Got != "" {
		b.WriteString(" (got " + p.Got + ")")
	}
	if p.Want != "" {
		b.WriteString("; want " + p.Want)
	}
	return b.String()
}

// Report is all that was found, in the order of the file.
type Report struct {
	Problems []Problem `json:"problems"`
	// Empty says that the text sets no key: the file is empty, or all comments.
	Empty bool `json:"-"`
}

// Errors are the problems that keep the configuration from being used.
func (r Report) Errors() []Problem { return r.filter(false) }

// Warnings are the problems that do not.
func (r Report) Warnings() []Problem { return r.filter(true) }

func (r Report) filter(warning bool) []Problem {
	var found []Problem
	for _, problem := range r.Problems {
		if problem.Warning == warning {
			found = append(found, problem)
		}
	}
	return found
}

// String lists at most 50 problems, one a line, and says how many more there
// are.
func (r Report) String() string { return list(r.Problems) }

func list(problems []Problem) string {
	var b strings.Builder
	for i, problem := range problems {
		if i == maxPrinted {
			fmt.Fprintf(&b, "and %d more\n", len(problems)-maxPrinted)
			break
		}
		b.WriteString(problem.String() + "\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// err returns nil, or an InvalidError when there is an error among the problems.
func (r Report) err() error {
	if len(r.Errors()) == 0 {
		return nil
	}
	return &InvalidError{Report: r}
}

// sort orders problems as they stand in the file of this name and then in those that it
// includes, those of the environment last.
func (r Report) sort(name string) {
	slices.SortStableFunc(r.Problems, func(a, b Problem) int {
		return cmp.Or(
			cmp.Compare(rank(a, name), rank(b, name)),
			cmp.Compare(a.File, b.File),
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Col, b.Col),
		)
	})
}

func rank(p Problem, name string) int {
	switch p.File {
	case name:
		return 0
	case Environment:
		return 2
	default:
		return 1
	}
}

// InvalidError says that a configuration cannot be used, and why.
type InvalidError struct{ Report Report }

// Error lists the errors, at most 50, one a line.
func (e *InvalidError) Error() string { return list(e.Report.Errors()) }
