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
	mark string
}

// Each row is emitted once, in order, again if it changed, and even if it is
// committed late.
func TestRows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rows := []followed{{1, "done"}, {2, "done"}, {3, "begun"}}
		var seen []string
		var mu sync.Mutex
		change := func(how func()) {
			mu.Lock()
			defer mu.Unlock()
			how()
		}
		f := Tail[followed]{
			Find: func(_ context.Context, after int64, limit int) (found []followed, _ error) {
				mu.Lock()
				defer mu.Unlock()
				for _, row := range slices.Backward(rows) {
					if row.id > after && len(found) < limit {
						found = append(found, row)
					}
				}
				return found, nil
			},
			ID: func(r followed) int64 { return r.id }, Mark: func(r followed) string { return r.mark },
			Emit: func(rows []followed) error {
				for _, r := range rows {
					seen = append(seen, fmt.Sprintf("%d %s", r.id, r.mark))
				}
				return nil
			},
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- f.Run(ctx, 1, 2) }()
		time.Sleep(9*tailInterval + tailInterval/2)
		change(func() { rows = append(rows, followed{5, "done"}) })
		time.Sleep(tailInterval)
		change(func() {
			rows[2].mark = "failed"
			rows = slices.Insert(rows, 3, followed{4, "done"})
		})
		time.Sleep(9 * tailInterval)
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if diff := cmp.Diff([]string{"2 done", "3 begun", "5 done", "3 failed", "4 done"}, seen); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
