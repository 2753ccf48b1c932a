package forge

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/leaderstore"
)

// A program as in the documentation: it checks whether it leads, works with the fence while
// it leads, and steps down.
func TestLeadsRunIfLeaderAndStepDown(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	a := startProgram(t, url, "a", "", time.Minute)
	b := startProgram(t, url, "b", "", time.Minute)
	for _, role := range []string{"billing", "scheduler"} {
		eventually(t, "a leads "+role, func() bool { _, leads := a.node.Leads(role); return leads })
		if term, leads := b.node.Leads(role); leads || term.Number != 0 {
			t.Errorf("b leads %s in %+v", role, term)
		}
		if err := b.node.RunIfLeader(t.Context(), role, nil); !errors.Is(err, ErrNotLeader) {
			t.Errorf("b runs work of %s: %v", role, err)
		}
		if err := b.node.StepDown(t.Context(), role); !errors.Is(err, ErrNotLeader) {
			t.Errorf("b steps down from %s: %v", role, err)
		}
	}
	term, _ := a.node.Leads("billing")
	term.Report() // does nothing for a Term of Leads
	ended := make(chan error, 1)
	began := make(chan Term)
	go func() {
		ended <- a.node.RunIfLeader(t.Context(), "billing", func(ctx context.Context, term Term) error {
			began <- term
			<-ctx.Done()
			return context.Cause(ctx)
		})
	}()
	if running := <-began; running.Number != term.Number || running.NodeID != "a" {
		t.Errorf("works in %+v; want %+v", running, term)
	}
	write(t, pool, term, nil)
	if err := a.node.StepDown(t.Context(), "billing"); err != nil {
		t.Fatal(err)
	}
	if _, leads := a.node.Leads("billing"); leads {
		t.Error("a leads after it has stepped down")
	}
	if err := <-ended; !errors.Is(err, ErrDeposed) {
		t.Errorf("the work ended with %v", err)
	}
	eventually(t, "b leads", func() bool { _, leads := b.node.Leads("billing"); return leads })
	write(t, pool, term, ErrDeposed)
	next, _ := b.node.Leads("billing")
	write(t, pool, next, nil)
	tenures, err := leaderstore.New(pool).History(t.Context(), "billing", 10)
	if err != nil || !slices.ContainsFunc(tenures, func(tenure leaderstore.Tenure) bool {
		return tenure.Term == term.Number && tenure.EndReason == "stepped_down"
	}) {
		t.Errorf("history %+v, %v", tenures, err)
	}
}

func TestUnknownRoleIsRejected(t *testing.T) {
	t.Parallel()
	cfg, err := ParseConfig("test", "[database]\nurl = \"postgres://localhost/x\"\n")
	if err != nil {
		t.Fatal(err)
	}
	node, err := New(cfg, WithRole("billing", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	for what, err := range map[string]error{
		"RunIfLeader": node.RunIfLeader(t.Context(), "biling", nil),
		"StepDown":    node.StepDown(t.Context(), "biling"),
	} {
		if err == nil || errors.Is(err, ErrNotLeader) || !strings.Contains(err.Error(), `"biling"`) || !strings.Contains(err.Error(), "billing") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, leads := node.Leads("biling"); leads {
		t.Error("leads an unknown role")
	}
	if err := node.StepDown(t.Context(), "billing"); !errors.Is(err, ErrNotLeader) {
		t.Errorf("before Run: %v", err)
	}
}

// Without the database, the work ends and Leads is false by the end of the trust window,
// with both strategies. With the lease strategy, the term is over once the lease has
// expired, and the fence rejects its writes.
func TestLeadershipEndsWithinTrustWindowWithoutDatabase(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"advisory", "lease"} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			url := pgtest.URL(t)
			pool, link := pgtest.Connect(t, url), pgtest.Proxy(t, url)
			a := startProgramBy(t, strategy, link.URL(), "a", "", 0)
			eventually(t, "a leads", func() bool { _, leads := a.node.Leads("billing"); return leads })
			var worked Term
			err := a.node.RunIfLeader(t.Context(), "billing", func(ctx context.Context, term Term) error {
				worked = term
				link.Stall()
				<-ctx.Done()
				if _, leads := a.node.Leads("billing"); leads {
					t.Error("leads although the work was told to stop")
				}
				return context.Cause(ctx)
			})
			if !errors.Is(err, ErrDeposed) {
				t.Errorf("the work ended with %v", err)
			}
			b := startProgramBy(t, strategy, url, "b", "", time.Minute)
			eventually(t, "b leads", func() bool { _, leads := b.node.Leads("billing"); return leads })
			write(t, pool, worked, ErrDeposed)
			link.Resume()
		})
	}
}
