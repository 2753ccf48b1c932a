package crons

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// slowStore is a database whose transactions take some time per cron and for the round
// trips.
type slowStore struct {
	fakeStore

	perCron, roundTrips time.Duration
	unresponsive        bool // Fire does not return before its context ends
	timeLimits          []time.Duration
}

func (d *slowStore) Fire(ctx context.Context, names []string, at time.Time) (fireResult, error) {
	deadline, _ := ctx.Deadline()
	d.timeLimits = append(d.timeLimits, time.Until(deadline))
	if d.unresponsive {
		<-ctx.Done()
		return fireResult{}, ctx.Err()
	}
	took := d.roundTrips + time.Duration(len(names))*d.perCron
	time.Sleep(took)
	done, err := d.fakeStore.Fire(ctx, names, at)
	done.Prepared, done.Overhead = took, d.roundTrips
	return done, err
}

func newSlowStore(crons int, perCron, trips time.Duration) *slowStore {
	d := &slowStore{fakeStore: fakeStore{next: map[string]time.Time{}, interval: 10 * time.Minute}, perCron: perCron, roundTrips: trips}
	for i := range crons {
		d.next[fmt.Sprint(i)] = time.Now()
	}
	return d
}

func TestSlowTransactionsTakeFewerCrons(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newSlowStore(3000, 20*time.Millisecond, 0)
		_ = runFor(t, d, nil, 2*time.Minute)
		total := 0
		for i, n := range d.sizes {
			if took := time.Duration(n) * d.perCron; i > 1 && took > batchTarget {
				t.Errorf("transaction %d takes %d crons, %s", i, n, took)
			}
			total += n
		}
		if total != 3000 {
			t.Errorf("%d crons were fired", total)
		}
		d.perCron = 0
		fast := newFireLoop(d, newTermCache(), newMeter(metrics.New("test")), slog.New(slog.DiscardHandler))
		fast.batchSize.Failed()
		for range 5 {
			fast.batchSize.Done(fast.batchSize.Next(), 0, 0)
		}
		if fast.batchSize.Reduced() {
			t.Error("transactions stay small on a database that is fast again")
		}
	})
}

// Each failure halves the batch, and the crons that fit still fire.
func TestFailedTransactionHalvesBatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newSlowStore(2000, 0, 0)
		for range 5 {
			d.fail = append(d.fail, errors.New("too slow"))
		}
		_ = runFor(t, d, nil, time.Minute)
		if len(d.sizes) == 0 || d.sizes[0] != maxBatch/32 {
			t.Fatalf("after five failures %d crons are taken, want %d: %v", d.sizes[0], maxBatch/32, d.sizes)
		}
		if slices.Max(d.sizes) < minBatch {
			t.Errorf("the batches do not grow again: %v", d.sizes)
		}
	})
}

// A transaction without an answer times out, and the next one gets more time. The leader
// keeps its role while the database answers at all: it is slow for every node.
func TestSlowDatabaseKeepsRole(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newSlowStore(10, 0, 0)
		d.unresponsive = true
		if err := runFor(t, d, nil, 10*time.Minute); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the leader gave its role up: %v", err)
		}
		if want := []time.Duration{fireTimeout, 2 * fireTimeout, 4 * fireTimeout, maxFireTimeout}; !slices.Equal(d.timeLimits[:4], want) {
			t.Errorf("bounds %v, want %v", d.timeLimits, want)
		}
	})
}

// A leader whose database has answered nothing for longer than silenceLimit gives up its
// role, because its renewals still succeed: only this node's pool is cut off.
func TestCutOffPoolGivesRoleUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, hangs := range []bool{false, true} {
			d := newSlowStore(10, 0, 0)
			d.unresponsive = true
			began := time.Now()
			err := runFor(t, cutOffStore{d, hangs}, nil, 5*time.Minute)
			if took := time.Since(began); err == nil || !strings.Contains(err.Error(), "answered nothing") || took > 3*silenceLimit {
				t.Errorf("hangs %v: after %s: %v", hangs, took, err)
			}
		}
	})
}

// cutOffStore is a database that cannot be reached. Reads fail or hang.
type cutOffStore struct {
	*slowStore

	hangs bool
}

func (d cutOffStore) Now(ctx context.Context) (time.Time, error) {
	if d.hangs {
		<-ctx.Done()
		return time.Time{}, ctx.Err()
	}
	return time.Time{}, errors.New("cannot be reached")
}

func (d cutOffStore) Upcoming(ctx context.Context, _ string, _ int) (cronstore.UpcomingPage, error) {
	_, err := d.Now(ctx)
	return cronstore.UpcomingPage{}, err
}

// The time limit of a transaction is bounded, and is reset after an answer.
func TestTransactionTimeoutIsBoundedAndReset(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newSlowStore(1, 0, 0)
		d.unresponsive = true
		loop := newFireLoop(d, newTermCache(), newMeter(metrics.New("test")), slog.New(slog.DiscardHandler))
		for range 5 {
			_, _ = loop.fireNames(t.Context(), []string{"0"}, time.Time{})
		}
		if loop.timeout != maxFireTimeout {
			t.Errorf("after five timeouts the next may take %s, want %s", loop.timeout, maxFireTimeout)
		}
		d.unresponsive = false
		if _, err := loop.fireNames(t.Context(), []string{"0"}, time.Time{}); err != nil || loop.timeout != fireTimeout {
			t.Errorf("after an answer (%v) the next may take %s, want %s", err, loop.timeout, fireTimeout)
		}
	})
}

// If round trips take all of the time, no batch is prepared ahead, and batches are not
// split.
func TestSlowRoundTripsSuspendPreparing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newSlowStore(100, 0, 2*time.Second)
		d.interval = 5 * time.Second
		_ = runFor(t, d, nil, time.Minute)
		if len(d.leadTimes) != 0 {
			t.Errorf("%d batches were prepared ahead", len(d.leadTimes))
		}
		for i, n := range d.sizes {
			if n != 100 {
				t.Errorf("transaction %d takes %d crons of 100", i, n)
			}
		}
		d.roundTrips = 0
		_ = runFor(t, d, nil, 20*time.Second)
		if len(d.leadTimes) == 0 {
			t.Error("nothing is prepared ahead on a fast database")
		}
	})
}

// A transaction that has begun may end shortly after its term, and not later.
func TestTransactionMayOutlastTermBriefly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		extended, cancel := withGracePeriod(ctx, time.Second)
		defer cancel()
		end()
		time.Sleep(time.Second - time.Millisecond)
		if extended.Err() != nil {
			t.Error("the transaction ended with its term")
		}
		time.Sleep(2 * time.Millisecond)
		if extended.Err() == nil {
			t.Error("the transaction outlives the grace period")
		}
		extended, cancel = withGracePeriod(t.Context(), time.Second)
		cancel()
		if extended.Err() == nil {
			t.Error("the context outlives its cancel function")
		}
	})
}

// The backlog of many crons is settled in several transactions. Every tick is recorded
// exactly once for any size of the slices.
func TestBacklogOfManyCronsIsSettledInSlices(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	specs := map[string]cronstore.Spec{}
	for _, name := range []string{"a", "b", "c", "d"} {
		specs[name] = everySecond("allow")
	}
	apply(t, pool, "h1", specs)
	rewind(t, pool, 2*time.Hour)
	firer := newFirer(t, pool, newInserter(t, pool))
	l := newLedger(firer.options, makeLeader(t, pool, "n1"), newTermCache(), firer.meter, firer.options.Logger)
	l.tickLimit = postgres.NewBatchSize(1500, batchTarget)
	transactions := 0
	for names := []string{"a", "b", "c", "d"}; len(names) > 0; transactions++ {
		done, err := l.Fire(t.Context(), names, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		names = nil
		for name, at := range done.Next {
			if at.Before(done.Now) {
				names = append(names, name)
			}
		}
		if transactions > 50 {
			t.Fatal("the backlog is never settled")
		}
	}
	if transactions < 16 {
		t.Errorf("28,800 ticks in %d transactions of 1,500", transactions)
	}
	for name := range specs {
		if wrong := count(t, pool, holesSQL, name); wrong != 0 {
			t.Errorf("cron %s has %d ticks that are not recorded exactly once", name, wrong)
		}
	}
	if wrong := count(t, pool, mismatchSQL); wrong != 0 {
		t.Errorf("%d wrong rows", wrong)
	}
}

// slowPages is a database that takes some time to read each cron.
type slowPages struct {
	fakeStore

	perCron  time.Duration
	failures int // number of pages that fail first
	pages    []int
	firedAt  []time.Time
}

func (d *slowPages) Upcoming(ctx context.Context, after string, most int) (cronstore.UpcomingPage, error) {
	if d.failures > 0 {
		d.failures--
		return cronstore.UpcomingPage{}, errors.New("too slow")
	}
	page, err := d.fakeStore.Upcoming(ctx, after, most)
	took := time.Duration(page.Read) * d.perCron
	select {
	case <-time.After(took):
	case <-ctx.Done():
		return cronstore.UpcomingPage{}, ctx.Err()
	}
	d.pages = append(d.pages, page.Read)
	return page, err
}

func (d *slowPages) Fire(ctx context.Context, names []string, at time.Time) (fireResult, error) {
	d.firedAt = append(d.firedAt, time.Now())
	return d.fakeStore.Fire(ctx, names, at)
}

// A term fires loaded crons while it loads the others. The page size depends on the speed
// of the database, and loading continues after a failed page. Changed crons do not
// restart a pass before it is complete.
func TestCronsFireWhileOthersLoad(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &slowPages{fakeStore: fakeStore{next: map[string]time.Time{}, interval: 10 * time.Minute}, perCron: 10 * time.Millisecond, failures: 3}
		for i := range 10_000 {
			d.next[fmt.Sprintf("%05d", i)] = time.Now()
		}
		began, changes := time.Now(), make(chan struct{}, 1)
		time.AfterFunc(30*time.Second, func() { changes <- struct{}{} })
		_ = runFor(t, d, changes, 5*time.Minute)
		loaded := time.Duration(10_000) * d.perCron
		if len(d.firedAt) == 0 || d.firedAt[0].Sub(began) > loaded/3 {
			t.Errorf("the first ticks were fired at %v, loading takes %s", d.firedAt[:min(len(d.firedAt), 1)], loaded)
		}
		if last := d.pages[len(d.pages)-2]; time.Duration(last)*d.perCron > batchTarget {
			t.Errorf("a page of %d crons takes longer than %s", last, batchTarget)
		}
		seen, read := map[string]int{}, 0
		for _, line := range d.log {
			seen[strings.Fields(line)[0]]++
		}
		for _, n := range d.pages {
			read += n
		}
		if len(seen) != 10_000 || read != 20_000 {
			t.Errorf("%d crons were fired and %d rows read, want 10000 and each row twice", len(seen), read)
		}
	})
}
