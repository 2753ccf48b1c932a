package forge

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

// stopLog records the order in which services stop.
type stopLog struct {
	mu    sync.Mutex
	lines []string
}

func (l *stopLog) service(name string) service {
	return service{name, func(ctx context.Context) error {
		<-ctx.Done()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lines = append(l.lines, name)
		return nil
	}}
}

func TestTiersStopInReverseOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l stopLog
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- runServices(ctx,
				[]service{l.service("listener")}, []service{l.service("heartbeat")}, []service{l.service("election")})
		}()
		synctest.Wait()
		stop()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if want := []string{"election", "heartbeat", "listener"}; !slices.Equal(l.lines, want) {
			t.Errorf("stopped in the order %v; want %v", l.lines, want)
		}
	})
}

func TestOneFailureStopsEveryTier(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l stopLog
		failure := errors.New("port lost")
		err := runServices(t.Context(),
			[]service{{"listener", func(context.Context) error { return failure }}},
			[]service{l.service("jobs")})
		if !errors.Is(err, failure) || err.Error() != "listener: port lost" {
			t.Errorf("got %v", err)
		}
		if !slices.Equal(l.lines, []string{"jobs"}) {
			t.Errorf("stopped: %v", l.lines)
		}
	})
}

func TestReadinessFollowsStartAndStop(t *testing.T) {
	t.Parallel()
	g := &readiness{}
	if g.err() == nil {
		t.Error("ready before it was opened")
	}
	g.setReady()
	if err := g.err(); err != nil {
		t.Errorf("opened: %v", err)
	}
	g.setStopping()
	if g.err() == nil {
		t.Error("ready while stopping")
	}
}

func TestBroadcastWakesEverySubscriberOnce(t *testing.T) {
	t.Parallel()
	c := newBroadcaster()
	one, cancelOne := c.Subscribe()
	two, cancelTwo := c.Subscribe()
	defer cancelTwo()
	c.broadcast()
	c.broadcast() // coalesced with the first
	cancelOne()
	c.broadcast()
	if len(one) != 1 || len(two) != 1 {
		t.Errorf("%d and %d wake-ups waiting; want 1 and 1", len(one), len(two))
	}
}
