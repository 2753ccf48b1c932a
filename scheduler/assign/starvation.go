package assign

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

const (
	// starvingAfter is how long a limit may hold a job back before the event limit_starving.
	starvingAfter = 10 * time.Minute
	// recoverAfter is for how long no sweep must have read such a job before limit_recovered:
	// sweeps read a long backlog in parts.
	recoverAfter = 2 * time.Minute
	// maxStarving bounds the groups that the leader remembers as starving. Others have no event.
	maxStarving = 200
	// maxStarvationEvents bounds the events of a minute. The others follow in the next ones.
	maxStarvationEvents = 20
)

// starvation tracks the groups of which a job has waited too long.
type starvation struct {
	groups map[group]starving
	// restored means that the groups have been read from the events of earlier terms.
	restored bool
	// minute is the beginning of the minute in which there have been so many events.
	minute time.Time
	events int
	// recoverAfter equals the constant, except in tests.
	recoverAfter time.Duration
}

// starving is a group of which a job has waited too long, since an event at a time.
type starving struct {
	since, seen time.Time
	longest     time.Duration
}

// starvationChange is an event: of a group that starves, or has recovered after a time.
type starvationChange struct {
	group

	longest, lasted time.Duration
	recovered       bool
}

// update notes the waits of the groups, by the times since when their oldest jobs have been due,
// and returns the events to record: those of the longest waits first.
func (s *starvation) update(now time.Time, oldest map[group]time.Time) (changes []starvationChange) {
	if now.Sub(s.minute) >= time.Minute {
		s.minute, s.events = now, 0
	}
	for g, due := range oldest {
		waited := now.Sub(due)
		known, ok := s.groups[g]
		switch {
		case waited < starvingAfter:
		case ok:
			known.seen, known.longest = now, max(known.longest, waited)
			s.groups[g] = known
		default:
			changes = append(changes, starvationChange{group: g, longest: waited})
		}
	}
	changes = longestFirst(changes, maxStarving-len(s.groups))
	var recovered []starvationChange
	for g, known := range s.groups {
		if now.Sub(known.seen) >= s.recoverAfter {
			recovered = append(recovered, starvationChange{g, known.longest, now.Sub(known.since), true})
		}
	}
	changes = append(changes, longestFirst(recovered, len(recovered))...)
	return changes[:min(len(changes), maxStarvationEvents-s.events)]
}

// longestFirst returns at most n of the changes, those with the longest waits.
func longestFirst(changes []starvationChange, n int) []starvationChange {
	slices.SortFunc(changes, func(a, b starvationChange) int {
		return cmp.Or(cmp.Compare(b.longest, a.longest), cmp.Compare(a.name, b.name), cmp.Compare(a.key, b.key))
	})
	return changes[:min(len(changes), n)]
}

// recorded notes that the events are recorded.
func (s *starvation) recorded(now time.Time, changes []starvationChange) {
	s.events += len(changes)
	for _, c := range changes {
		if c.recovered {
			delete(s.groups, c.group)
		} else {
			s.groups[c.group] = starving{since: now, seen: now, longest: c.longest}
		}
	}
}

// restore remembers the groups whose last event, of an earlier term, says that they starve.
// The events are the newest first.
func (s *starvation) restore(now time.Time, events []eventstore.Event) {
	s.restored = true
	read := map[group]bool{}
	for _, event := range events {
		about, err := eventstore.ReadLimitWait(event.Data)
		g := group{limitID: limitID{jobstore.ScopeQueue, about.Queue, about.Limit}, key: about.Value}
		if about.Queue == "" {
			g.scope, g.name = jobstore.ScopeJob, about.Kind
		}
		if err != nil || read[g] {
			continue
		}
		read[g] = true
		if event.Type == eventstore.LimitStarving && len(s.groups) < maxStarving {
			s.groups[g] = starving{since: event.At, seen: now, longest: about.Waited()}
		}
	}
}

// recordStarvation records the events of the groups that starve or have recovered. oldest is nil
// between reports.
func (l *loop) recordStarvation(ctx context.Context, oldest map[group]time.Time) error {
	s := &l.limits.waits.starvation
	if oldest == nil {
		return nil
	}
	if !s.restored {
		if err := l.restoreStarvation(ctx, s); err != nil {
			return err
		}
	}
	changes := s.update(l.lastStep, oldest)
	if len(changes) == 0 {
		return nil
	}
	err := l.within(ctx, func(ctx context.Context) error {
		return l.fence.Do(ctx, l.pool, func(tx pgx.Tx, _ time.Time) error { return l.appendStarvation(ctx, tx, changes) })
	})
	if err != nil {
		return err
	}
	s.recorded(l.lastStep, changes)
	return nil
}

func (l *loop) restoreStarvation(ctx context.Context, s *starvation) error {
	return l.within(ctx, func(ctx context.Context) error {
		events, err := eventstore.New(l.pool).Find(ctx, eventstore.Filter{
			Types: []string{eventstore.LimitStarving, eventstore.LimitRecovered}, Limit: 5 * maxStarving,
		})
		if err == nil {
			s.restore(l.lastStep, events)
		}
		return err
	})
}

func (l *loop) appendStarvation(ctx context.Context, tx pgx.Tx, changes []starvationChange) error {
	for _, c := range changes {
		event := eventstore.Event{Type: eventstore.LimitStarving, NodeID: l.fence.NodeID, Role: l.fence.Role, Term: l.fence.Term}
		about := eventstore.LimitWait{
			Limit: c.class, Key: l.limits.inForce[c.limitID].Key, Value: c.key,
			WaitedS: int64(c.longest.Seconds()), LastedS: int64(c.lasted.Seconds()),
		}
		if c.recovered {
			event.Type = eventstore.LimitRecovered
		}
		if c.scope == jobstore.ScopeQueue {
			about.Queue = c.name
		} else {
			about.Kind = c.name
		}
		if err := eventstore.New(tx).Append(ctx, event, about); err != nil {
			return err
		}
	}
	return nil
}

// knows reports whether the group is known to starve.
func (s *starvation) knows(g group) bool {
	_, ok := s.groups[g]
	return ok
}

// newStarvation returns a starvation without groups.
func newStarvation() starvation {
	return starvation{groups: map[group]starving{}, recoverAfter: recoverAfter}
}
