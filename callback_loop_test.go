package forge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/roles"
)

// A slow callback delays nothing. The callbacks after it are called in order, the last ones
// after the end of the election.
func TestSlowCallbackDelaysNothingAndKeepsOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls []string
		release := make(chan struct{})
		loop := newCallbackLoop(Callbacks{
			Elected: func(_ context.Context, role string, term int64) {
				<-release
				calls = append(calls, fmt.Sprintf("%s elected %d", role, term))
			},
			Resigned: func(ctx context.Context, role string, term int64, reason string) {
				if ctx.Err() != nil {
					reason += " too late"
				}
				calls = append(calls, fmt.Sprintf("%s ended %d %s", role, term, reason))
			},
		}, "me", time.Second, nil)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- loop.Run(ctx) }()
		began := time.Now()
		var want []string
		for term := range int64(3) {
			loop.addChange(roles.TermChange{Role: "billing", Term: term, Leads: true})
			loop.addChange(roles.TermChange{Role: "billing", Term: term, Reason: "resigned"})
			want = append(want, fmt.Sprintf("billing elected %d", term), fmt.Sprintf("billing ended %d resigned", term))
			synctest.Wait()
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("delayed for %v", took)
		}
		close(release)
		synctest.Wait()
		stop()
		loop.addChange(roles.TermChange{Role: "billing", Term: 9, Reason: "resigned"})
		want = append(want, "billing ended 9 resigned")
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(calls, want) {
			t.Errorf("calls %q; want %q", calls, want)
		}
	})
}

// LeaderChanged is called even without a notification, and only for changes.
func TestLeaderChangedIsCalledOnlyForChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls []string
		var mu sync.Mutex // guards the variables below
		var row leaderstore.Leader
		var failure error
		reads := 0
		loop := newCallbackLoop(Callbacks{LeaderChanged: func(_ context.Context, l Leader) {
			calls = append(calls, fmt.Sprintf("%s %q %d", l.Role, l.NodeID, l.Term))
		}}, "me", time.Second, func(context.Context) ([]leaderstore.Leader, error) {
			mu.Lock()
			defer mu.Unlock()
			reads++
			return []leaderstore.Leader{row}, failure
		})
		lead := func(node string, term int64, lease time.Duration) {
			row = leaderstore.Leader{Role: "billing", NodeID: node, Incarnation: node, Term: term, Now: time.Now(), LeaseUntil: time.Now().Add(lease)}
		}
		row.Role = "billing"
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- loop.Run(ctx) }()
		synctest.Wait()
		for _, change := range []func(){
			func() {},
			func() { lead("a", 1, time.Hour) },
			func() { failure = errors.New("connection broken"); lead("b", 2, time.Hour) },
			func() { failure = nil },
			func() { lead("b", 3, time.Hour) },
			func() { lead("b", 3, -time.Second) },
			func() { lead("b", 3, -time.Minute) },
			func() { lead("a", 4, time.Hour) },
		} {
			mu.Lock()
			change()
			mu.Unlock()
			time.Sleep(time.Second)
			synctest.Wait()
		}
		stop()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		want := []string{`billing "a" 1`, `billing "b" 2`, `billing "b" 3`, `billing "" 3`, `billing "a" 4`}
		if !slices.Equal(calls, want) || reads < 9 {
			t.Errorf("calls %q after %d reads; want %q", calls, reads, want)
		}
	})
}

// The database may contain a term before its node has recorded it. Elected is called before
// LeaderChanged even then.
func TestElectedIsCalledBeforeLeaderChanged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls []string
		loop := newCallbackLoop(Callbacks{
			Elected: func(_ context.Context, _ string, term int64) { calls = append(calls, fmt.Sprintf("elected %d", term)) },
			LeaderChanged: func(_ context.Context, l Leader) {
				calls = append(calls, fmt.Sprintf("%s leads %d", l.NodeID, l.Term))
			},
		}, "me", time.Second, func(context.Context) ([]leaderstore.Leader, error) {
			now := time.Now()
			return []leaderstore.Leader{{Role: "billing", NodeID: "a", Incarnation: "me", Term: 7, Now: now, LeaseUntil: now.Add(time.Hour)}}, nil
		})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- loop.Run(ctx) }()
		time.Sleep(5 * time.Second)
		loop.addChange(roles.TermChange{Role: "billing", Term: 7, Leads: true})
		synctest.Wait()
		stop()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if want := []string{"elected 7", "a leads 7"}; !slices.Equal(calls, want) {
			t.Errorf("calls %q; want %q", calls, want)
		}
	})
}

// A server that does not answer delays no callback for this node's own terms: the program
// must stop its work.
func TestSilentServerDelaysNoCallbackOfOwnTerms(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls []string
		reads := 0
		loop := newCallbackLoop(Callbacks{
			Elected: func(_ context.Context, _ string, term int64) { calls = append(calls, fmt.Sprintf("elected %d", term)) },
			Resigned: func(_ context.Context, _ string, term int64, _ string) {
				calls = append(calls, fmt.Sprintf("ended %d", term))
			},
			LeaderChanged: func(_ context.Context, l Leader) { calls = append(calls, fmt.Sprintf("%s leads %d", l.NodeID, l.Term)) },
		}, "me", time.Second, func(ctx context.Context) ([]leaderstore.Leader, error) {
			reads++
			<-ctx.Done()
			return nil, ctx.Err()
		})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- loop.Run(ctx) }()
		var want []string
		for term := range int64(3) {
			loop.addChange(roles.TermChange{Role: "billing", Term: term, Leads: true})
			synctest.Wait()
			loop.addChange(roles.TermChange{Role: "billing", Term: term, Reason: roles.Lost})
			synctest.Wait()
			want = append(want, fmt.Sprintf("elected %d", term), fmt.Sprintf("ended %d", term))
			if !slices.Equal(calls, want) { // no time has passed
				t.Errorf("calls %q after a change; want %q", calls, want)
			}
			time.Sleep(2 * time.Second)
		}
		stop()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if reads < 2 {
			t.Errorf("%d reads", reads)
		}
	})
}

// The leaders are read again if the server never answered, and a slow answer counts.
func TestLeadersAreReadAgainAfterSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls []string
		silent := true
		began := time.Now()
		loop := newCallbackLoop(Callbacks{LeaderChanged: func(_ context.Context, l Leader) {
			calls = append(calls, fmt.Sprintf("%s leads %d after %s", l.NodeID, l.Term, time.Since(began).Truncate(time.Second)))
		}}, "me", time.Second, func(ctx context.Context) ([]leaderstore.Leader, error) {
			answer := time.After(4 * time.Second)
			if silent {
				silent, answer = false, nil
			}
			select {
			case <-answer:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			now := time.Now()
			return []leaderstore.Leader{{Role: "billing", NodeID: "b", Incarnation: "b", Term: 7, Now: now, LeaseUntil: now.Add(time.Hour)}}, nil
		})
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if err := loop.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if want := []string{"b leads 7 after 9s"}; !slices.Equal(calls, want) {
			t.Errorf("calls %q; want %q", calls, want)
		}
	})
}
