package crons

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/leaderstore"
)

// fakeStore is a database whose clock differs from the local one.
type fakeStore struct {
	mu          sync.Mutex
	ahead       time.Duration
	next        map[string]time.Time
	interval    time.Duration
	stale       time.Duration // how much later than next the stored times are
	fail        []error       // errors of the next calls of Fire
	log         []string
	sizes       []int           // batch sizes
	prepareTime time.Duration   // time to prepare one cron
	leadTimes   []time.Duration // of prepared batches
	probes      int
	loads       int
}

func (d *fakeStore) Now(context.Context) (time.Time, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.probes++
	return time.Now().Add(d.ahead), nil
}

func (d *fakeStore) Upcoming(_ context.Context, after string, most int) (page cronstore.UpcomingPage, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.loads++
	for _, name := range slices.Sorted(maps.Keys(d.next)) {
		if name <= after {
			continue
		}
		if page.Read == most {
			page.Next = page.Crons[most-1].Name
			break
		}
		page.Crons = append(page.Crons, cronstore.Upcoming{Name: name, Next: d.next[name].Add(d.stale)})
		page.Read++
	}
	return page, nil
}

func (d *fakeStore) Fire(_ context.Context, names []string, at time.Time) (fireResult, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.fail) > 0 {
		err := d.fail[0]
		d.fail = d.fail[1:]
		return fireResult{}, err
	}
	d.sizes = append(d.sizes, len(names))
	done := fireResult{Now: time.Now().Add(d.ahead), Next: map[string]time.Time{}}
	if !at.IsZero() {
		done.Prepared = time.Duration(len(names)) * d.prepareTime
		d.leadTimes = append(d.leadTimes, at.Sub(done.Now))
		time.Sleep(at.Sub(done.Now))
		done.Now = at
	}
	for _, name := range names {
		if late := done.Now.Sub(d.next[name]); late < 0 {
			d.log = append(d.log, fmt.Sprintf("%s checked %s too early", name, -late))
		} else {
			d.log = append(d.log, fmt.Sprintf("%s %s", name, late))
			d.next[name] = d.next[name].Add(d.interval)
		}
		done.Next[name] = d.next[name]
	}
	return done, nil
}

// runFor runs a fire loop for a duration and returns its error.
func runFor(t *testing.T, d store, changes <-chan struct{}, length time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	return newFireLoop(d, newTermCache(), newMeter(metrics.New("test")), slog.New(slog.DiscardHandler)).run(ctx, changes)
}

func TestFireLoopWakesByDatabaseClock(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{0, time.Hour, -time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			d := &fakeStore{ahead: ahead, interval: time.Second}
			d.next = map[string]time.Time{"c": time.Now().Add(ahead + 700*time.Millisecond)}
			if err := runFor(t, d, nil, 3*time.Second); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			if diff := cmp.Diff([]string{"c 0s", "c 0s", "c 0s"}, d.log); diff != "" {
				t.Errorf("ahead %s: %s", ahead, diff)
			}
		})
	}
}

// An older version of forge has stored the times of the next ticks, and a country has abolished
// daylight saving since.
func TestFireLoopVerifiesStoredTicks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &fakeStore{interval: 24 * time.Hour, stale: time.Hour}
		d.next = map[string]time.Time{"c": time.Now().Add(20 * time.Hour)}
		if err := runFor(t, d, nil, 45*time.Hour); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if diff := cmp.Diff([]string{"c checked 2h0m0s too early", "c 0s", "c 0s"}, d.log); diff != "" {
			t.Error(diff)
		}
	})
}

func TestIdleFireLoopOnlyReadsClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &fakeStore{next: map[string]time.Time{}}
		for i := range 100_000 {
			d.next[fmt.Sprint(i)] = time.Now().Add(24 * time.Hour)
		}
		_ = runFor(t, d, nil, time.Hour)
		if want := int(time.Hour / probeEvery); d.probes > want+1 || d.loads != 100_000/maxPage || len(d.log) != 0 {
			t.Errorf("%d probes, %d pages, %d fires in an idle hour", d.probes, d.loads, len(d.log))
		}
	})
}

func TestFireLoopFollowsClockSetBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &fakeStore{interval: time.Hour, next: map[string]time.Time{"c": time.Now().Add(15 * time.Second)}}
		time.AfterFunc(12*time.Second, func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.ahead = -3 * time.Second
		})
		_ = runFor(t, d, nil, 30*time.Second)
		if diff := cmp.Diff([]string{"c checked 3s too early", "c 0s"}, d.log); diff != "" {
			t.Error(diff)
		}
	})
}

func TestFireLoopRetriesAfterFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("connection lost")
		d := &fakeStore{interval: time.Hour, fail: []error{broken, broken}}
		d.next = map[string]time.Time{"c": time.Now().Add(time.Second)}
		_ = runFor(t, d, nil, time.Minute)
		if want := fmt.Sprintf("c %s", 3*minBackoff); len(d.log) != 1 || d.log[0] != want {
			t.Errorf("log %q, want %q", d.log, want)
		}
	})
}

func TestFireLoopEndsWhenDeposed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &fakeStore{fail: []error{fmt.Errorf("fire crons: %w", leaderstore.ErrDeposed)}}
		d.next = map[string]time.Time{"c": time.Now()}
		if err := runFor(t, d, nil, time.Minute); !errors.Is(err, leaderstore.ErrDeposed) {
			t.Errorf("ended with %v", err)
		}
	})
}

func TestFireLoopReloadsChangedCrons(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &fakeStore{next: map[string]time.Time{}, interval: time.Hour}
		changes := make(chan struct{}, 1)
		time.AfterFunc(5*time.Second, func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.next["new"] = time.Now().Add(time.Second)
			changes <- struct{}{}
		})
		_ = runFor(t, d, changes, 8*time.Second)
		if diff := cmp.Diff([]string{"new 0s"}, d.log); diff != "" {
			t.Error(diff)
		}
	})
}

func TestTwentyThousandCronsFireInBatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &fakeStore{next: map[string]time.Time{}, interval: time.Hour}
		at := time.Now().Add(maxLead)
		for i := range 20_000 {
			d.next[fmt.Sprint(i)] = at
		}
		d.next["later"] = at.Add(time.Second)
		_ = runFor(t, d, nil, maxLead+2*time.Second)
		if diff := cmp.Diff([]int{13300, 250, 500, 1000, 2000, 2000, 950, 1}, d.sizes); diff != "" {
			t.Error(diff)
		}
	})
}

// The lead time of a batch follows from earlier batches, and crons that are due earlier
// fire first.
func TestBatchIsPreparedBeforeItIsDue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &fakeStore{next: map[string]time.Time{}, interval: time.Second, ahead: time.Hour, prepareTime: 200 * time.Microsecond}
		at := time.Now().Add(d.ahead + time.Second)
		for i := range 100 {
			d.next[fmt.Sprint(i)] = at
		}
		d.next["before"] = at.Add(-2 * prepareSpan)
		_ = runFor(t, d, nil, 20500*time.Millisecond)
		if len(d.leadTimes) != 20 {
			t.Fatalf("%d batches were prepared, want 20", len(d.leadTimes))
		}
		for i, lead := range d.leadTimes {
			if lead <= 0 || lead > 2*prepareSpan {
				t.Errorf("batch %d was prepared %s before it was due", i, lead)
			}
		}
		for _, line := range d.log {
			if !strings.HasSuffix(line, " 0s") {
				t.Error(line)
			}
		}
	})
}

// Ticks within prepareSpan share one transaction, which is no earlier than the last of
// them.
func TestTicksDueWithinPrepareSpanShareTransaction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &fakeStore{next: map[string]time.Time{}, interval: time.Second, ahead: time.Hour}
		at := time.Now().Add(d.ahead + time.Second)
		for i := range 500 {
			d.next[fmt.Sprint(i)] = at.Add(time.Duration(i) * 2 * time.Millisecond)
		}
		_ = runFor(t, d, nil, 10500*time.Millisecond)
		if most := 10 * int(time.Second/prepareSpan); len(d.sizes) > most || len(d.log) < 4500 {
			t.Errorf("%d ticks in %d transactions, want at most %d", len(d.log), len(d.sizes), most)
		}
		for _, line := range d.log {
			_, rest, _ := strings.Cut(line, " ")
			if late, err := time.ParseDuration(rest); err != nil || late > prepareSpan {
				t.Error(line)
			}
		}
	})
}

// A leader that is slightly late still takes the whole batch.
func TestLateLeaderTakesWholeBatch(t *testing.T) {
	t.Parallel()
	loop := newFireLoop(&fakeStore{}, newTermCache(), newMeter(metrics.New("test")), slog.New(slog.DiscardHandler))
	for i := range 500 {
		loop.dueHeap.add(cronstore.Upcoming{Name: fmt.Sprint(i), Next: noon})
	}
	begin := noon.Add(-loop.leadTime.forCrons(500))
	if taken, _ := loop.popBatch(begin.Add(-time.Millisecond)); len(taken) != 0 {
		t.Errorf("%d crons are taken too early", len(taken))
	}
	if taken, at := loop.popBatch(begin.Add(20 * time.Millisecond)); len(taken) != 500 || !at.Equal(noon) {
		t.Errorf("%d crons are taken 20 ms late, for %s", len(taken), at)
	}
}

func TestFewCronsAreNotPreparedAhead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &fakeStore{next: map[string]time.Time{}, interval: time.Second}
		at := time.Now().Add(time.Second)
		for i := range minPrepared - 1 {
			d.next[fmt.Sprint(i)] = at
		}
		_ = runFor(t, d, nil, 5*time.Second)
		if len(d.leadTimes) != 0 || len(d.sizes) == 0 {
			t.Errorf("%d of %d batches were prepared", len(d.leadTimes), len(d.sizes))
		}
	})
}

func TestLeadTimeFollowsMeasurements(t *testing.T) {
	t.Parallel()
	var p leadTime
	if p.forCrons(500) != minRoundTrips+75*time.Millisecond || p.maxCrons() != 13300 || p.cronsWithin(20*time.Millisecond) != 150 {
		t.Errorf("at first: lead %s, most %d, and %d fit", p.forCrons(500), p.maxCrons(), p.cronsWithin(20*time.Millisecond))
	}
	for range 50 {
		p.observe(500, minRoundTrips+20*time.Millisecond)
	}
	if lead := p.forCrons(500); lead < 34*time.Millisecond || lead > 36*time.Millisecond {
		t.Errorf("500 take 25 ms: lead %s, want about 35 ms", lead)
	}
	for range 50 {
		p.observe(minMeasured, 2*time.Second)
	}
	if p.maxCrons() >= minMeasured || p.forCrons(500) != maxLead || p.cronsWithin(0) != 0 {
		t.Errorf("very slow: most %d, lead %s", p.maxCrons(), p.forCrons(500))
	}
	for range 50 {
		p.observe(minPrepared, time.Second)
	}
	if lead := p.forCrons(minPrepared); lead < maxRoundTrips || lead > maxLead {
		t.Errorf("slow round trips: lead %s, want at least %s", lead, maxRoundTrips)
	}
}

func TestMeterUsesOtherLabelBeyondLimit(t *testing.T) {
	t.Parallel()
	m := newMeter(metrics.New("test"))
	var crons []cronstore.Upcoming
	for i := range metrics.MaxCrons + 2 {
		crons = append(crons, cronstore.Upcoming{Name: fmt.Sprintf("c%05d", i)})
	}
	m.initSeries(crons)
	m.initSeries(crons)
	var rows []cronstore.Tick
	for _, c := range crons {
		rows = append(rows, cronstore.Tick{Cron: c.Name, Verdict: cronstore.Fired, Count: 1})
	}
	m.count(rows, noon)
	for label, want := range map[string]float64{"c00000": 1, "c00999": 1, metrics.OtherCrons: 2} {
		if got := testutil.ToFloat64(m.metrics.CronRuns.WithLabelValues(label)); got != want {
			t.Errorf("%s ran %f times, want %f", label, got, want)
		}
	}
	if got := testutil.CollectAndCount(m.metrics.CronRuns); got != metrics.MaxCrons+1 {
		t.Errorf("%d series, want %d", got, metrics.MaxCrons+1)
	}
}
