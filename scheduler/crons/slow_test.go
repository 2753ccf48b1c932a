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

	"github.com/forge-scheduler/forge/internal/batchsize"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

// slowDesk is a database whose transactions take some time for each cron, and for the
// round trips.
type slowDesk struct {
	fakeDesk

	perCron, trips time.Duration
	deaf           bool // it does not answer at all
	bounds         []time.Duration
}

func (d *slowDesk) Fire(ctx context.Context, names []string, at time.Time) (fired, error) {
	deadline, _ := ctx.Deadline()
	d.bounds = append(d.bounds, time.Until(deadline))
	if d.deaf {
		<-ctx.Done()
		return fired{}, ctx.Err()
	}
	took := d.trips + time.Duration(len(names))*d.perCron
	time.Sleep(took)
	done, err := d.fakeDesk.Fire(ctx, names, at)
	done.Prepared, done.Overhead = took, d.trips
	return done, err
}

func newSlowDesk(crons int, perCron, trips time.Duration) *slowDesk {
	d := &slowDesk{fakeDesk: fakeDesk{next: map[string]time.Time{}, interval: 10 * time.Minute}, perCron: perCron, trips: trips}
	for i := range crons {
		d.next[fmt.Sprint(i)] = time.Now()
	}
	return d
}

func TestTransactionsTakeFewerCronsWhereTheyTakeLonger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newSlowDesk(3000, 20*time.Millisecond, 0)
		_ = runFor(t, d, nil, 2*time.Minute) // ends by its deadline
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
		fast := newTerm(d, newMeter(metrics.New("test")), slog.New(slog.DiscardHandler))
		fast.size.Failed()
		for range 5 {
			fast.size.Done(fast.size.Next(), 0, 0)
		}
		if fast.size.Reduced() {
			t.Error("transactions stay small on a database that is fast again")
		}
	})
}

// With each failure half as many are tried, and what could be done is done.
func TestFailedTransactionsMakeTheNextSmaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newSlowDesk(2000, 0, 0)
		for range 5 {
			d.fail = append(d.fail, errors.New("too slow"))
		}
		_ = runFor(t, d, nil, time.Minute) // ends by its deadline
		if len(d.sizes) == 0 || d.sizes[0] != maxBatch/32 {
			t.Fatalf("after five failures %d crons are taken, want %d: %v", d.sizes[0], maxBatch/32, d.sizes)
		}
		if slices.Max(d.sizes) < minBatch {
			t.Errorf("they do not grow again: %v", d.sizes)
		}
	})
}

// A transaction without an answer is given up in a bounded time, and the next one has
// more: the database may only be slow. A leader that commits nothing at all for longer
// than that gives up its role.
func TestTransactionsWithoutAnAnswerAreGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newSlowDesk(10, 0, 0)
		d.deaf = true
		begun := time.Now()
		err := runFor(t, d, nil, 5*time.Minute)
		if want := []time.Duration{fireTimeout, 2 * fireTimeout, 4 * fireTimeout}; !slices.Equal(d.bounds, want) {
			t.Errorf("bounds %v, want %v", d.bounds, want)
		}
		if took := time.Since(begun); err == nil || !strings.Contains(err.Error(), "nothing was committed") || took > 2*stuckLimit {
			t.Errorf("after %s: %v", took, err)
		}
	})
}

// The time that a transaction may take has an end, and is short again after one that
// was answered.
func TestTimeoutOfTransactionsIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newSlowDesk(1, 0, 0)
		d.deaf = true
		tm := newTerm(d, newMeter(metrics.New("test")), slog.New(slog.DiscardHandler))
		for range 5 {
			_, _ = tm.fireNames(t.Context(), []string{"0"}, time.Time{})
		}
		if tm.timeout != longestFire {
			t.Errorf("after five without an answer the next may take %s, want %s", tm.timeout, longestFire)
		}
		d.deaf = false
		if _, err := tm.fireNames(t.Context(), []string{"0"}, time.Time{}); err != nil || tm.timeout != fireTimeout {
			t.Errorf("after an answer (%v) the next may take %s, want %s", err, tm.timeout, fireTimeout)
		}
	})
}

// Where round trips alone take all of the time, nothing is prepared ahead, and nothing
// is split for their sake.
func TestSlowRoundTripsPrepareNothingAhead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newSlowDesk(100, 0, 2*time.Second)
		d.interval = 5 * time.Second
		_ = runFor(t, d, nil, time.Minute) // ends by its deadline
		if len(d.leads) != 0 {
			t.Errorf("%d crowds were prepared ahead", len(d.leads))
		}
		for i, n := range d.sizes {
			if n != 100 {
				t.Errorf("transaction %d takes %d crons of 100", i, n)
			}
		}
		d.trips = 0
		_ = runFor(t, d, nil, 20*time.Second) // ends by its deadline
		if len(d.leads) == 0 {
			t.Error("nothing is prepared ahead on a fast database")
		}
	})
}

// A transaction that has begun ends shortly after its term, and not later.
func TestTransactionOutlastsItsTermShortly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		lasting, cancel := outlast(ctx, time.Second)
		defer cancel()
		end()
		time.Sleep(time.Second - time.Millisecond)
		if lasting.Err() != nil {
			t.Error("it ended with its term")
		}
		time.Sleep(2 * time.Millisecond)
		if lasting.Err() == nil {
			t.Error("it goes on")
		}
		lasting, cancel = outlast(t.Context(), time.Second)
		cancel()
		if lasting.Err() == nil {
			t.Error("it goes on after it was done with")
		}
	})
}

// Many crons with a backlog are settled some a transaction, each of which commits:
// however small they are, every tick comes to stand in the ledger once.
func TestBacklogOfManyCronsIsSettledInPieces(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	specs := map[string]cronstore.Spec{}
	for _, name := range []string{"a", "b", "c", "d"} {
		specs[name] = everySecond("allow")
	}
	apply(t, pool, "h1", specs)
	rewind(t, pool, 2*time.Hour)
	firer := newFirer(t, pool, newInserter(t, pool))
	l := newLedger(firer.options, "public", mint(t, pool, "n1"), firer.meter, firer.options.Logger)
	l.ticks = batchsize.New(1500, batchTarget)
	pieces := 0
	for names := []string{"a", "b", "c", "d"}; len(names) > 0; pieces++ {
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
		if pieces > 50 {
			t.Fatal("it comes to no end")
		}
	}
	if pieces < 16 {
		t.Errorf("28,800 ticks in %d transactions of 1,500", pieces)
	}
	for name := range specs {
		if wrong := count(t, pool, holesSQL, name); wrong != 0 {
			t.Errorf("cron %s has %d ticks that stand in the ledger not once", name, wrong)
		}
	}
	if wrong := count(t, pool, mismatchSQL); wrong != 0 {
		t.Errorf("%d wrong rows", wrong)
	}
}

// slowLoad is a database that takes some time to read each cron.
type slowLoad struct {
	fakeDesk

	perCron time.Duration
	refused int // of the first pages
	pages   []int
	firedAt []time.Time
}

func (d *slowLoad) Upcoming(ctx context.Context, after string, most int) (cronstore.UpcomingPage, error) {
	if d.refused > 0 {
		d.refused--
		return cronstore.UpcomingPage{}, errors.New("too slow")
	}
	page, err := d.fakeDesk.Upcoming(ctx, after, most)
	took := time.Duration(page.Read) * d.perCron
	select {
	case <-time.After(took):
	case <-ctx.Done():
		return cronstore.UpcomingPage{}, ctx.Err()
	}
	d.pages = append(d.pages, page.Read)
	return page, err
}

func (d *slowLoad) Fire(ctx context.Context, names []string, at time.Time) (fired, error) {
	d.firedAt = append(d.firedAt, time.Now())
	return d.fakeDesk.Fire(ctx, names, at)
}

// A term fires what it has loaded while it loads the others, in pages that are as large
// as the database is fast, and goes on where a page failed. Crons that change meanwhile
// do not make it begin again before it has come to the end.
func TestTermFiresBeforeAllCronsAreLoaded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &slowLoad{fakeDesk: fakeDesk{next: map[string]time.Time{}, interval: 10 * time.Minute}, perCron: 10 * time.Millisecond, refused: 3}
		for i := range 10_000 {
			d.next[fmt.Sprintf("%05d", i)] = time.Now()
		}
		began, changes := time.Now(), make(chan struct{}, 1)
		time.AfterFunc(30*time.Second, func() { changes <- struct{}{} })
		_ = runFor(t, d, changes, 5*time.Minute) // ends by its deadline
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
