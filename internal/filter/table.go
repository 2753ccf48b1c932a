package filter

import (
	"slices"
	"time"
)

// Table declares the keys of a list that is filtered in memory.
type Table[T any] []Column[T]

// Column is a key with the part of a row that its terms match. Only the field for the key's
// type is set.
type Column[T any] struct {
	Key
	// Texts returns the texts of a row, of which a Text or Choice matches one.
	Texts func(row *T, now time.Time) []string
	// Span returns what a Duration is compared with; ok is false if the row has none.
	Span func(row *T, now time.Time) (span time.Duration, ok bool)
	// At returns what an Instant is compared with. Terms with the key until match rows that are not
	// later, others rows that are not earlier.
	At func(row *T) time.Time
}

// Keys returns the keys of the table.
func (t Table[T]) Keys() []Key {
	keys := make([]Key, len(t))
	for i, column := range t {
		keys[i] = column.Key
	}
	return keys
}

// Select returns the rows that match a filter, in their order.
func (t Table[T]) Select(f *Filter, now time.Time, rows []T) []T {
	if f == nil {
		return rows
	}
	terms := make([][]Term, len(t))
	for i, column := range t {
		terms[i] = f.Of(column.Name)
	}
	found := []T{}
	for i := range rows {
		if t.matches(terms, now, &rows[i]) {
			found = append(found, rows[i])
		}
	}
	return found
}

// matches reports whether a row matches the terms of each column.
func (t Table[T]) matches(terms [][]Term, now time.Time, row *T) bool {
	for i, column := range t {
		if len(terms[i]) > 0 && !column.matches(terms[i], now, row) {
			return false
		}
	}
	return true
}

func (c Column[T]) matches(terms []Term, now time.Time, row *T) bool {
	if c.Span != nil {
		span, ok := c.Span(row, now)
		return ok && !slices.ContainsFunc(terms, func(t Term) bool { return t.Longer && span <= t.Span || !t.Longer && span >= t.Span })
	}
	if c.At != nil {
		return !slices.ContainsFunc(terms, func(t Term) bool {
			return c.Name == "until" && c.At(row).After(t.instant(now)) || c.Name != "until" && c.At(row).Before(t.instant(now))
		})
	}
	for _, text := range c.Texts(row, now) {
		if slices.ContainsFunc(terms, func(t Term) bool { return t.Text.Matches(text) }) {
			return true
		}
	}
	return false
}
