package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

const (
	// followLook is how often a table is read while it is followed.
	followLook = 500 * time.Millisecond
	// followDepth is how many ids back each look reads again: a row that took its id
	// early may be committed late, or changed.
	followDepth = 500
	// followLimit is more rows than come between two looks.
	followLimit = 100 * followDepth
)

var errNoYAMLStream = errors.New(`output "yaml" does not stream; want table, wide or json`)

// printLine prints one row that is followed; JSON holds it whole.
func printLine[T any](a *app, row T, columns []column[T]) error {
	if a.format == "json" {
		return json.NewEncoder(a.out).Encode(row)
	}
	var values []string
	for _, column := range columns {
		if value := column.show(row); (!column.wide || a.format == "wide") && value != "-" {
			values = append(values, value)
		}
	}
	_, err := fmt.Fprintln(a.out, strings.Join(values, "  "))
	return err
}

// follower tells of a table's rows as they come.
type follower[T any] struct {
	// find returns at most limit rows with ids above after, newest first.
	find func(ctx context.Context, after int64, limit int) ([]T, error)
	id   func(T) int64
	// mark is what a row that changed is told of again for.
	mark func(T) string
	tell func(T) error
}

// run begins with the newest rows, as many as first says, and goes on until ctx
// ends.
func (f follower[T]) run(ctx context.Context, first int) error {
	told := map[int64]string{}
	after, limit := int64(0), first
	ticker := time.NewTicker(followLook)
	defer ticker.Stop()
	for begun := false; ; begun = true {
		rows, err := f.find(ctx, after, limit)
		if err != nil {
			return err
		}
		for _, row := range slices.Backward(rows) {
			if mark, known := told[f.id(row)]; known && mark == f.mark(row) {
				continue
			}
			told[f.id(row)] = f.mark(row)
			if err := f.tell(row); err != nil {
				return err
			}
		}
		if len(rows) > 0 {
			if oldest := f.id(rows[len(rows)-1]); !begun && len(rows) == limit {
				after = oldest - 1 // what is older was not asked for
			}
			after = max(after, f.id(rows[0])-followDepth)
			maps.DeleteFunc(told, func(id int64, _ string) bool { return id <= after })
		}
		limit = followLimit
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}
