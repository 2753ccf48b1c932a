package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"sigs.k8s.io/yaml"

	"github.com/forge-scheduler/forge/internal/explain"
)

// column shows one property of a row. Wide columns are shown with -o wide only.
type column[T any] struct {
	title string
	wide  bool
	show  func(T) string
}

// tabular reports whether the output is for people, not for programs.
func (a *app) tabular() bool { return a.format == "table" || a.format == "wide" }

// list prints rows in the format of --output. JSON and YAML have every field, whatever the columns
// are.
func list[T any](a *app, rows []T, columns []column[T]) error {
	if a.tabular() {
		return a.table(rowsOf(a, rows, columns))
	}
	if rows == nil {
		rows = []T{}
	}
	return a.document(rows)
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
	for _, c := range columns {
		if value := harmless(c.show(row)); value != "" && (!c.wide || a.format == "wide") {
			if _, err := fmt.Fprintf(a.out, "%-*s  %s\n", width, c.title, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// harmless returns untrusted text without control sequences and control characters.
func harmless(text string) string {
	var out bytes.Buffer
	_, _ = (&plainText{out: &out}).Write([]byte(text)) // writing to a buffer does not fail
	return out.String()
}

func (a *app) document(value any) error {
	if a.format == "json" {
		encoder := json.NewEncoder(a.out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(value)
	}
	body, err := yaml.Marshal(value)
	if err != nil {
		return err
	}
	_, err = a.out.Write(body)
	return err
}

func rowsOf[T any](a *app, rows []T, columns []column[T]) (header table.Row, body []table.Row) {
	shown := columns[:0:0]
	for _, c := range columns {
		if !c.wide || a.format == "wide" {
			shown = append(shown, c)
			header = append(header, c.title)
		}
	}
	for _, row := range rows {
		cells := make(table.Row, len(shown))
		for i, c := range shown {
			cells[i] = harmless(c.show(row))
		}
		body = append(body, cells)
	}
	return header, body
}

func (a *app) table(header table.Row, rows []table.Row) error {
	writer := table.NewWriter()
	writer.SetStyle(table.Style{
		Box:     table.BoxStyle{PaddingRight: "   "},
		Format:  table.FormatOptions{Header: text.FormatUpper},
		Options: table.Options{},
	})
	writer.SuppressTrailingSpaces()
	if !a.noHeaders {
		writer.AppendHeader(header)
	}
	writer.AppendRows(rows)
	_, err := fmt.Fprintln(a.out, writer.Render())
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
