package activity

import (
	"fmt"
	"math"
	"strings"
)

// source is a part of a log that an index finds.
type source struct {
	log string
	// column is the first column of the index, value its value; an empty column means that
	// the index begins with the time.
	column, value string
	window
	// always are the conditions of a partial index, others those that are checked row by
	// row.
	always, others conditions
	// folds leaves out the further events of actions that write many.
	folds bool
}

// window bounds the rows that are read. before is the last row of the previous window.
type window struct {
	since, until []condition
	before       Place
	oldest       bool
}

// window returns the bounds of a query.
func (q Query) window() window {
	w := window{before: q.Before, oldest: q.Oldest}
	instants := func(key string) (all []condition) {
		for _, t := range q.Where.Of(key) {
			if t.At.IsZero() {
				all = append(all, condition{"now() - make_interval(secs => $$::float8)", t.Span.Seconds()})
			} else {
				all = append(all, condition{"$$::timestamptz", t.At})
			}
		}
		return all
	}
	w.since, w.until = instants("since"), instants("until")
	if !q.since.IsZero() {
		w.since = []condition{{"$$::timestamptz", q.since}}
	}
	if !q.after.IsZero() {
		w.since = append(w.since, condition{"$$::timestamptz", q.after})
	}
	return w
}

// where returns the conditions of the rows of the window. A condition on the column is an
// inequality, and with a bound one on the column and the time: with an equality the planner could
// use an index on the time alone, and read any number of other rows.
func (c source) where(args *[]any) string {
	all := []string{c.always.write(args)}
	for _, bound := range []struct {
		operator, function string
		instants           []condition
		// begins reports that the rows are read from this bound on.
		begins bool
	}{{"<=", "least", c.until, !c.oldest}, {">=", "greatest", c.since, c.oldest}} {
		switch {
		case bound.begins && !c.before.IsZero():
			all = append(all, c.fromPlace(bound.operator[:1], args))
			if len(bound.instants) > 0 {
				all = append(all, "at "+bound.operator+" "+least(bound.function, bound.instants, args))
			}
		case len(bound.instants) > 0:
			all = append(all, c.compare(bound.operator, least(bound.function, bound.instants, args), args))
		case c.column != "":
			all = append(all, c.comparison(bound.operator, args))
		}
	}
	return strings.Join(all, "\n  AND ")
}

// least returns the least or greatest of some instants.
func least(function string, of []condition, args *[]any) string {
	all := make([]string, len(of))
	for i, one := range of {
		all[i] = one.write(args)
	}
	return function + "(" + strings.Join(all, ", ") + ")"
}

// comparison returns a comparison of the column with its value.
func (c source) comparison(operator string, args *[]any) string {
	return condition{"(" + c.column + ") " + operator + " $$::text", c.value}.write(args)
}

// compare returns a comparison of the column and the time with the value and an instant.
func (c source) compare(operator, instant string, args *[]any) string {
	if c.column == "" {
		return "at " + operator + " " + instant
	}
	return condition{fmt.Sprintf("(%s, at) %s ($$::text, %s)", c.column, operator, instant), c.value}.write(args)
}

// fromPlace returns a comparison with the place before, which may be one of another log.
func (c source) fromPlace(operator string, args *[]any) string {
	id := c.before.id
	switch strings.Compare(c.log, c.before.log) {
	case -1: // entries of one instant are ordered by their logs
		id = math.MaxInt64
	case 1:
		id = math.MinInt64
	}
	at := condition{"$$::timestamptz", c.before.at}.write(args)
	if c.column == "" {
		return fmt.Sprintf("(at, id) %s (%s, %d)", operator, at, id)
	}
	return condition{fmt.Sprintf("(%s, at, id) %s ($$::text, %s, %d)", c.column, operator, at, id), c.value}.write(args)
}

// order returns the order of the index.
func (c source) order() string {
	columns := []string{"at", "id"}
	if c.column != "" {
		columns = append([]string{c.column}, columns...)
	}
	direction := " DESC"
	if c.oldest {
		direction = ""
	}
	return "ORDER BY " + strings.Join(columns, direction+", ") + direction
}
