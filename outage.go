package forge

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// outage is what a node knows of a database that does not serve it. Heartbeats begin and end
// it, so that it has a beginning even if nobody reads the probes.
type outage struct {
	mu     sync.Mutex
	since  time.Time // zero: there is none
	reason string
}

// record records the result of a heartbeat. A fenced node has reached the database.
func (o *outage) record(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err == nil || errors.Is(err, nodestore.ErrFenced) {
		o.since = time.Time{}
		return
	}
	if o.since.IsZero() {
		o.since = time.Now()
	}
	o.reason = postgres.Unavailable(err)
}

// describe returns the reason of an error of the database, and since when there has been one.
func (o *outage) describe(err error) string {
	reason := postgres.Unavailable(err)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since.IsZero() { // the next heartbeat begins it
		return reason
	}
	return reason + sinceText(o.since)
}

// String returns the reason of the present outage and its beginning; empty if there is none.
func (o *outage) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since.IsZero() {
		return ""
	}
	return o.reason + sinceText(o.since)
}

func sinceText(since time.Time) string {
	return fmt.Sprintf(", since %s (%s)", since.UTC().Format(time.RFC3339), time.Since(since).Truncate(time.Second))
}
