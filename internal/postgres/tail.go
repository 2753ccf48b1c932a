package postgres

import (
	"context"
	"maps"
	"slices"
	"time"
)

const (
	// tailInterval is how often a followed table is read.
	tailInterval = 500 * time.Millisecond
	// tailDepth is the number of ids before the newest that each read includes again: a
	// row with a lower id may be committed later, or change.
	tailDepth = 500
	// mostTailed is more than the number of rows that appear between two reads.
	mostTailed = 100 * tailDepth
)

// TailAll is the value of first for all rows.
const TailAll = mostTailed

// Tail describes a table to follow: its rows are returned as they are committed.
type Tail[T any] struct {
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
func (r Tail[T]) Run(ctx context.Context, after int64, first int) error {
	seen := map[int64]string{}
	limit := first
	ticker := time.NewTicker(tailInterval)
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
			after = max(after, r.ID(rows[0])-tailDepth)
			maps.DeleteFunc(seen, func(id int64, _ string) bool { return id <= after })
		}
		limit = mostTailed
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// news returns the rows that were not emitted yet or have changed since, oldest
// first.
func (r Tail[T]) news(newestFirst []T, seen map[int64]string) []T {
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
