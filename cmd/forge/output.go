package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"sigs.k8s.io/yaml"

	"github.com/forge-scheduler/forge/internal/explain"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// column shows one property of a row. Wide columns are shown with -o wide only; a named one has its
// title in the line of a followed log.
type column[T any] struct {
	title       string
	wide, named bool
	show        func(T) string
}

// tabular reports whether the output is for people, not for programs.
func (a *app) tabular() bool { return a.format == "table" || a.format == "wide" }

// printf prints to standard output. run returns its first error.
func (a *app) printf(format string, args ...any) {
	if _, err := fmt.Fprintf(a.out, format, args...); err != nil && a.printErr == nil {
		a.printErr = err
	}
}

// note prints a line to standard error.
func (a *app) note(line any) { _, _ = fmt.Fprintln(a.err, line) }

// result prints what a command has done: in words, or as a document.
func (a *app) result(document any, format string, args ...any) error {
	if !a.tabular() {
		return a.document(document)
	}
	a.printf(format+"\n", args...)
	return nil
}

// list prints rows in the format of --output. JSON and YAML have every field, whatever the columns
// are.
func list[T any](a *app, rows []T, columns []column[T]) error {
	if !a.tabular() {
		return a.document(append([]T{}, rows...)) // never null
	}
	writer := table.NewWriter()
	writer.SetStyle(table.Style{Box: table.BoxStyle{PaddingRight: "   "}, Format: table.FormatOptions{Header: text.FormatUpper}})
	writer.SuppressTrailingSpaces()
	columns = shown(a, columns)
	if !a.noHeaders {
		header := make(table.Row, len(columns))
		for i, c := range columns {
			header[i] = c.title
		}
		writer.AppendHeader(header)
	}
	for _, row := range rows {
		cells := make(table.Row, len(columns))
		for i, c := range columns {
			cells[i] = harmless(c.show(row))
		}
		writer.AppendRow(cells)
	}
	a.printf("%s\n", writer.Render())
	return nil
}

// shown returns the columns of the format of --output.
func shown[T any](a *app, columns []column[T]) []column[T] {
	return slices.DeleteFunc(slices.Clone(columns), func(c column[T]) bool { return c.wide && a.format != "wide" })
}

// one prints a single row: as a list of properties, or as a document with every field.
func one[T any](a *app, row T, columns []column[T]) error {
	if !a.tabular() {
		return a.document(row)
	}
	width := 0
	for _, c := range columns {
		width = max(width, len(c.title))
	}
	for _, c := range shown(a, columns) {
		if value := harmless(c.show(row)); value != "" {
			a.printf("%-*s  %s\n", width, c.title, value)
		}
	}
	return nil
}

// harmless returns untrusted text without control sequences and control characters.
func harmless(text string) string {
	var out bytes.Buffer
	_, _ = newPlainText(&out, false).Write([]byte(text)) // writing to a buffer does not fail
	return out.String()
}

func (a *app) document(value any) error {
	if a.format == "json" {
		encoder := json.NewEncoder(a.out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(value)
	}
	body, err := yaml.Marshal(value)
	a.printf("%s", body)
	return err
}

// ago shows a past or future instant relative to now. The zero time is a dash.
func ago(at, now time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return humanize.RelTime(at, now, "ago", "from now")
}

// stamp shows an instant in local time, to the millisecond.
func stamp(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return at.Local().Format("2006-01-02 15:04:05.000 MST")
}

// tickStamp shows a tick in the format that commands accept: RFC 3339, in local time.
func tickStamp(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return at.Local().Format(time.RFC3339Nano)
}

// span shows a duration with at most three significant digits.
func span(d time.Duration) string { return explain.Span(d) }

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// number shows a number; 0 is a dash.
func number[N int | int64](n N) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatInt(int64(n), 10)
}

// milliseconds shows a duration like span.
func milliseconds(ms float64) string { return explain.Milliseconds(ms) }

var errNoYAMLStream = errors.New(`output "yaml" does not stream; want table, wide or json`)

// logged prints the newest rows of a log, or with follow also each new one on its own line.
func logged[T any](ctx context.Context, a *app, log postgres.Tail[T], follow bool, limit int, columns []column[T]) error {
	if !follow {
		rows, err := log.Find(ctx, 0, limit)
		if err != nil {
			return err
		}
		return list(a, rows, columns)
	}
	log.Emit = func(rows []T) error {
		for _, row := range rows {
			if err := printLine(a, row, columns); err != nil {
				return err
			}
		}
		return nil
	}
	return log.Run(ctx, 0, limit)
}

// printLine prints one row of a followed log. JSON has every field, whatever the columns are.
func printLine[T any](a *app, row T, columns []column[T]) error {
	if a.format == "json" {
		return json.NewEncoder(a.out).Encode(row)
	}
	var values []string
	for _, column := range shown(a, columns) {
		value := column.show(row)
		switch {
		case value == "-" || value == "{}":
		case column.named:
			values = append(values, column.title+" "+value)
		default:
			values = append(values, value)
		}
	}
	_, err := fmt.Fprintln(a.out, strings.Join(values, "  "))
	return err
}
