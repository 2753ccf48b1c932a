package roles

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forge-scheduler/forge/leaderstore"
)

func TestEveryLeaderHasTwoDeputies(t *testing.T) {
	t.Parallel()
	var nodes []string
	for i := range 50 {
		nodes = append(nodes, fmt.Sprintf("%016x", i))
	}
	for _, leader := range nodes {
		deputies := 0
		for _, node := range nodes {
			if deputyOf(node, leader, nodes) {
				deputies++
			}
		}
		if deputies != deputiesPerLeader {
			t.Fatalf("%s has %d deputies", leader, deputies)
		}
	}
	if !deputyOf("b", "a", []string{"a", "b"}) || deputyOf("a", "a", []string{"a", "b"}) {
		t.Fatal("the only other node must watch, the leader itself must not")
	}
}

type fakeWatch struct {
	ended  <-chan struct{}
	broken <-chan struct{}
	opened *atomic.Int32
}

func (w fakeWatch) AwaitEnd(ctx context.Context, _ string) (time.Time, error) {
	select {
	case <-w.ended:
		return time.Now(), nil
	case <-w.broken:
		return time.Time{}, errors.New("connection broken")
	case <-time.After(900 * time.Millisecond):
		return time.Time{}, nil
	case <-ctx.Done():
		return time.Time{}, ctx.Err()
	}
}

func (w fakeWatch) Close() { w.opened.Add(-1) }

type fakeCluster struct {
	mu      sync.Mutex
	cluster Cluster
	err     error
}

func (f *fakeCluster) set(leaders ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cluster = Cluster{Leaders: leaders, Candidates: map[string][]string{"a": {"a", "b", "c"}}}
}

func (f *fakeCluster) get(context.Context) (Cluster, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cluster, f.err
}

func (f *fakeCluster) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

// countingDeputy returns a deputy that counts the sessions with which it watches.
func countingDeputy(read func(context.Context) (Cluster, error), opened *atomic.Int32) *Deputy {
	return NewDeputy(DeputyOptions{
		Incarnation: "b", ReadCluster: read, Logger: slog.New(slog.DiscardHandler),
		OnSessionEnd: func(leaderstore.SessionEnd) {},
		OpenWatch: func(context.Context) (Watch, error) {
			opened.Add(1)
			return fakeWatch{opened: opened}, nil
		},
	})
}

// A server that restarts does not answer at the moment at which everything changes, and no
// later notification triggers another check.
func TestDeputyRetriesSoonAfterFailedRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var cluster fakeCluster
		cluster.fail(errors.New("the database system is starting up"))
		var opened atomic.Int32
		d := countingDeputy(cluster.get, &opened)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- d.Run(ctx) }()
		time.Sleep(5 * time.Second)
		cluster.set("a")
		cluster.fail(nil)
		time.Sleep(2 * watchRetry)
		synctest.Wait()
		if opened.Load() != 1 {
			t.Errorf("%d sessions watch, want 1", opened.Load())
		}
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}

// After a session has ended, every later wait returns at once. Only the first one reports
// the time of the end.
func TestDeputyReportsSessionEndOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var cluster fakeCluster
		cluster.set("a")
		ended := make(chan struct{})
		var opened atomic.Int32
		var seen []leaderstore.SessionEnd
		d := NewDeputy(DeputyOptions{
			Incarnation: "b", ReadCluster: cluster.get, Logger: slog.New(slog.DiscardHandler),
			OnSessionEnd: func(end leaderstore.SessionEnd) { seen = append(seen, end) },
			OpenWatch: func(context.Context) (Watch, error) {
				opened.Add(1)
				return fakeWatch{ended: ended, opened: &opened}, nil
			},
		})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- d.Run(ctx) }()
		time.Sleep(2 * time.Second) // a wait has found the session alive
		close(ended)
		time.Sleep(4 * time.Second)
		stop()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if len(seen) < 2 || seen[0].Incarnation != "a" || seen[0].At.IsZero() {
			t.Fatalf("saw %+v", seen)
		}
		for _, again := range seen[1:] {
			if again != (leaderstore.SessionEnd{}) {
				t.Errorf("an end that was not observed has a time: %+v", again)
			}
		}
	})
}

// A deputy finds a leader without a notification within 15 seconds, and within two if its
// own late heartbeat kept it from being a deputy.
func TestDeputyFindsLeadersWithoutNotification(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		late   bool
		within time.Duration
	}{
		"the notification is missed": {false, 15 * time.Second},
		"the heartbeat was late":     {true, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var cluster fakeCluster
				cluster.cluster.Late = test.late
				var opened atomic.Int32
				d := NewDeputy(DeputyOptions{
					Incarnation: "b", ReadCluster: cluster.get, Logger: slog.New(slog.DiscardHandler),
					OnSessionEnd: func(leaderstore.SessionEnd) {},
					OpenWatch: func(context.Context) (Watch, error) {
						opened.Add(1)
						return fakeWatch{opened: &opened}, nil
					},
				})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- d.Run(ctx) }()
				synctest.Wait()
				cluster.set("a")
				time.Sleep(test.within)
				synctest.Wait()
				if opened.Load() != 1 {
					t.Errorf("%d sessions watch after %s, want 1", opened.Load(), test.within)
				}
				cancel()
				if err := <-done; err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

func TestDeputyElectsNowWhenLeaderEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var cluster fakeCluster
		cluster.set("a")
		ended, broken := make(chan struct{}, 1), make(chan struct{}, 1)
		var opened, elections atomic.Int32
		d := NewDeputy(DeputyOptions{
			Incarnation: "b", ReadCluster: cluster.get, Logger: slog.New(slog.DiscardHandler),
			OnSessionEnd: func(seen leaderstore.SessionEnd) {
				elections.Add(1)
				if seen.Incarnation != "a" || seen.At.IsZero() {
					t.Errorf("saw %+v", seen)
				}
			},
			OpenWatch: func(context.Context) (Watch, error) {
				opened.Add(1)
				return fakeWatch{ended: ended, broken: broken, opened: &opened}, nil
			},
		})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- d.Run(ctx) }()

		synctest.Wait()
		broken <- struct{}{} // the deputy opens a lost connection again
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if opened.Load() != 1 || elections.Load() != 0 {
			t.Fatalf("%d watches open, ElectNow was called %d times", opened.Load(), elections.Load())
		}
		ended <- struct{}{}
		synctest.Wait()
		if elections.Load() != 1 {
			t.Fatalf("ElectNow was called %d times", elections.Load())
		}
		cluster.set() // no other node leads, so there is nothing to watch
		d.Refresh()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if opened.Load() != 0 {
			t.Fatalf("%d watches open without a leader", opened.Load())
		}
		stop()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}

// A server that does not answer keeps no deputy from its next check, and a slow answer counts.
func TestDeputyReadsClusterAgainAfterSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var cluster fakeCluster
		cluster.set("a")
		var reads, opened atomic.Int32
		d := countingDeputy(func(ctx context.Context) (Cluster, error) {
			answer := time.After(8 * time.Second)
			if reads.Add(1) == 1 {
				answer = nil
			}
			select {
			case <-answer:
				return cluster.get(ctx)
			case <-ctx.Done():
				return Cluster{}, ctx.Err()
			}
		}, &opened)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- d.Run(ctx) }()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if reads.Load() != 2 || opened.Load() != 1 {
			t.Errorf("%d reads, %d sessions watch; want 2 and 1", reads.Load(), opened.Load())
		}
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}
