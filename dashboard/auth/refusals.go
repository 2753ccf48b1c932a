package auth

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/access"
)

const (
	// RefusalsAtOnce is the burst of refusals that are recorded, for each identity and for
	// all anonymous callers together. Without a limit, a caller could fill the audit log
	// with refusals.
	RefusalsAtOnce = 60
	// RefusalEvery is the interval of refusals that are recorded after the burst.
	RefusalEvery = 10 * time.Second
	// sumEvery is how often the number of omitted refusals is recorded.
	sumEvery = 10 * time.Second
	// LeftOutAction is the action in the audit log under which that number is recorded.
	LeftOutAction = "refusals.left-out"
	// refusedChangesPerSecond is the rate of refused changes of one identity. It is limited
	// because a change is recorded before it is checked.
	refusedChangesPerSecond = 5
	// RefusedChangesAtOnce is the burst of refused changes.
	RefusedChangesAtOnce = 300
)

// refusals limits the refusals that are recorded, and counts the others.
type refusals struct {
	recorded, changes *throttle

	mu      sync.Mutex
	leftOut map[string]leftOut
}

// leftOut counts the refusals of one identity that were not recorded.
type leftOut struct {
	count       int
	first, last time.Time
	// source is the source of the newest one.
	source string
}

func newRefusals() *refusals {
	return &refusals{
		recorded: newThrottle(rate.Every(RefusalEvery), RefusalsAtOnce),
		changes:  newThrottle(refusedChangesPerSecond, RefusedChangesAtOnce),
		leftOut:  map[string]leftOut{},
	}
}

// record reports whether a refusal is to be recorded. If not, it counts the refusal.
func (f *refusals) record(e access.AuditEntry, now time.Time) bool {
	if f.recorded.take(e.Actor, now) == 0 {
		return true
	}
	f.leaveOut(e, now)
	return false
}

func (f *refusals) leaveOut(e access.AuditEntry, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	sum, ok := f.leftOut[e.Actor]
	if !ok {
		sum.first = now
	}
	sum.count, sum.last, sum.source = sum.count+1, now, e.Source
	f.leftOut[e.Actor] = sum
}

// sums returns an entry for each identity with omitted refusals, and resets the counts.
func (f *refusals) sums() (entries []access.AuditEntry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for actor, sum := range f.leftOut {
		entries = append(entries, access.AuditEntry{
			Actor: actor, Source: sum.source, Action: LeftOutAction, Outcome: access.Refused,
			Detail: fmt.Sprintf("%s from %s to %s", format.Plural(sum.count, "more refusal was not recorded", "more refusals were not recorded"),
				sum.first.UTC().Format(time.RFC3339), sum.last.UTC().Format(time.RFC3339)),
		})
	}
	clear(f.leftOut)
	return entries
}

// RecordRefused records that a caller lacks the permission for a request.
func (s *Guard) RecordRefused(r *http.Request, of route.Route, status int) {
	e := entryOf(of, r)
	if web.IsRead(r.Method) {
		e.Action, e.Object = "read", r.URL.Path
	}
	e.Detail = strconv.Itoa(status)
	s.writeRefusal(r.Context(), e)
}

// RecordRefusedLogin records that nobody was logged in, and why. The request's caller is who
// wanted to.
func (s *Guard) RecordRefusedLogin(r *http.Request, status int, why string) {
	e := entryOf(route.Route{Action: "login"}, r)
	e.Detail = strings.TrimSpace(strconv.Itoa(status) + " " + why)
	s.writeRefusal(r.Context(), e)
}

// recordRejected records a request that was rejected before its caller and its route were
// determined. The caller counts as anonymous, because another site may have made a browser
// send the request.
func (s *Guard) recordRejected(r *http.Request, why string) {
	e := access.AuditEntry{Actor: Anonymous, Source: web.AddressOf(r), Action: "read", Object: r.URL.Path, Detail: why}
	if !web.IsRead(r.Method) {
		e.Action = "write"
	}
	s.writeRefusal(r.Context(), e)
}

// writeRefusal records a refusal. If that fails, it only logs the error: a refused request
// changes nothing.
func (s *Guard) writeRefusal(ctx context.Context, e access.AuditEntry) {
	if s.Audit == nil || !s.refusals.record(e, s.now()) {
		return
	}
	e.Outcome = access.Refused
	if _, err := s.Audit.Begin(ctx, e); err != nil {
		s.Logger.ErrorContext(ctx, "a refusal is missing in the audit log", "actor", e.Actor, "action", e.Action, "error", err)
	}
}

// tooManyRefused reports whether too many changes of a caller were refused. If so, it
// answers the request without recording it.
func (s *Guard) tooManyRefused(w http.ResponseWriter, r *http.Request, e access.AuditEntry) bool {
	wait := s.refusals.changes.wait(e.Actor, s.now())
	if wait == 0 {
		return false
	}
	s.refusals.leaveOut(e, s.now())
	s.answerTooMany(w, r, wait, "Too many changes were refused.")
	return true
}

// RecordSums records how many refusals were omitted, periodically until ctx ends and once
// more then.
func (s *Guard) RecordSums(ctx context.Context) {
	ticker := time.NewTicker(sumEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			s.WriteSums(ctx)
			return
		case <-ticker.C:
			s.WriteSums(ctx)
		}
	}
}

// WriteSums records how many refusals were omitted since the last call.
func (s *Guard) WriteSums(ctx context.Context) {
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
