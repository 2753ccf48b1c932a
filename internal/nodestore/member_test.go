package nodestore

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/forge-scheduler/forge/internal/metrics"

	"github.com/forge-scheduler/forge/internal/pgtest"
)

// fakeRegistry answers from functions and records the heartbeats.
type fakeRegistry struct {
	onRegister  func() error
	onHeartbeat func(beat int) (string, error)
	beats       []time.Time
}

func (f *fakeRegistry) register(context.Context) error { return f.onRegister() }

func (f *fakeRegistry) heartbeat(context.Context, int) (string, error) {
	f.beats = append(f.beats, time.Now())
	return f.onHeartbeat(len(f.beats))
}

func (f *fakeRegistry) setState(context.Context, string) error { return nil }

func newFake(registry registry, onState func(string)) *Member {
	m := NewMember(MemberOptions{Node: Node{NodeID: "a"}, Logger: slog.New(slog.DiscardHandler), OnState: onState})
	m.registry = registry
	return m
}

func TestJoinWaitsForCrashedDuplicate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		m := newFake(&fakeRegistry{onRegister: func() error {
			if tries++; tries < 5 {
				return &DuplicateIDError{NodeID: "a", PID: 7}
			}
			return nil
		}}, nil)
		if err := m.Join(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestJoinRejectsLiveDuplicate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		m := newFake(&fakeRegistry{onRegister: func() error {
			return &DuplicateIDError{NodeID: "a", PID: 7, Hostname: "there"}
		}}, nil)
		err := m.Join(t.Context())
		if err == nil {
			t.Fatal("joined beside a live twin")
		}
		for _, want := range []string{"process 7", "there", "node.id", "stop that process"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("error %q does not name %q", err, want)
			}
		}
		if waited := time.Since(start); waited < 5*time.Second || waited > 6*time.Second {
			t.Errorf("waited %v", waited)
		}
	})
}

func TestRunStopsWhenFenced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fake := &fakeRegistry{onHeartbeat: func(beat int) (string, error) {
			if beat == 3 {
				return "", ErrFenced
			}
			return Active, nil
		}}
		if err := newFake(fake, nil).Run(t.Context()); !errors.Is(err, ErrFenced) {
			t.Errorf("Run() = %v", err)
		}
	})
}

func TestHeartbeatsAreCountedByResult(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newFake(&fakeRegistry{onHeartbeat: func(beat int) (string, error) {
			return Active, []error{nil, nil, errors.New("no answer"), ErrFenced}[beat-1]
		}}, nil)
		m.options.Metrics = metrics.New("test")
		if err := m.Run(t.Context()); !errors.Is(err, ErrFenced) {
			t.Fatal(err)
		}
		for result, want := range map[string]float64{"success": 2, "failure": 2} {
			if got := testutil.ToFloat64(m.options.Metrics.NodeHeartbeats.WithLabelValues("a", result)); got != want {
				t.Errorf("%v heartbeats: %s; want %v", got, result, want)
			}
		}
	})
}

func TestRunKeepsIntervalDuringOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		fake := &fakeRegistry{onHeartbeat: func(beat int) (string, error) {
			switch {
			case beat == 20:
				cancel()
			case beat >= 5 && beat < 10:
				return "", errors.New("no database")
			}
			return Active, nil
		}}
		if err := newFake(fake, nil).Run(ctx); err != nil {
			t.Fatalf("Run() = %v", err)
		}
		for i := 1; i < len(fake.beats); i++ {
			most := time.Second
			if i >= 5 && i < 10 {
				most /= 4
			}
			if gap := fake.beats[i].Sub(fake.beats[i-1]); gap > most || gap < most*8/10 {
				t.Errorf("gap before beat %d is %v, want at most %v", i+1, gap, most)
			}
		}
	})
}

func TestRunDuringHeartbeatsWhileWorkRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fake := &fakeRegistry{onHeartbeat: func(beat int) (string, error) {
			if beat == 9 {
				return "", ErrFenced
			}
			return Active, nil
		}}
		m, broken := newFake(fake, nil), errors.New("broken")
		work := func(context.Context) error {
			time.Sleep(5500 * time.Millisecond)
			return broken
		}
		if err := m.RunDuring(t.Context(), work); !errors.Is(err, broken) {
			t.Errorf("Attend() = %v", err)
		}
		if beats := len(fake.beats); beats < 6 || beats > 7 {
			t.Errorf("%d beats", beats)
		}
		time.Sleep(time.Minute)
		if beats := len(fake.beats); beats > 7 {
			t.Errorf("%d beats when the work was over", beats)
		}
		if err := m.RunDuring(t.Context(), work); !errors.Is(err, broken) || !errors.Is(err, ErrFenced) {
			t.Errorf("Attend() of a node that was given up = %v", err)
		}
	})
}

// A node that was drained during one Run and undrained before the next is notified.
func TestOnStateIsCalledWithFirstState(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		state := Draining
		var states string
		m := newFake(&fakeRegistry{onHeartbeat: func(int) (string, error) { return state, nil }}, func(s string) { states = s })
		for _, state = range []string{Draining, Active} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			if err := m.Run(ctx); err != nil || states != state {
				t.Errorf("told %q, %v; want %q", states, err, state)
			}
			cancel()
		}
	})
}

func TestOnStateIsCalledWhenRowStateChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var states []string
		fake := &fakeRegistry{onHeartbeat: func(beat int) (string, error) {
			if beat == 6 {
				cancel()
			}
			if beat == 3 || beat == 4 {
				return Draining, nil
			}
			return Active, nil
		}}
		if err := newFake(fake, func(state string) { states = append(states, state) }).Run(ctx); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(states, " "); got != "active draining active" {
			t.Errorf("states told: %q", got)
		}
	})
}

func TestMemberJoinsHeartbeatsAndLeaves(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	m := NewMember(MemberOptions{
		Pool: pool, Logger: slog.New(slog.DiscardHandler), Metrics: metrics.New("test"),
		Node:    Node{NodeID: "a", Incarnation: "00000000000000aa", Slots: 5},
		Policy:  Policy{HeartbeatInterval: 50 * time.Millisecond, DeadThreshold: 2 * time.Second},
		Running: func() int { return 4 },
	})
	if err := m.Join(t.Context()); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- m.Run(t.Context()) }()
	waitForRunning(t, pool, 4)
	if err := m.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		_, err := New(tx).Fence(t.Context(), "00000000000000aa")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		if !errors.Is(err, ErrFenced) {
			t.Errorf("Run() after the fence = %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("Run() did not notice the fence")
	}
	if err := m.Leave(t.Context()); !errors.Is(err, ErrFenced) {
		t.Errorf("Leave() after the fence = %v", err)
	}
}

func waitForRunning(t *testing.T, pool *pgxpool.Pool, want int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		node, err := New(pool).Get(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if node.Running == want {
			return
		}
	}
	t.Fatalf("no heartbeat with %d running jobs", want)
}

// slowRegistry answers only some heartbeats.
type slowRegistry struct {
	fakeRegistry

	bounds  []time.Duration
	answers int   // the heartbeat that is answered
	cause   error // of the others, beside their timeout
}

func (s *slowRegistry) heartbeat(ctx context.Context, _ int) (string, error) {
	deadline, _ := ctx.Deadline()
	s.bounds = append(s.bounds, time.Until(deadline))
	if len(s.bounds) == s.answers {
		return Active, nil
	}
	<-ctx.Done()
	return "", errors.Join(ctx.Err(), s.cause)
}

// A heartbeat that timed out gets a longer timeout: on a slow database, a retry on
// another connection would take longer.
func TestSlowHeartbeatRaisesTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		slow := &slowRegistry{answers: 6}
		if err := newFake(slow, nil).Run(ctx); err != nil {
			t.Fatal(err)
		}
		at := Policy{}.WithDefaults().DeadThreshold / 2
		want := []time.Duration{at, 2 * at, 4 * at, 8 * at, 8 * at, 8 * at, at, 2 * at}
		if len(slow.bounds) < len(want) || !slices.Equal(slow.bounds[:len(want)], want) {
			t.Errorf("bounds %v, want %v", slow.bounds, want)
		}
	})
}

// A heartbeat that got no connection keeps the timeout: the wait says nothing about how fast the
// database is, and the next heartbeat may get a connection to another server.
func TestHeartbeatWithoutConnectionKeepsTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		slow := &slowRegistry{cause: errNoConnection}
		if err := newFake(slow, nil).Run(ctx); err != nil {
			t.Fatal(err)
		}
		want := Policy{}.WithDefaults().DeadThreshold / 2
		if len(slow.bounds) < 10 || slices.Max(slow.bounds[:10]) != want || slices.Min(slow.bounds[:10]) != want {
			t.Errorf("bounds %v, want 10 times %v", slow.bounds, want)
		}
	})
}

// The error of a heartbeat says whether it had a connection, and the wait for one does not take
// all the time that a statement may take.
func TestHeartbeatErrorNamesMissingConnection(t *testing.T) {
	t.Parallel()
	link := pgtest.Proxy(t, pgtest.URL(t))
	pool := pgtest.Connect(t, link.URL())
	m := NewMember(MemberOptions{
		Pool: pool, Logger: slog.New(slog.DiscardHandler),
		Node:   Node{NodeID: "a", Incarnation: "00000000000000aa"},
		Policy: Policy{HeartbeatInterval: 50 * time.Millisecond, DeadThreshold: time.Second},
	})
	if err := m.Join(t.Context()); err != nil {
		t.Fatal(err)
	}
	link.Stall()
	defer link.Resume() // before the pool is closed
	m.beatTimeout = time.Minute
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := m.beat(ctx); err == nil || errors.Is(err, errNoConnection) {
		t.Errorf("a heartbeat whose statement was not answered: %v", err)
	}
	began := time.Now()
	if _, err := m.beat(t.Context()); !errors.Is(err, errNoConnection) {
		t.Errorf("a heartbeat that got no connection: %v", err)
	}
	if took := time.Since(began); took > m.beatTimeout/2 {
		t.Errorf("it waited %s for a connection", took)
	}
}
