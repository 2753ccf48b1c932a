// Package gctuner adapts Go's garbage collector to a process whose live heap is small and whose
// short jobs make much garbage.
//
// With GOGC=100, a process with ten megabytes of live heap collects each ten megabytes of
// garbage, many times a second under load. The tuner raises GOGC during such a load so that the
// heap grows to the floor before the next collection. It does not use a large constant GOGC,
// whose heap would have no bound, or a ballast, which an idle process would keep too: once
// collections are rare, GOGC is Go's default again.
package gctuner

import (
	"fmt"
	"log/slog"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

const (
	// Floor is the heap size below which a busy process does not collect garbage.
	Floor = 64 << 20
	// minLimit is the least memory limit that is set. A limit near the size of the live heap
	// would keep the collector busy all the time.
	minLimit = 96 << 20
	// A process is busy once two collections follow each other within busyInterval, and stays
	// busy until none has followed for idleInterval. Go collects at least every two minutes.
	busyInterval = time.Second
	idleInterval = 20 * time.Second
	// usual is Go's default of GOGC.
	usual = 100
	// minHeap is the heap size below which Go does not collect garbage if GOGC is usual. It
	// is proportional to GOGC.
	minHeap = 4 << 20
)

// tuner sets GOGC after each collection.
type tuner struct {
	floor int64

	mu      sync.Mutex
	percent int64     // of GOGC, as set last
	last    time.Time // of the last collection
	stopped bool
}

// Tune sets a memory limit of nine tenths of the cgroup's, if it has one, and adapts GOGC from
// now on. It changes nothing that the environment variables GOMEMLIMIT and GOGC or the program
// have set. It returns a function that ends the adaptation.
func Tune(logger *slog.Logger) (stop func()) {
	limit, err := memlimit.Set(memlimit.WithMin(minLimit))
	if err != nil {
		logger.Warn("reading the memory limit of the cgroup failed; the collector knows no limit", "error", err)
	}
	if _, chosen := os.LookupEnv("GOGC"); chosen || read().percent != usual {
		return func() {}
	}
	t := &tuner{floor: min(Floor, limit/2), percent: usual, last: time.Now()}
	t.arm()
	return t.stop
}

// sentinel is garbage whose collection runs a cleanup. It has a pointer so that Go allocates it
// by itself.
type sentinel struct{ _ *byte }

// arm lets collected run after the next collection.
func (t *tuner) arm() { runtime.AddCleanup(&sentinel{}, (*tuner).collected, t) }

func (t *tuner) collected() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped {
		return
	}
	now, heap := time.Now(), read()
	if heap.percent != t.percent { // the program has set it
		t.stopped = true
		return
	}
	t.set(next(heap, t.floor, now.Sub(t.last)))
	t.last = now
	t.arm()
}

// set changes GOGC if the change is worth it: it stops the program for a moment.
func (t *tuner) set(percent int64) {
	if percent != usual && max(percent, t.percent)-min(percent, t.percent) < t.percent/10 {
		return
	}
	if percent != t.percent {
		debug.SetGCPercent(int(percent))
		t.percent = percent
	}
}

func (t *tuner) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.stopped {
		t.set(usual)
	}
	t.stopped = true
}

// heap is the state of the heap after a collection, in bytes.
type heap struct {
	live, roots int64
	percent     int64 // of GOGC; negative if it is off
}

// next returns GOGC for the next collection. interval is that of the last two. Go lets the heap
// grow by this percentage of what it had to scan: the live heap and the roots.
func next(h heap, floor int64, interval time.Duration) int64 {
	if interval > idleInterval || interval > busyInterval && h.percent == usual {
		return usual
	}
	most := floor * usual / minHeap
	return min(most, max(usual, (floor-h.live)*usual/max(1, h.live+h.roots)))
}

func read() heap {
	samples := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}, {Name: "/gc/gogc:percent"},
	}
	metrics.Read(samples)
	values := make([]int64, len(samples))
	for i, sample := range samples {
		if sample.Value.Kind() != metrics.KindUint64 {
			panic(fmt.Sprintf("no metric %s", sample.Name)) // a version of Go without it fails the tests
		}
		values[i] = int64(min(sample.Value.Uint64(), math.MaxInt64))
	}
	return heap{live: values[0], roots: values[1] + values[2], percent: values[3]}
}
