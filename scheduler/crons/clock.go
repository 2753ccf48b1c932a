package crons

import "time"

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
