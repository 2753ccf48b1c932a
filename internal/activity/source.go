package activity

import (
	"fmt"
	"math"
	"strings"
	"time"
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
}

// window bounds the rows that are read. before is the last row of the previous window.
type window struct {
	since, until []condition
	before       Place
}

// window returns the bounds of a query.
func (q Query) window() window {
	w := window{before: q.Before}
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
	if !q.after.IsZero() {
		w.since = append(w.since, condition{"$$::timestamptz", q.after.Add(time.Microsecond)})
	}
	return w
}

// where returns the conditions of the rows of the window. A condition on the column is an
// inequality, and with a bound one on the column and the time: with an equality the planner could
// use an index on the time alone, and read any number of other rows.
func (c source) where(args *[]any) string {
	all := []string{c.always.write(args)}
	switch {
	case !c.before.IsZero():
		all = append(all, c.beforePlace(args))
	case len(c.until) > 0:
		all = append(all, c.compare("<=", least("least", c.until, args), args))
	case c.column != "":
		all = append(all, c.comparison("<=", args))
	}
	switch {
	case len(c.since) > 0:
		all = append(all, c.compare(">=", least("greatest", c.since, args), args))
	case c.column != "":
		all = append(all, c.comparison(">=", args))
	}
	if len(c.until) > 0 {
		all = append(all, "at <= "+least("least", c.until, args))
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

// beforePlace returns a comparison with the place before, which may be one of another log.
func (c source) beforePlace(args *[]any) string {
	id := c.before.id
	switch strings.Compare(c.log, c.before.log) {
	case -1: // of entries of one instant, those of this log come later
		id = math.MaxInt64
	case 1:
		id = math.MinInt64
	}
	at := condition{"$$::timestamptz", c.before.at}.write(args)
	if c.column == "" {
		return fmt.Sprintf("(at, id) < (%s, %d)", at, id)
	}
	return condition{fmt.Sprintf("(%s, at, id) < ($$::text, %s, %d)", c.column, at, id), c.value}.write(args)
}

// order returns the order of the index, from the newest row on.
func (c source) order() string {
	if c.column == "" {
		return "ORDER BY at DESC, id DESC"
	}
	return "ORDER BY " + c.column + " DESC, at DESC, id DESC"
}
