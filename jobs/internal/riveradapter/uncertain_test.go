package riveradapter

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivertype"

	"github.com/forge-scheduler/forge/internal/devcluster"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/internal/wire"
)

// fetch claims the offered jobs and returns the ids of those that River's producer gets.
func fetch(t *testing.T, p *Pilot) ([]int64, error) {
	t.Helper()
	result, err := claim(t.Context(), p)
	if err != nil {
		return nil, err
	}
	return idsOf(result.Jobs), nil
}

func offer(p *Pilot, seq int64, ids ...int64) {
	p.buffer.add(wire.Offer{Term: 1, Seq: seq, Jobs: map[string][]int64{"default": ids}}, time.Now())
}

// throughLink connects the pilot to its database through a link that can be cut.
func throughLink(t *testing.T, p *Pilot, target string) *pgtest.Link {
	t.Helper()
	link := pgtest.Proxy(t, target)
	usePool(p, pgtest.Connect(t, link.URL()))
	p.claimTimeout = 2 * time.Second
	return link
}

// usePool replaces the pool of a pilot.
func usePool(p *Pilot, pool *pgxpool.Pool) {
	p.pool = pool
	p.store = jobstore.NewClient(pool, jobstore.Identity{
		ClientID: p.clientID, NodeID: p.nodeID, Incarnation: p.incarnation, Schema: p.schema,
	})
}

// fetchUntil fetches until a job is returned.
func fetchUntil(t *testing.T, p *Pilot, want int64) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for time.Now().Before(deadline) {
		got, err := fetch(t, p)
		if err == nil && len(got) == 1 && got[0] == want {
			return
		}
		if len(got) != 0 {
			t.Fatalf("got %v, want %d", got, want)
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("job %d was never found: it is running without a worker", want)
}

// A claim that waits for a synchronous replica is not visible to other sessions. If its
// connection is lost, the node must neither lose the job nor run it before the claim
// commits.
func TestClaimWaitingForReplicaIsRecovered(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t)
	replica := server.Replica()
	p := pilotOn(t, server.URL())
	direct := p.pool
	link := throughLink(t, p, server.URL())
	id := insert(t, direct, "available", nil, `{}`)

	replica.Stop(devcluster.StopFast)
	offer(p, 1, id)
	failed := make(chan error, 1)
	go func() {
		_, err := fetch(t, p)
		failed <- err
	}()
	awaitTrue(t, direct, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE '%UPDATE river_job%')`)
	link.Cut()
	if err := <-failed; err == nil {
		t.Fatal("the claim got an answer")
	}
	usePool(p, direct) // the link stays cut, so no cancel request ends the wait
	for range 2 {
		p.buffer.dueNow()
		if got, err := fetch(t, p); err != nil || len(got) != 0 {
			t.Fatalf("got %v before the claim committed (%v)", got, err)
		}
	}
	replica.Start()
	fetchUntil(t, p, id)
	if got, err := fetch(t, p); err != nil || len(got) != 0 {
		t.Errorf("fetched again: %v, %v", got, err)
	}
}

// A result whose wait for a synchronous replica was cancelled is only on the primary. A
// promotion could lose it, so it is not acknowledged until a replica has it.
func TestResultIsAcknowledgedOnlyAfterReplica(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t)
	replica := server.Replica()
	p := pilotOn(t, server.URL())
	id := insert(t, p.pool, "available", nil, `{}`)
	offer(p, 1, id)
	fetchUntil(t, p, id)
	p.buffer.finish("default", id)
	done := many(riverdriver.JobSetStateCompleted(id, time.Now(), nil))

	replica.Stop(devcluster.StopFast)
	for _, waiting := range []string{"UPDATE river_job", "pg_logical_emit_message"} {
		ctx, giveUp := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() {
			_, err := p.JobSetStateIfRunningMany(ctx, nil, done)
			failed <- err
		}()
		awaitOr(t, p.pool, failed, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE '%`+waiting+`%')`)
		giveUp()
		if err := <-failed; err == nil {
			t.Fatal("a result without a replica was acknowledged")
		}
		awaitTrue(t, p.pool, `SELECT bool_and(state = 'completed') FROM river_job`)
	}
	replica.Start()
	jobs, err := p.JobSetStateIfRunningMany(t.Context(), nil, done)
	if err != nil || len(jobs) != 1 || jobs[0].State != rivertype.JobStateCompleted || len(p.buffer.ownIDs()) != 0 {
		t.Errorf("got %v, %v, kept %v", jobs, err, p.buffer.ownIDs())
	}
}

// A job that runs here, or has an unacknowledged result, does not run again if a second
// offer of it is claimed and the reply is lost.
func TestLostReplyDoesNotRunJobTwice(t *testing.T) {
	t.Parallel()
	p := newPilot(t)
	direct := p.pool
	link := throughLink(t, p, p.pool.Config().ConnString())
	id := insert(t, direct, "available", nil, `{}`)
	again := func(seq int64, when string) {
		t.Helper()
		offer(p, seq, id)
		link.StallReplies()
		if got, _ := fetch(t, p); len(got) != 0 {
			t.Errorf("%s: got %v", when, got)
		}
		link.Cut()
		link.Resume()
		for range 3 {
			if got, _ := fetch(t, p); len(got) != 0 {
				t.Errorf("%s: ran again: %v", when, got)
			}
		}
	}
	offer(p, 1, id)
	if got, err := fetch(t, p); err != nil || len(got) != 1 {
		t.Fatalf("got %v, %v", got, err)
	}
	again(2, "while it runs")

	p.buffer.finish("default", id)
	link.Stall()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	done := riverdriver.JobSetStateCompleted(id, time.Now(), nil)
	if _, err := p.JobSetStateIfRunningMany(ctx, nil, many(done)); err == nil {
		t.Fatal("the result was acknowledged")
	}
	again(3, "while its result is not acknowledged")

	jobs, err := p.JobSetStateIfRunningMany(t.Context(), nil, many(done))
	if err != nil || len(jobs) != 1 || jobs[0].State != rivertype.JobStateCompleted || len(p.buffer.ownIDs()) != 0 {
		t.Errorf("got %v, %v, kept %v", jobs, err, p.buffer.ownIDs())
	}
}

// The node finds a claim that the server executes after its look-up.
func TestLateClaimIsFound(t *testing.T) {
	t.Parallel()
	p := newPilot(t)
	id := insert(t, p.pool, "available", nil, `{}`)
	offer(p, 1, id)
	batch := p.buffer.take("default", 10)
	p.settle("default", batch.free, nil, context.DeadlineExceeded)
	if got, err := fetch(t, p); err != nil || len(got) != 0 {
		t.Fatalf("got %v, %v before the claim", got, err)
	}
	if err := p.store.ClaimOffers(t.Context(), []jobstore.Offer{{Queue: "default", IDs: batch.free, Term: batch.term, MaxAttemptedBy: 100}}, func(int, *jobstore.Row) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if !p.buffer.mayBeUncertain() {
		t.Error("no search is due")
	}
	p.search(t.Context())
	fetchUntil(t, p, id)
	p.search(t.Context())
	if got, err := fetch(t, p); err != nil || len(got) != 0 {
		t.Errorf("a running job was found again: %v, %v", got, err)
	}
}

// A claim may be executed long after the node has given up on it, and a server that lost
// its newest commits may have lost a result. Then the database assigns a running job to a
// node that has no record of it.
func TestUnrecordedRunningJobIsFound(t *testing.T) {
	t.Parallel()
	p := newPilot(t)
	p.searchInterval, p.unsureInterval = time.Millisecond, time.Millisecond
	searching, stop := context.WithCancel(t.Context())
	var searches sync.WaitGroup
	searches.Go(func() { p.Search(searching) })
	defer searches.Wait()
	defer stop()
	id := insert(t, p.pool, "running", []string{"node-b-00000000000000bb", clientID}, `{}`)
	insert(t, p.pool, "running", []string{clientID, "node-b-00000000000000bb"}, `{}`)
	fetchUntil(t, p, id)
}

// A late result does not end the next attempt, and a rejected result is not kept.
func TestLateResultDoesNotEndNextAttempt(t *testing.T) {
	t.Parallel()
	p := newPilot(t)
	refused := 0
	p.fenced = func(string) { refused++ }
	id := insert(t, p.pool, "available", nil, `{}`)
	offer(p, 1, id)
	if _, err := fetch(t, p); err != nil {
		t.Fatal(err)
	}
	snoozed := many(riverdriver.JobSetStateSnoozed(id, time.Now().Add(-time.Second), 3, nil))
	completed := many(riverdriver.JobSetStateCompleted(id, time.Now(), nil))
	// The next attempt has the same number and the same client.
	if _, err := p.pool.Exec(t.Context(), `UPDATE river_job SET attempted_at = now() WHERE id = $1`, id); err != nil {
		t.Fatal(err)
	}
	for name, late := range map[string]*riverdriver.JobSetStateIfRunningManyParams{"snoozed": snoozed, "completed": completed} {
		p.buffer.claimed("default", nil, []*rivertype.JobRow{{ID: id, AttemptedAt: &time.Time{}}})
		jobs, err := p.JobSetStateIfRunningMany(t.Context(), nil, late)
		if err != nil || len(jobs) != 0 {
			t.Errorf("%s: got %v, %v", name, jobs, err)
		}
		if left := p.buffer.ownIDs(); len(left) != 0 {
			t.Errorf("%s: kept %v after it was refused", name, left)
		}
	}
	if got := row(t, p.pool, id); got["state"] != "running" || refused != 2 {
		t.Errorf("the next attempt is %v, %d refused", got["state"], refused)
	}
}

func awaitTrue(t *testing.T, pool *pgxpool.Pool, sql string) {
	t.Helper()
	awaitOr(t, pool, nil, sql)
}

// awaitOr waits for a query to return true. It fails if ended receives a value first.
func awaitOr(t *testing.T, pool *pgxpool.Pool, ended <-chan error, sql string) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		select {
		case err := <-ended:
			t.Fatalf("ended with %v before: %s", err, sql)
		default:
		}
		var ok bool
		if err := pool.QueryRow(t.Context(), sql).Scan(&ok); err != nil {
			t.Fatal(err)
		}
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("timed out: %s", sql)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// dueNow makes all uncertain claims due.
func (b *claimBuffer) dueNow() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, jobs := range b.uncertain {
		for i := range jobs {
			jobs[i].due = time.Time{}
		}
	}
}
