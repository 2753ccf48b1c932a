package crons

import (
	"time"
)

const (
	// minMeasured is the minimum size of a batch for measuring the cost per cron.
	minMeasured = 20
	// minPrepared is how many crons must be due at one instant, or within prepareSpan,
	// for their transaction to be prepared ahead. A smaller batch is written faster than
	// a prepared transaction can be set up.
	minPrepared = 3
	// prepareSpan is how long a tick may wait for the ticks after it, to share their
	// transaction. So crons that jitter spreads share transactions.
	prepareSpan = 10 * time.Millisecond
	// maxLead is the maximum lead time of a batch. To pause or edit one of its crons may
	// take that long.
	maxLead = 2 * time.Second
	// minRoundTrips is the minimum estimate of the round trips, for any number of crons.
	// maxRoundTrips is the maximum estimate, for a busy server.
	minRoundTrips = 5 * time.Millisecond
	maxRoundTrips = 40 * time.Millisecond
	// maxOverhead is the limit of the round trips' duration for batches to be prepared
	// ahead. Above the limit, ticks that are already due need all of the time.
	maxOverhead = 500 * time.Millisecond
	// leadMarginPercent is the lead time as a percentage of the measured time.
	leadMarginPercent = 150
	// initialCronCost is the assumed cost of a cron before the first measurement.
	initialCronCost = 100 * time.Microsecond
)

// leadTime estimates how long it takes to prepare crons. The estimates are moving
// averages.
type leadTime struct {
	roundTrips time.Duration // duration of the round trips
	perCron    time.Duration // duration per cron in a large batch
	// suspended means that no batch is prepared ahead.
	suspended bool
}

// suspend turns preparing ahead off or on.
func (l *leadTime) suspend(slow bool) { l.suspended = slow }

// observe adds a measurement: n crons took that long.
func (l *leadTime) observe(n int, took time.Duration) {
	if n < minMeasured {
		l.roundTrips = min((3*l.roundTripCost()+took)/4, maxRoundTrips)
		return
	}
	l.perCron = max((3*l.cronCost()+max(took-l.roundTripCost(), 0)/time.Duration(n))/4, time.Microsecond)
}

func (l *leadTime) cronCost() time.Duration {
	if l.perCron == 0 {
		return initialCronCost
	}
	return l.perCron
}

func (l *leadTime) roundTripCost() time.Duration { return max(l.roundTrips, minRoundTrips) }

// forCrons returns the lead time of a batch of n crons.
func (l *leadTime) forCrons(n int) time.Duration {
	return min(l.roundTripCost()+time.Duration(n)*l.cronCost()*leadMarginPercent/100, maxLead)
}

// maxCrons returns the size of the largest batch whose lead time is at most maxLead.
func (l *leadTime) maxCrons() int {
	return max(0, int((maxLead-l.roundTripCost())*100/(leadMarginPercent*l.cronCost())))
}

// cronsWithin returns how many crons can be prepared within a duration. It does not apply
// the margin: a leader that begins a little late still takes the whole batch, and no
// small rest needs a transaction of its own after the instant.
func (l *leadTime) cronsWithin(d time.Duration) int {
	return max(0, int((d-l.roundTripCost())/l.cronCost()))
}

// clock estimates the database's clock from round trips. Between round trips it advances
// with the local monotonic clock, so changes of the local time of day have no effect.
type clock struct {
	local time.Time // with a monotonic reading
	db    time.Time // the database's time at local
}

// observe records that the database's clock read db at some time between sent and
// received. observe keeps the current estimate if it agrees with this reading, so the
// shortest round trips determine the estimate. Otherwise it moves the estimate by the
// smallest possible step.
func (c *clock) observe(sent, received, db time.Time) {
	switch {
	case c.local.IsZero():
		c.local, c.db = sent.Add(received.Sub(sent)/2), db
	case c.now(sent).After(db):
		c.local, c.db = sent, db
	case c.now(received).Before(db):
		c.local, c.db = received, db
	}
}

// now returns the database's time at a local time.
func (c *clock) now(local time.Time) time.Time { return c.db.Add(local.Sub(c.local)) }
