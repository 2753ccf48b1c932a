package assign

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/jobstore"
)

const (
	// belowInterval is the minimum time between two checks below the marks.
	belowInterval = 200 * time.Millisecond
	// belowShare is the minimum of that interval, in multiples of the duration of a check, so
	// that checks take a twentieth of the time of one connection at most.
	belowShare = 20
	// cheapBelow is how long a check may take while scans still start at the beginning of a
	// queue and not at the marks.
	cheapBelow = 5 * time.Millisecond
)

// belowCheck looks for available jobs below the marks. It runs beside the loop, because it
// may walk over millions of ended jobs that a snapshot protects.
type belowCheck struct {
	// ended is closed when the running check has ended. It is nil if none runs and the result
	// of the last one was taken.
	ended chan struct{}
	began time.Time
	took  time.Duration // duration of the last check whose result was taken
	// found, duration and err are the result. They are set before ended is closed.
	found    []jobstore.Low
	duration time.Duration
	err      error
	// wake ends the wait of the loop.
	wake atomic.Pointer[context.CancelFunc]
}

func (c *belowCheck) running() bool {
	select {
	case <-c.ended:
		return false
	default:
		return c.ended != nil
	}
}

// estimate records the duration of a scan. Before the first check, a slow one shows that a
// read from the beginning of the queues takes long.
func (c *belowCheck) estimate(scan time.Duration) {
	if c.began.IsZero() && scan > 10*cheapBelow {
		c.took = max(c.took, scan)
	}
}

// wakes has wake called when the running check has ended, or at once if it has.
func (c *belowCheck) wakes(wake context.CancelFunc) {
	c.wake.Store(&wake)
	if c.ended != nil && !c.running() {
		wake()
	}
}

// due reports whether the next check is due.
func (c *belowCheck) due(now time.Time) bool {
	return c.ended == nil && now.Sub(c.began) >= max(belowInterval, belowShare*c.took)
}

// start starts a check. The timeout is that of the check.
func (c *belowCheck) start(ctx context.Context, pool *pgxpool.Pool, upTo []jobstore.Low, timeout time.Duration) {
	c.ended, c.began = make(chan struct{}), time.Now()
	go func() {
		defer c.end()
		bounded, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		c.found, c.err = jobstore.New(pool).LowestAvailable(bounded, upTo)
		c.duration = time.Since(c.began)
	}()
}

func (c *belowCheck) end() {
	close(c.ended)
	c.interrupt()
}

// interrupt ends the wait of the loop.
func (c *belowCheck) interrupt() {
	if wake := c.wake.Load(); wake != nil {
		(*wake)()
	}
}

// wait waits until the running check has ended.
func (c *belowCheck) wait() {
	if c.ended != nil {
		<-c.ended
	}
}

// take returns the result of a check that has ended, once.
func (c *belowCheck) take() ([]jobstore.Low, error) {
	if c.ended == nil || c.running() {
		return nil, nil
	}
	found, err := c.found, c.err
	c.took, c.ended, c.found, c.err = c.duration, nil, nil, nil
	return found, err
}

// lowerMarks lowers the marks to what the last check has found.
func (l *loop) lowerMarks() error {
	found, err := l.below.take()
	if err != nil {
		return err
	}
	for _, low := range found {
		if q := l.queueScans[low.Queue]; q != nil {
			q.marks.lower(int(low.Priority), before(low.ScheduledAt, low.ID))
			q.topReadAt = time.Time{} // the cursor may be above the job
		}
	}
	return nil
}

// checkBelow starts a check if it is due.
func (l *loop) checkBelow(ctx context.Context) {
	if !l.below.due(l.lastStep) {
		return
	}
	var upTo []jobstore.Low
	for queue, q := range l.queueScans {
		for p := range q.marks {
			if low := q.marks[p].low; low != (jobstore.Position{}) {
				upTo = append(upTo, jobstore.Low{Queue: queue, Priority: int16(p + 1), Position: low})
			}
		}
	}
	if len(upTo) > 0 {
		l.below.start(ctx, l.pool, upTo, maxStatementTimeout)
	}
}
