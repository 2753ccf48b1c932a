package kubernetes

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/forge-scheduler/forge/internal/kubetest"
	"github.com/forge-scheduler/forge/internal/metrics"
)

const (
	leaseLasts     = time.Second
	longest        = 20 * time.Second // that a test waits
	schedulerLease = "forge-scheduler-leader"
)

// start runs the Candidates of a node.
func start(t *testing.T, server *kubetest.Server, node string) (c *candidates, stop func()) {
	t.Helper()
	client, err := newClient(server.KubeconfigOf(t, node), leaseLasts)
	if err != nil {
		t.Fatal(err)
	}
	c = newCandidates(client, []string{"scheduler"}, options{
		cluster: "forge", identity: node, duration: leaseLasts, interval: leaseLasts / 10,
		metrics: metrics.New("test"), logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.Run(ctx)
	}()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return c, stop
}

func eventually(t *testing.T, what string, happened func() bool) {
	t.Helper()
	for deadline := time.Now().Add(longest); !happened(); time.Sleep(leaseLasts / 50) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", longest, what)
		}
	}
}

func TestOneNodeHoldsALease(t *testing.T) {
	t.Parallel()
	server := kubetest.Start(t)
	a, stopA := start(t, server, "a")
	b, _ := start(t, server, "b")
	of := func(c *candidates) *candidate { return c.byRole["scheduler"] }
	eventually(t, "a holds the Lease", of(a).want)
	for range 20 { // two leases
		if of(a).want(); of(b).want() {
			t.Fatal("b holds the Lease of a")
		}
		time.Sleep(leaseLasts / 10)
	}
	if other := of(b).takenBy(); other != "a" {
		t.Errorf("b sees that %q holds the Lease, want a", other)
	}
	stopA()
	if holder := server.Holder(schedulerLease); holder == "a" {
		t.Error("a has ended and keeps the Lease")
	}
	eventually(t, "b holds the Lease", of(b).want)
}

func TestLeaseGoesToTheHeir(t *testing.T) {
	t.Parallel()
	server := kubetest.Start(t)
	a, _ := start(t, server, "a")
	b, _ := start(t, server, "b")
	c, _ := start(t, server, "c")
	eventually(t, "a holds the Lease", a.byRole["scheduler"].want)
	a.byRole["scheduler"].giveUp("b")
	if a.byRole["scheduler"].isNamed() || a.byRole["scheduler"].want() {
		t.Error("a has given the Lease up, and keeps it")
	}
	eventually(t, "the Lease names b, which then wants it and holds it", func() bool {
		if c.byRole["scheduler"].want() {
			t.Fatal("c holds the Lease, which was for b")
		}
		return b.byRole["scheduler"].isNamed() && b.byRole["scheduler"].want()
	})
}

// A node that is no candidate asks for nothing.
func TestIdleNodeAsksNothing(t *testing.T) {
	t.Parallel()
	server := kubetest.Start(t)
	a, stop := start(t, server, "a")
	time.Sleep(leaseLasts / 2)
	if n := server.Asked(); n != 0 {
		t.Errorf("%d requests", n)
	}
	if a.byRole["scheduler"].isNamed() {
		t.Error("a Lease that is not there names a")
	}
	eventually(t, "a asks for the Lease", func() bool { return server.Asked() > 0 })
	stop()
}

// A node whose terms are not confirmed any more wants nothing, and gives the Lease up.
func TestUnwantedLeaseIsGivenUp(t *testing.T) {
	t.Parallel()
	server := kubetest.Start(t)
	a, _ := start(t, server, "a")
	eventually(t, "a holds the Lease", a.byRole["scheduler"].want)
	eventually(t, "nobody holds the Lease", func() bool { return server.Holder(schedulerLease) == "" })
	eventually(t, "a has the answer", func() bool { return !a.byRole["scheduler"].isNamed() })
}

func TestStolenLease(t *testing.T) {
	t.Parallel()
	server := kubetest.Start(t)
	a, _ := start(t, server, "a")
	eventually(t, "a holds the Lease", a.byRole["scheduler"].want)
	server.Steal(schedulerLease, "somebody", 2*time.Second)
	stolen := time.Now()
	eventually(t, "a sees that the Lease was taken", func() bool {
		a.byRole["scheduler"].want()
		return a.byRole["scheduler"].takenBy() == "somebody"
	})
	eventually(t, "a holds the Lease again", a.byRole["scheduler"].want)
	if after := time.Since(stolen); after < 2*time.Second {
		t.Errorf("a took the Lease after %v, while that of somebody else lasted", after)
	}
}

// An API server that does not answer changes nothing for a leader; nobody new gets the Lease.
func TestServerDoesNotAnswer(t *testing.T) {
	t.Parallel()
	server := kubetest.Start(t)
	a, _ := start(t, server, "a")
	b, _ := start(t, server, "b")
	eventually(t, "a holds the Lease", a.byRole["scheduler"].want)
	server.Cut("a")
	eventually(t, "b sees the last renewal of a", func() bool {
		b.byRole["scheduler"].want()
		return b.byRole["scheduler"].takenBy() == "a"
	})
	time.Sleep(leaseLasts / 4) // b looks again
	for _, broken := range []func(){
		func() { server.Refuse(http.StatusInternalServerError) },
		func() { server.Refuse(0); server.Delay(time.Hour) },
	} {
		broken()
		for began := time.Now(); time.Since(began) < 2*leaseLasts; time.Sleep(leaseLasts / 20) {
			a.byRole["scheduler"].want()
			if b.byRole["scheduler"].want() {
				t.Fatal("b holds the Lease")
			}
			if other := a.byRole["scheduler"].takenBy(); other != "" {
				t.Fatalf("a believes that %s has taken the Lease", other)
			}
		}
	}
	server.Delay(0) // a is the last that gets an answer
	for began := time.Now(); time.Since(began) < leaseLasts/2; time.Sleep(leaseLasts / 20) {
		if a.byRole["scheduler"].want(); b.byRole["scheduler"].want() {
			t.Fatal("b has taken the Lease, which a could not renew")
		}
	}
	server.Cut("")
	eventually(t, "a holds the Lease", a.byRole["scheduler"].want)
}

func TestErrorNamesTheMissingRule(t *testing.T) {
	t.Parallel()
	server := kubetest.Start(t)
	client, err := newClient(server.KubeconfigOf(t, "a"), leaseLasts)
	if err != nil {
		t.Fatal(err)
	}
	if holder, _, err := client.holder(t.Context(), schedulerLease); holder != "" || err != nil {
		t.Errorf("a Lease that is not there: %q, %v", holder, err)
	}
	server.Refuse(http.StatusForbidden)
	_, _, err = client.holder(t.Context(), schedulerLease)
	if err == nil || !strings.Contains(err.Error(), "get, create and update for leases of coordination.k8s.io") {
		t.Errorf("got %v", err)
	}
	if _, err := newClient("", leaseLasts); err == nil || !strings.Contains(err.Error(), "KUBECONFIG") {
		t.Errorf("without an API server: %v", err)
	}
}

func TestLongAnswerIsAnError(t *testing.T) {
	t.Parallel()
	server := kubetest.Start(t)
	client, err := newClient(server.KubeconfigOf(t, "a"), longest)
	if err != nil {
		t.Fatal(err)
	}
	server.Steal(schedulerLease, strings.Repeat("x", 2*maxAnswer), time.Minute)
	if holder, _, err := client.holder(t.Context(), schedulerLease); err == nil || !strings.Contains(err.Error(), "too large") {
		t.Errorf("an answer of %d bytes: %d of them, %v", 2*maxAnswer, len(holder), err)
	}
}

// Two clusters have one name: the one that comes second gets no Lease, even with the same node id.
func TestClusterWithAnotherDatabaseGetsNoLease(t *testing.T) {
	t.Parallel()
	server := kubetest.Start(t)
	of := func(c *candidates) *candidate { return c.byRole["scheduler"] }
	in := func(c *candidates, database string) { c.database.Store(&database) }
	a, stop := start(t, server, "a")
	in(a, "1/5/public")
	eventually(t, "a holds the Lease", of(a).want)
	client, err := newClient(server.KubeconfigOf(t, "a"), leaseLasts)
	if err != nil {
		t.Fatal(err)
	}
	if _, database, err := client.holder(t.Context(), schedulerLease); database != "1/5/public" || err != nil {
		t.Errorf("the Lease names the database %q, %v", database, err)
	}
	others := map[string]*candidates{}
	for _, node := range []string{"a", "b"} {
		others[node], _ = start(t, server, node)
		in(others[node], "2/5/public")
	}
	for range 20 { // two leases
		for node, other := range others {
			if of(other).want() {
				t.Fatalf("%s of another cluster holds the Lease", node)
			}
		}
		if !of(a).want() {
			t.Fatal("a does not hold its Lease any more")
		}
		time.Sleep(leaseLasts / 10)
	}
	for node, other := range others {
		if n := failuresOf(t, other); n == 0 {
			t.Errorf("%s counts %v failures", node, n)
		}
	}
	if n := failuresOf(t, a); n != 0 {
		t.Errorf("a counts %v failures", n)
	}
	stop() // the cluster was moved
	eventually(t, "b holds the Lease", of(others["b"]).want)
}

func failuresOf(t *testing.T, c *candidates) float64 {
	t.Helper()
	var read dto.Metric
	if err := c.opts.metrics.LeaderLeaseErrors.WithLabelValues("scheduler", c.opts.identity).Write(&read); err != nil {
		t.Fatal(err)
	}
	return read.GetCounter().GetValue()
}

func TestFailedRequestsAreCounted(t *testing.T) {
	t.Parallel()
	server := kubetest.Start(t)
	a, _ := start(t, server, "a")
	eventually(t, "a holds the Lease", a.byRole["scheduler"].want)
	if n := failuresOf(t, a); n != 0 {
		t.Errorf("%v failures of a server that answers", n)
	}
	server.Refuse(http.StatusForbidden)
	eventually(t, "failures are counted", func() bool { a.byRole["scheduler"].want(); return failuresOf(t, a) >= 3 })
}

// What a node that ends has sent just before may have been done, or be done later.
func TestEndGivesLeaseUpDespiteItsLastRenewal(t *testing.T) {
	t.Parallel()
	for name, strike := range map[string]func(*testing.T, *kubetest.Server){
		"the renewal is done without an answer": func(t *testing.T, s *kubetest.Server) {
			t.Helper()
			s.HoldWrite()
			eventually(t, "a renewal is done", s.Held)
		},
		"the renewal comes in between": func(_ *testing.T, s *kubetest.Server) { s.OutrunRelease() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := kubetest.Start(t)
			a, stop := start(t, server, "a")
			eventually(t, "a holds the Lease", a.byRole["scheduler"].want)
			strike(t, server)
			stop()
			if holder := server.Holder(schedulerLease); holder != "" {
				t.Errorf("%s has ended and keeps the Lease", holder)
			}
		})
	}
}
