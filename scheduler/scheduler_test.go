package scheduler_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/scheduler"
)

type task func(ctx context.Context) error

func (f task) Lead(ctx context.Context, _ leaderstore.Fence) error { return f(ctx) }

func untilEnd(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func TestTaskThatReturnsStopsTheOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		deposed := func(context.Context) error { return leaderstore.ErrDeposed }
		err := scheduler.New(task(untilEnd), task(deposed), task(untilEnd)).Lead(t.Context(), leaderstore.Fence{})
		if !errors.Is(err, leaderstore.ErrDeposed) {
			t.Fatalf("got %v", err)
		}
	})
}

func TestLeadReturnsNilWhenContextEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- scheduler.New(task(untilEnd), task(untilEnd)).Lead(ctx, leaderstore.Fence{}) }()
		synctest.Wait()
		stop()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}
