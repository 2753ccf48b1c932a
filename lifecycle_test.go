package forge

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

// diary notes in which order services stopped.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) untilEnd(name string) service {
	return service{name, func(ctx context.Context) error {
		<-ctx.Done()
		d.mu.Lock()
		defer d.mu.Unlock()
		d.lines = append(d.lines, name)
		return nil
	}}
}

func TestTiersStopFromTheInsideOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d diary
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- nest(ctx,
				[]service{d.untilEnd("listener")}, []service{d.untilEnd("heartbeat")}, []service{d.untilEnd("election")})
		}()
		synctest.Wait()
		stop()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if want := []string{"election", "heartbeat", "listener"}; !slices.Equal(d.lines, want) {
			t.Errorf("stopped in the order %v; want %v", d.lines, want)
		}
	})
}

func TestOneFailureStopsEveryTier(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d diary
		failure := errors.New("port lost")
		err := nest(t.Context(),
			[]service{{"listener", func(context.Context) error { return failure }}},
			[]service{d.untilEnd("jobs")})
		if !errors.Is(err, failure) || err.Error() != "listener: port lost" {
			t.Errorf("got %v", err)
		}
		if !slices.Equal(d.lines, []string{"jobs"}) {
			t.Errorf("stopped: %v", d.lines)
		}
	})
}

func TestGateOpensAndCloses(t *testing.T) {
	t.Parallel()
	g := &gate{}
	if g.err() == nil {
		t.Error("ready before it was opened")
	}
	g.open()
	if err := g.err(); err != nil {
		t.Errorf("opened: %v", err)
	}
	g.close()
	if g.err() == nil {
		t.Error("ready while stopping")
	}
}

func TestChangesWakeEverySubscriberOnce(t *testing.T) {
	t.Parallel()
	c := newChanges()
	one, cancelOne := c.Subscribe()
	two, cancelTwo := c.Subscribe()
	defer cancelTwo()
	c.announce()
	c.announce() // coalesced with the first
	cancelOne()
	c.announce()
	if len(one) != 1 || len(two) != 1 {
		t.Errorf("%d and %d wake-ups waiting; want 1 and 1", len(one), len(two))
	}
}
