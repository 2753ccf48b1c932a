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

// A callback that takes its time holds nobody up, and those after it still come,
// each in its turn, the last ones after the end of the election.
func TestCallbacksHoldNobodyUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var told []string
		release := make(chan struct{})
		h := newHerald(Callbacks{
			Elected: func(_ context.Context, role string, term int64) {
				<-release
				told = append(told, fmt.Sprintf("%s elected %d", role, term))
			},
			Resigned: func(ctx context.Context, role string, term int64, reason string) {
				if ctx.Err() != nil {
					reason += " too late"
				}
				told = append(told, fmt.Sprintf("%s ended %d %s", role, term, reason))
			},
		}, "me", time.Second, nil)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- h.Run(ctx) }()
		began := time.Now()
		var want []string
		for term := range int64(3) {
			h.term(roles.TermChange{Role: "billing", Term: term, Leads: true})
			h.term(roles.TermChange{Role: "billing", Term: term, Reason: "resigned"})
			want = append(want, fmt.Sprintf("billing elected %d", term), fmt.Sprintf("billing ended %d resigned", term))
			synctest.Wait()
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("held up for %v", took)
		}
		close(release)
		synctest.Wait()
		stop()
		h.term(roles.TermChange{Role: "billing", Term: 9, Reason: "resigned"})
		want = append(want, "billing ended 9 resigned")
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(told, want) {
			t.Errorf("told %q; want %q", told, want)
		}
	})
}

// Changes of the leader are told also when no notification came, and nobody is
// told of what did not change.
func TestLeaderChangedTellsChangesOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var told []string
		var mu sync.Mutex // guards what follows
		var row leaderstore.Leader
		var failure error
		reads := 0
		h := newHerald(Callbacks{LeaderChanged: func(_ context.Context, l Leader) {
			told = append(told, fmt.Sprintf("%s %q %d", l.Role, l.NodeID, l.Term))
		}}, "me", time.Second, func(context.Context) ([]leaderstore.Leader, error) {
			mu.Lock()
			defer mu.Unlock()
			reads++
			return []leaderstore.Leader{row}, failure
		})
		lead := func(node string, term int64, lasts time.Duration) {
			row = leaderstore.Leader{Role: "billing", NodeID: node, Incarnation: node, Term: term, Now: time.Now(), LeaseUntil: time.Now().Add(lasts)}
		}
		row.Role = "billing"
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- h.Run(ctx) }()
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
		if !slices.Equal(told, want) || reads < 9 {
			t.Errorf("told %q after %d looks; want %q", told, reads, want)
		}
	})
}

// The database knows of a term before the node that leads it has heard so; it is
// told that it was elected first nevertheless.
func TestElectedComesBeforeLeaderChanged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var told []string
		h := newHerald(Callbacks{
			Elected: func(_ context.Context, _ string, term int64) { told = append(told, fmt.Sprintf("elected %d", term)) },
			LeaderChanged: func(_ context.Context, l Leader) {
				told = append(told, fmt.Sprintf("%s leads %d", l.NodeID, l.Term))
			},
		}, "me", time.Second, func(context.Context) ([]leaderstore.Leader, error) {
			now := time.Now()
			return []leaderstore.Leader{{Role: "billing", NodeID: "a", Incarnation: "me", Term: 7, Now: now, LeaseUntil: now.Add(time.Hour)}}, nil
		})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- h.Run(ctx) }()
		time.Sleep(5 * time.Second)
		h.term(roles.TermChange{Role: "billing", Term: 7, Leads: true})
		synctest.Wait()
		stop()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if want := []string{"elected 7", "a leads 7"}; !slices.Equal(told, want) {
			t.Errorf("told %q; want %q", told, want)
		}
	})
}
