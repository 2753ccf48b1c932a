package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

type followed struct {
	id   int64
	at   time.Time
	mark string
}

// followedLog is a table that is followed, in the order of its ids, and what its tail has
// emitted.
type followedLog struct {
	mu      sync.Mutex
	rows    []followed
	emitted []string
	largest int
}

// write adds rows with the current time that are not committed yet.
func (l *followedLog) write(ids ...int64) (written []followed) {
	for _, id := range ids {
		written = append(written, followed{id, time.Now(), "begun"})
	}
	return written
}

// commit makes rows visible.
func (l *followedLog) commit(rows ...followed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rows = append(l.rows, rows...)
	slices.SortFunc(l.rows, func(a, b followed) int { return int(a.id - b.id) })
}

// mark changes a row.
func (l *followedLog) mark(id int64, mark string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rows[slices.IndexFunc(l.rows, func(r followed) bool { return r.id == id })].mark = mark
}

// tail returns the tail of the log.
func (l *followedLog) tail() Tail[followed] {
	return Tail[followed]{
		Read: func(_ context.Context, of TailRange) (found []followed, _ error) {
			l.mu.Lock()
			defer l.mu.Unlock()
			for i := range l.rows {
				row := l.rows[i]
				if !of.Oldest {
					row = l.rows[len(l.rows)-1-i]
				}
				if row.id > of.After && (of.Before == 0 || row.id < of.Before) && len(found) < of.Limit {
					found = append(found, row)
				}
			}
			l.largest = max(l.largest, len(found))
			return found, nil
		},
		ID: func(r followed) int64 { return r.id }, At: func(r followed) time.Time { return r.at }, Mark: func(r followed) string { return r.mark },
		Emit: func(rows []followed) error {
			for _, r := range rows {
				l.emitted = append(l.emitted, fmt.Sprintf("%d %s", r.id, r.mark))
			}
			return nil
		},
	}
}

// follow runs a tail while during runs, and returns what it has emitted.
func (l *followedLog) follow(t *testing.T, after int64, first int, during func()) []string {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- l.tail().Run(ctx, after, first) }()
	time.Sleep(tailInterval / 2)
	during()
	time.Sleep(20 * tailInterval)
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	return l.emitted
}

// ids returns the numbers from one id to another.
func ids(from, to int64) (all []int64) {
	for id := from; id <= to; id++ {
		all = append(all, id)
	}
	return all
}

// wantBegun compares what was emitted with rows that have begun.
func wantBegun(t *testing.T, emitted []string, want []int64) {
	t.Helper()
	var lines []string
	for _, id := range want {
		lines = append(lines, fmt.Sprint(id, " begun"))
	}
	if diff := cmp.Diff(lines, emitted); diff != "" {
		t.Errorf("emitted %d rows, want %d (-want +got):\n%.2000s", len(emitted), len(lines), diff)
	}
}

// Each row is emitted once, in order, again if it changed, and even if it is committed late.
func TestTailEmitsRowsAndChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &followedLog{}
		l.commit(l.write(1, 2, 3)...)
		got := l.follow(t, 1, 2, func() {
			late := l.write(4)
			l.commit(l.write(5)...)
			time.Sleep(tailInterval)
			l.mark(3, "failed")
			l.commit(late...)
		})
		if diff := cmp.Diff([]string{"2 begun", "3 begun", "5 begun", "3 failed", "4 begun"}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// A tail that resumes after an id emits every row since, in order and in pages of bounded size.
func TestTailResumesWithoutALimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &followedLog{}
		l.commit(l.write(ids(1, 60_000)...)...)
		time.Sleep(time.Hour)
		l.commit(l.write(ids(60_001, 60_010)...)...)
		got := l.follow(t, 1, TailAll, func() { l.commit(l.write(60_011)...) })
		wantBegun(t, got, ids(2, 60_011))
		if l.largest > 1000 {
			t.Errorf("a page has %d rows", l.largest)
		}
	})
}

// Rows that are committed after others with higher ids are emitted, however many they are,
// whether the tail resumes or starts with the newest rows.
func TestTailEmitsManyLateRows(t *testing.T) {
	t.Parallel()
	for _, first := range []int{TailAll, 2, 0} {
		synctest.Test(t, func(t *testing.T) {
			l := &followedLog{}
			l.commit(l.write(1, 2)...)
			late := l.write(ids(3, 602)...)
			l.commit(l.write(603, 604)...)
			got := l.follow(t, 0, first, func() {
				time.Sleep(time.Minute)
				l.commit(l.write(ids(605, 1300)...)...)
				time.Sleep(tailInterval)
				l.commit(late...)
			})
			want := map[int][]int64{TailAll: {1, 2, 603, 604}, 2: {603, 604}}[first]
			wantBegun(t, got, slices.Concat(want, ids(605, 1300), ids(3, 602)))
		})
	}
}

// The end of an action is emitted, however many rows were added since it began.
func TestTailEmitsLateEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &followedLog{}
		got := l.follow(t, 0, 50, func() {
			l.commit(l.write(1)...)
			time.Sleep(time.Minute)
			l.commit(l.write(ids(2, 2000)...)...)
			time.Sleep(tailInterval)
			l.mark(1, "done")
		})
		if len(got) != 2001 || got[2000] != "1 done" {
			t.Errorf("emitted %d rows, the last is %s", len(got), got[len(got)-1])
		}
	})
}

// A tail remembers a bounded number of rows, the newest ones.
func TestTailRemembersFewRows(t *testing.T) {
	t.Parallel()
	f := &tailer[followed]{marks: map[int64]string{}}
	for id := range int64(2*mostTailed + 1) {
		f.marks[id+1] = ""
	}
	f.bound()
	if len(f.marks) != mostTailed || f.floor != mostTailed+1 {
		t.Errorf("%d rows above %d, want %d above %d", len(f.marks), f.floor, mostTailed, mostTailed+1)
	}
}
