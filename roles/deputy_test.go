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

func TestEveryLeaderHasItsDeputies(t *testing.T) {
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

// A server that restarts does not answer just when everything has changed, and
// nobody tells of that again.
func TestDeputyLooksAgainSoonWhenTheDatabaseDidNotAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var cluster fakeCluster
		cluster.fail(errors.New("the database system is starting up"))
		var opened atomic.Int32
		d := NewDeputy(DeputyOptions{
			Incarnation: "b", Cluster: cluster.get, Logger: slog.New(slog.DiscardHandler),
			Hurry: func(leaderstore.End) {},
			Open: func(context.Context) (Watch, error) {
				opened.Add(1)
				return fakeWatch{opened: &opened}, nil
			},
		})
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

// A session that has ended ends every later wait at once. Only the first of them says
// when it ended.
func TestDeputyReportsTheEndOfASessionOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var cluster fakeCluster
		cluster.set("a")
		ended := make(chan struct{})
		var opened atomic.Int32
		var seen []leaderstore.End
		d := NewDeputy(DeputyOptions{
			Incarnation: "b", Cluster: cluster.get, Logger: slog.New(slog.DiscardHandler),
			Hurry: func(end leaderstore.End) { seen = append(seen, end) },
			Open: func(context.Context) (Watch, error) {
				opened.Add(1)
				return fakeWatch{ended: ended, opened: &opened}, nil
			},
		})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- d.Run(ctx) }()
		time.Sleep(2 * time.Second) // a wait has found it alive
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
			if again != (leaderstore.End{}) {
				t.Errorf("an end that nobody saw is dated: %+v", again)
			}
		}
	})
}

func TestDeputyHurriesWhenTheLeaderEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var cluster fakeCluster
		cluster.set("a")
		ended, broken := make(chan struct{}, 1), make(chan struct{}, 1)
		var opened, hurries atomic.Int32
		d := NewDeputy(DeputyOptions{
			Incarnation: "b", Cluster: cluster.get, Logger: slog.New(slog.DiscardHandler),
			Hurry: func(seen leaderstore.End) {
				hurries.Add(1)
				if seen.Incarnation != "a" || seen.At.IsZero() {
					t.Errorf("saw %+v", seen)
				}
			},
			Open: func(context.Context) (Watch, error) {
				opened.Add(1)
				return fakeWatch{ended: ended, broken: broken, opened: &opened}, nil
			},
		})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- d.Run(ctx) }()

		synctest.Wait()
		broken <- struct{}{} // a lost connection is opened again
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if opened.Load() != 1 || hurries.Load() != 0 {
			t.Fatalf("%d watches open, hurried %d times", opened.Load(), hurries.Load())
		}
		ended <- struct{}{}
		synctest.Wait()
		if hurries.Load() != 1 {
			t.Fatalf("hurried %d times", hurries.Load())
		}
		cluster.set() // nobody else leads: nothing to watch
		d.Look()
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
