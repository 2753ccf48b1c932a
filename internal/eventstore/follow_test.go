package eventstore_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/internal/postgres"
)

func TestFindOldestFirst(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for range 5 {
		appendEvent(t, pool, eventstore.Event{Type: "x"}, nil)
	}
	for _, filter := range []eventstore.Filter{{After: 1, Oldest: true, Limit: 2}, {After: 1, From: time.Unix(0, 0), Oldest: true, Limit: 2}} {
		events, err := eventstore.New(pool).Find(t.Context(), filter)
		if err != nil || len(events) != 2 || events[0].ID != 2 || events[1].ID != 3 {
			t.Errorf("%+v: %+v, %v", filter, events, err)
		}
	}
}

// A follower gets the events of a transaction that is committed after an event with a higher id.
func TestFollowedEventsCommittedLate(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	store := eventstore.New(pool)
	appendEvent(t, pool, eventstore.Event{Type: "x"}, nil)
	late, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = late.Rollback(context.WithoutCancel(t.Context())) }()
	if err := eventstore.New(late).AppendEach(t.Context(), eventstore.CronPaused, slices.Repeat([]any{map[string]string{"by": "ada"}}, 2000)); err != nil {
		t.Fatal(err)
	}
	appendEvent(t, pool, eventstore.Event{Type: "x"}, nil)

	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	seen := map[int64]int{}
	tail := postgres.Tail[eventstore.Event]{
		Read: func(ctx context.Context, of postgres.TailRange) ([]eventstore.Event, error) {
			return store.Find(ctx, eventstore.Filter{After: of.After, Before: of.Before, Oldest: of.Oldest, Limit: of.Limit})
		},
		ID: func(e eventstore.Event) int64 { return e.ID }, At: func(e eventstore.Event) time.Time { return e.At },
		Emit: func(events []eventstore.Event) error {
			for _, e := range events {
				seen[e.ID]++
			}
			if len(seen) == 2 {
				return late.Commit(ctx)
			}
			if len(seen) == 2002 {
				stop()
			}
			return nil
		},
	}
	if err := tail.Run(ctx, 0, 10); !errors.Is(err, context.Canceled) {
		t.Fatalf("%d events, %v", len(seen), err)
	}
	for id, times := range seen {
		if times != 1 {
			t.Errorf("event %d was emitted %d times", id, times)
		}
	}
}
