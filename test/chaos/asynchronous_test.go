//go:build patroni

package chaos

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/test/chaos/checker"
)

const (
	// replicasBehind is how far the replicas are behind when the primary dies.
	replicasBehind = 2 * time.Second
	// fastEvery is the pause between acknowledged inserts of one connection.
	fastEvery = 50 * time.Millisecond
	fastSQL   = `SELECT id FROM forge_enqueue_many($1::jsonb)`
	fastJobs  = `[{"kind": "acked"}]`
)

// TestPatroniAsynchronous prints what asynchronous replication loses when the primary's machine
// dies while its replicas are behind. It fails only if that is not measured.
//
//nolint:paralleltest // the runs take the whole machine
func TestPatroniAsynchronous(t *testing.T) {
	r := preparePatroni(t, false, strings.NewReplacer(
		"synchronous_mode: true", "synchronous_mode: false", "maximum_lag_on_failover: 1048576", "maximum_lag_on_failover: 1073741824"))
	r.begin(endless, 0)
	ctx, cancel := context.WithCancel(t.Context())
	var helpers sync.WaitGroup
	pool := pgtest.Connect(t, r.url)
	helpers.Go(func() { r.enqueueFast(ctx, pool) })
	r.awaitTicks(3)
	r.awaitDoctorWarns()
	const rounds = 2
	for range rounds {
		r.loseNewest()
		r.recover()
	}
	cancel()
	helpers.Wait()
	r.endCrons()
	r.settle()
	r.stop()
	h := r.history()
	r.reportLost(h, checker.Check(h))
}

// awaitDoctorWarns waits until forge doctor says beforehand what may be lost.
func (r *patroniRun) awaitDoctorWarns() {
	r.Helper()
	r.awaitDoctor("a fail-over may lose the newest commits", func() {})
}

// loseNewest lets the replicas fall behind, and then the primary's machine die: nothing leaves it
// any more, and its replicas hear the rest of the cluster again.
func (r *patroniRun) loseNewest() {
	r.Helper()
	primary := r.patroni.Primary(r.Context())
	if primary == nil {
		r.Fatal("there is no primary")
	}
	for _, m := range r.patroni.Members {
		if m != primary {
			r.check(m.DropReplies(r.Context()))
		}
	}
	time.Sleep(replicasBehind)
	r.check(primary.Drop(r.Context()))
	r.note(killPrimary, "")
	r.check(primary.Kill())
	for _, m := range r.patroni.Members {
		if m != primary {
			r.check(m.Heal(r.Context()))
		}
	}
	if !r.awaitPrimary(primary.Name) {
		r.Fatal("no other server takes writes")
	}
	time.Sleep(afterFailover)
	r.check(primary.Heal(r.Context()))
	r.check(primary.Start(r.Context()))
}

func (r *patroniRun) check(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// enqueueFast adds jobs and remembers the acknowledged ones.
func (r *patroniRun) enqueueFast(ctx context.Context, pool *pgxpool.Pool) {
	for ctx.Err() == nil {
		if id, err := enqueueFast(ctx, pool); err == nil {
			r.mu.Lock()
			r.acked = append(r.acked, id)
			r.mu.Unlock()
		}
		select {
		case <-ctx.Done():
		case <-time.After(fastEvery):
		}
	}
}

func enqueueFast(ctx context.Context, pool *pgxpool.Pool) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	rows, _ := pool.Query(ctx, fastSQL, fastJobs)
	return pgx.CollectExactlyOneRow(rows, pgx.RowTo[int64])
}

// reportLost prints what the checker calls wrong, by kind. An id may have been given twice.
func (r *patroniRun) reportLost(h *checker.History, found []checker.Finding) {
	r.Helper()
	there, lost := map[int64]bool{}, 0
	for _, job := range h.Jobs {
		there[job.ID] = true
	}
	acked := slices.Sorted(slices.Values(h.Acked))
	again := len(acked) - len(slices.Compact(slices.Clone(acked)))
	for _, id := range slices.Compact(acked) {
		if !there[id] {
			lost++
		}
	}
	text := &strings.Builder{}
	fmt.Fprintf(text, "asynchronous replication, %d times a primary that died with replicas %s behind:\n", len(r.events), replicasBehind)
	fmt.Fprintf(text, "%d jobs acknowledged, %d of them not in the database, %d ids acknowledged twice\n", len(h.Acked), lost, again)
	fmt.Fprintf(text, "%d ticks ran more than once\n", ticksRunAgain(h.Lines))
	byKind := map[checker.Kind]int{}
	for _, f := range found {
		byKind[f.Kind]++
	}
	fmt.Fprintf(text, "findings of the checker:\n%s", table(byKind))
	r.Log(text)
	if lost+again == 0 {
		r.Error("nothing was lost: the replicas were not behind")
	}
}
