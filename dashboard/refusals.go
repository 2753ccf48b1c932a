package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/forge-scheduler/forge/internal/auditstore"
)

const (
	// A caller could fill the audit log with what is refused. Of each identity, and of
	// all callers without one together, so many refusals are recorded at once, and
	// then one each so often.
	refusalsAtOnce = 60
	refusalEvery   = 10 * time.Second
	// sumEvery is how often the number of those that were left out is recorded.
	sumEvery = 10 * time.Second
	// leftOutAction is what the audit log calls that number.
	leftOutAction = "refusals.left-out"
	// An identity may have so many changes refused at once, and then so many a second:
	// each of them is recorded before it is looked at.
	refusedChangesPerSecond = 5
	refusedChangesAtOnce    = 300
)

// refusals bounds the refusals that are recorded, and counts the others.
type refusals struct {
	recorded, changes *throttle

	mu      sync.Mutex
	leftOut map[string]leftOut
}

// leftOut are refusals of one identity that were not recorded.
type leftOut struct {
	count       int
	first, last time.Time
	// source is the newest one's.
	source string
}

func newRefusals() *refusals {
	return &refusals{
		recorded: newThrottle(rate.Every(refusalEvery), refusalsAtOnce),
		changes:  newThrottle(refusedChangesPerSecond, refusedChangesAtOnce),
		leftOut:  map[string]leftOut{},
	}
}

// record says whether a refusal is to be recorded, and counts it otherwise.
func (f *refusals) record(e auditstore.Entry, now time.Time) bool {
	if f.recorded.take(e.Actor, now) == 0 {
		return true
	}
	f.leaveOut(e, now)
	return false
}

func (f *refusals) leaveOut(e auditstore.Entry, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	sum, ok := f.leftOut[e.Actor]
	if !ok {
		sum.first = now
	}
	sum.count, sum.last, sum.source = sum.count+1, now, e.Source
	f.leftOut[e.Actor] = sum
}

// sums returns an entry for each identity whose refusals were left out since the last
// call.
func (f *refusals) sums() (entries []auditstore.Entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for actor, sum := range f.leftOut {
		entries = append(entries, auditstore.Entry{
			Actor: actor, Source: sum.source, Action: leftOutAction, Outcome: auditstore.Refused,
			Detail: fmt.Sprintf("%s from %s to %s", plural(sum.count, "more refusal was not recorded", "more refusals were not recorded"),
				sum.first.UTC().Format(time.RFC3339), sum.last.UTC().Format(time.RFC3339)),
		})
	}
	clear(f.leftOut)
	return entries
}

// refused records that somebody may not do something.
func (s *server) refused(r *http.Request, of route, status int) {
	e := entryOf(of, r)
	if reads(r.Method) {
		e.Action, e.Object = "read", r.URL.Path
	}
	e.Detail = strconv.Itoa(status)
	s.writeRefusal(r.Context(), e)
}

// turnedAway records what was refused before anybody looked at who asks, and for
// what: a browser may have been made to ask.
func (s *server) turnedAway(r *http.Request, why string) {
	e := auditstore.Entry{Actor: anonymous, Source: addressOf(r), Action: "read", Object: r.URL.Path, Detail: why}
	if !reads(r.Method) {
		e.Action = "write"
	}
	s.writeRefusal(r.Context(), e)
}

// writeRefusal leaves it at the log where nothing can be written: nothing is done.
func (s *server) writeRefusal(ctx context.Context, e auditstore.Entry) {
	if s.Audit == nil || !s.refusals.record(e, s.Now()) {
		return
	}
	e.Outcome = auditstore.Refused
	if _, err := s.Audit.Begin(ctx, e); err != nil {
		s.Logger.ErrorContext(ctx, "a refusal is missing in the audit log", "actor", e.Actor, "action", e.Action, "error", err)
	}
}

// tooManyRefused answers the request itself when its caller had too many changes
// refused: the next one is not recorded either.
func (s *server) tooManyRefused(w http.ResponseWriter, r *http.Request, e auditstore.Entry) bool {
	wait := s.refusals.changes.wait(e.Actor, s.Now())
	if wait == 0 {
		return false
	}
	s.refusals.leaveOut(e, s.Now())
	s.tooMany(w, r, wait, "Too many changes were refused.")
	return true
}

// recordSums records how many refusals were left out, until ctx ends and once more then.
func (s *server) recordSums(ctx context.Context) {
	ticker := time.NewTicker(sumEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			s.writeSums(ctx)
			return
		case <-ticker.C:
			s.writeSums(ctx)
		}
	}
}

func (s *server) writeSums(ctx context.Context) {
	if s.Audit == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	for _, e := range s.refusals.sums() {
		if _, err := s.Audit.Begin(ctx, e); err != nil {
			s.Logger.ErrorContext(ctx, "refusals are missing in the audit log", "actor", e.Actor, "refusals", e.Detail, "error", err)
		}
	}
}
