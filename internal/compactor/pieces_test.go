package compactor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/leaderstore"
)

// A failed batch is retried with fewer rows, and what the smaller batches delete
// stays deleted. A permanent failure ends the sweep.
func TestFailedBatchIsRetriedWithFewerRows(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	if _, err := pool.Exec(t.Context(), `
		INSERT INTO forge_leaders (role, node_id, incarnation, term) VALUES ('log_compactor', 'n1', 'i1', 1)`); err != nil {
		t.Fatal(err)
	}
	c := New(pool, Options{
		Retention: func() Retention { return Retention{} }, Logger: slog.New(slog.DiscardHandler), Batch: 1000, Pause: time.Millisecond,
	})
	p := c.newPass(leaderstore.Fence{Role: "log_compactor", Term: 1, NodeID: "n1", Incarnation: "i1"})
	left, fits, tried := 600, 250, []int(nil)
	tooSlow := errors.New("canceling statement due to statement timeout")
	slow := sweep{"things", time.Hour, func(_ context.Context, _ pgx.Tx, _ time.Time, limit int) (int64, error) {
		tried = append(tried, limit)
		if limit > fits {
			return 0, tooSlow
		}
		n := min(limit, left)
		left -= n
		return int64(n), nil
	}}
	deleted, err := p.sweep(t.Context(), slow)
	if err != nil || deleted != 600 {
		t.Errorf("deleted %d of 600, %v", deleted, err)
	}
	if diff := cmp.Diff([]int{1000, 500, 250, 500, 250, 500, 250}, tried); diff != "" {
		t.Errorf("batches: %s", diff)
	}
	fits, tried = 0, nil
	if _, err := p.sweep(t.Context(), slow); !errors.Is(err, tooSlow) || len(tried) != batchTries {
		t.Errorf("a sweep that cannot be done: %v after batches of %s", err, fmt.Sprint(tried))
	}
}
