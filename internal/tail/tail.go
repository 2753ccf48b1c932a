// Package tail follows a table and returns its rows as they are committed, for
// commands and HTTP clients.
package tail

import (
	"context"
	"maps"
	"slices"
	"time"
)

const (
	// pollInterval is how often a followed table is read.
	pollInterval = 500 * time.Millisecond
	// depth is the number of ids before the newest that each read includes again: a
	// row with a lower id may be committed later, or change.
	depth = 500
	// most is more than the number of rows that appear between two reads.
	most = 100 * depth
)

// All is the value of first for all rows.
const All = most

// Rows describes a table to follow.
type Rows[T any] struct {
	// Find returns at most limit rows with ids above after, newest first.
	Find func(ctx context.Context, after int64, limit int) ([]T, error)
	ID   func(T) int64
	// Mark returns a value that differs if a row has changed, so that the row is
	// emitted again; nil: rows do not change.
	Mark func(T) string
	// Emit is called with the rows that are new since the last read, oldest first;
	// there may be none.
	Emit func([]T) error
}

// Run starts with the newest rows with ids above after, at most first, and follows
// the table until ctx ends.
func (r Rows[T]) Run(ctx context.Context, after int64, first int) error {
	seen := map[int64]string{}
	limit := first
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for begun := false; ; begun = true {
		rows, err := r.Find(ctx, after, limit)
		if err != nil {
			return err
		}
		if err := r.Emit(r.news(rows, seen)); err != nil {
			return err
		}
		if len(rows) > 0 {
			if oldest := r.ID(rows[len(rows)-1]); !begun && len(rows) == limit {
				after = oldest - 1 // older rows were not requested
			}
			after = max(after, r.ID(rows[0])-depth)
			maps.DeleteFunc(seen, func(id int64, _ string) bool { return id <= after })
		}
		limit = most
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// news returns the rows that were not emitted yet or have changed since, oldest
// first.
func (r Rows[T]) news(newestFirst []T, seen map[int64]string) []T {
	var news []T
	for _, row := range slices.Backward(newestFirst) {
		mark := ""
		if r.Mark != nil {
			mark = r.Mark(row)
		}
		if before, known := seen[r.ID(row)]; known && before == mark {
			continue
		}
		seen[r.ID(row)] = mark
		news = append(news, row)
	}
	return news
}
