// Package tail tells of a table's rows as they are committed, for commands and for
// those who ask over HTTP.
package tail

import (
	"context"
	"maps"
	"slices"
	"time"
)

const (
	// look is how often a table is read while it is followed.
	look = 500 * time.Millisecond
	// depth is how many ids back each look reads again: a row that took its id early
	// may be committed late, or changed.
	depth = 500
	// most is more rows than come between two looks.
	most = 100 * depth
)

// All is for who wants to be told of every row.
const All = most

// Rows are those of a table that is followed.
type Rows[T any] struct {
	// Find returns at most limit rows with ids above after, newest first.
	Find func(ctx context.Context, after int64, limit int) ([]T, error)
	ID   func(T) int64
	// Mark is what a row that changed is told of again for; nil: none changes.
	Mark func(T) string
	// Tell is given the rows that came since the last look, oldest first, also none.
	Tell func([]T) error
}

// Run begins with the newest rows, as many as first says, of those with ids above
// after, and goes on until ctx ends.
func (r Rows[T]) Run(ctx context.Context, after int64, first int) error {
	told := map[int64]string{}
	limit := first
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	for begun := false; ; begun = true {
		rows, err := r.Find(ctx, after, limit)
		if err != nil {
			return err
		}
		if err := r.Tell(r.news(rows, told)); err != nil {
			return err
		}
		if len(rows) > 0 {
			if oldest := r.ID(rows[len(rows)-1]); !begun && len(rows) == limit {
				after = oldest - 1 // what is older was not asked for
			}
			after = max(after, r.ID(rows[0])-depth)
			maps.DeleteFunc(told, func(id int64, _ string) bool { return id <= after })
		}
		limit = most
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// news are the rows that were not told of, or not as they are now, oldest first.
func (r Rows[T]) news(newestFirst []T, told map[int64]string) []T {
	var news []T
	for _, row := range slices.Backward(newestFirst) {
		mark := ""
		if r.Mark != nil {
			mark = r.Mark(row)
		}
		if before, known := told[r.ID(row)]; known && before == mark {
			continue
		}
		told[r.ID(row)] = mark
		news = append(news, row)
	}
	return news
}
