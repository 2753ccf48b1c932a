package crons

import "time"

// clock estimates the database's clock from round trips. Between them it goes
// by the local monotonic clock, so that it does not matter if the local time of
// day is set.
type clock struct {
	local time.Time // with a monotonic reading
	db    time.Time // at that instant
}

// observe takes in that the database's clock read db somewhere between sent and
// received. An estimate that this does not contradict is kept, so the shortest
// round trips decide; another is moved just as far as needed.
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
