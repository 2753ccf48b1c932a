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
	// deepInterval is how often the whole of tailSpan is read again.
	deepInterval = 5 * time.Second
	// tailSpan is for how long after its time a row may be committed or change. It is longer
	// than a request may take.
	tailSpan = 2 * time.Minute
	// tailPage is how many rows one statement returns at most.
	tailPage = 1000
	// mostTailed bounds the rows of tailSpan that are remembered.
	mostTailed = 50_000
)

// TailAll is the value of first for all rows.
const TailAll = -1

// TailRange selects at most Limit rows with ids above After and below Before, if Before is
// not 0: the newest rows, newest first, or with Oldest the oldest rows, oldest first.
type TailRange struct {
	After, Before int64
	Oldest        bool
	Limit         int
}

// Tail describes a table to follow: its rows are returned as they are committed.
type Tail[T any] struct {
	Read func(ctx context.Context, of TailRange) ([]T, error)
	ID   func(T) int64
	// At returns when a row was written, by the database's clock.
	At func(T) time.Time
	// Mark returns a value that differs if a row has changed, so that the row is
	// emitted again; nil: rows do not change.
	Mark func(T) string
	// Emit is called with the rows that are new since the last read, oldest first, at most
	// tailPage of them unless they are the first ones; there may be none.
	Emit func([]T) error
}

// Find returns at most limit of the newest rows with ids above after, newest first.
func (r Tail[T]) Find(ctx context.Context, after int64, limit int) ([]T, error) {
	return r.Read(ctx, TailRange{After: after, Limit: limit})
}

// Run starts with the newest rows with ids above after, at most first, or with all of them
// if first is TailAll, and follows the table until ctx ends. It emits each row that is
// committed within tailSpan of its time, and each change within that time, unless more than
// mostTailed rows have followed.
func (r Tail[T]) Run(ctx context.Context, after int64, first int) error {
	f := &tailer[T]{Tail: r, floor: after, marks: map[int64]string{}}
	if err := f.begin(ctx, after, first); err != nil {
		return err
	}
	ticker := time.NewTicker(tailInterval)
	defer ticker.Stop()
	for deep := (time.Time{}); ; {
		read := f.recent
		if time.Since(deep) >= deepInterval {
			read, deep = f.all, time.Now()
		}
		if err := read(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// tailer is the state of a Tail that runs.
type tailer[T any] struct {
	Tail[T]

	// floor is the id up to which rows are no longer read. marks are the marks of the rows
	// above it that need not be emitted.
	floor int64
	marks map[int64]string
	// newest is the highest id, at its time, and observed when it was first read.
	newest       int64
	at, observed time.Time
}

// begin emits the first rows, unless they are all. It remembers the older rows that exist, so
// that a row that is committed later is not taken for one of them.
func (f *tailer[T]) begin(ctx context.Context, after int64, first int) error {
	of := TailRange{After: after, Limit: min(max(first, 1), tailPage)}
	var begin []T
	var settled int64
	for {
		rows, err := f.Read(ctx, of)
		if err != nil {
			return err
		}
		if f.newest == 0 && len(rows) > 0 {
			f.observe(rows[0])
		}
		if first == TailAll {
			return nil // the first of the pages has them
		}
		settled = max(settled, f.settled(rows, f.edge()))
		for _, row := range rows {
			if len(begin) < first {
				begin = append(begin, row)
			}
			f.marks[f.ID(row)] = f.mark(row)
		}
		if len(rows) < of.Limit || len(begin) >= first && (settled > 0 || len(f.marks) >= mostTailed) {
			break
		}
		of.Before, of.Limit = f.ID(rows[len(rows)-1]), tailPage
	}
	if len(f.marks) >= mostTailed {
		settled = max(settled, of.Before)
	}
	f.raise(settled)
	slices.Reverse(begin)
	return f.Emit(begin)
}

// all reads the rows above the floor. Rows whose time was over before their page was read raise
// the floor.
func (f *tailer[T]) all(ctx context.Context) error {
	return f.pages(ctx, f.floor, f.raise)
}

// recent reads the newest rows.
func (f *tailer[T]) recent(ctx context.Context) error {
	return f.pages(ctx, max(f.floor, f.newest-tailDepth), func(int64) {})
}

// pages reads the rows above an id page by page and emits those that are new or have changed.
// settle is called with the highest id that is settled after each page.
func (f *tailer[T]) pages(ctx context.Context, after int64, settle func(id int64)) error {
	for {
		edge := f.edge()
		rows, err := f.Read(ctx, TailRange{After: after, Oldest: true, Limit: tailPage})
		if err != nil {
			return err
		}
		if err := f.Emit(f.news(rows)); err != nil {
			return err
		}
		settle(f.settled(rows, edge))
		f.bound()
		if len(rows) < tailPage {
			return nil
		}
		after = f.ID(rows[len(rows)-1])
	}
}

// news returns the rows that were not emitted yet or have changed since, and remembers them.
func (f *tailer[T]) news(rows []T) (news []T) {
	for _, row := range rows {
		f.observe(row)
		id, mark := f.ID(row), f.mark(row)
		if before, known := f.marks[id]; known && before == mark {
			continue
		}
		f.marks[id] = mark
		news = append(news, row)
	}
	return news
}

// observe records the newest row.
func (f *tailer[T]) observe(row T) {
	if id := f.ID(row); id > f.newest {
		f.newest, f.at, f.observed = id, f.At(row), time.Now()
	}
}

// edge returns an instant that the database's clock passed more than tailSpan ago; zero if no
// row is known.
func (f *tailer[T]) edge() time.Time {
	if f.newest == 0 {
		return time.Time{}
	}
	return f.at.Add(time.Since(f.observed) - tailSpan)
}

// settled returns the highest id of the rows that were written before an instant, 0 if there is
// none.
func (f *tailer[T]) settled(rows []T, edge time.Time) (id int64) {
	for _, row := range rows {
		if f.At(row).Before(edge) {
			id = max(id, f.ID(row))
		}
	}
	return id
}

func (f *tailer[T]) mark(row T) string {
	if f.Mark == nil {
		return ""
	}
	return f.Mark(row)
}

// raise raises the floor to an id.
func (f *tailer[T]) raise(id int64) {
	if id > f.floor {
		f.floor = id
		maps.DeleteFunc(f.marks, func(id int64, _ string) bool { return id <= f.floor })
	}
}

// bound raises the floor if far more than mostTailed rows are remembered, so that mostTailed
// remain.
func (f *tailer[T]) bound() {
	if len(f.marks) > 2*mostTailed {
		ids := slices.Sorted(maps.Keys(f.marks))
		f.raise(ids[len(ids)-mostTailed-1])
	}
}
