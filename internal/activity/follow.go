package activity

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/forge-scheduler/forge/internal/filter"
	"github.com/forge-scheduler/forge/internal/postgres"
)

const (
	// followInterval is how often a followed stream is read.
	followInterval = 500 * time.Millisecond
	// followRecent is how much of the newest part each read includes again. An action that
	// waits for its event is in it.
	followRecent = 15 * time.Second
	// deepInterval is how often the whole of followSpan is read again.
	deepInterval = 5 * time.Second
	// followSpan is for how long after its time an entry may be committed, and the outcome of
	// an action recorded. It is longer than a request may take.
	followSpan = 2 * time.Minute
	// followPage is how many entries one statement of a followed stream reads.
	followPage = 1000
	// mostFollowed bounds the entries of followSpan that are remembered, mostWaiting those that
	// are kept until the events of the last actions are read.
	mostFollowed = 50_000
	mostWaiting  = 20_000
)

// errClockSetBack ends a stream whose further entries cannot be told from older ones.
var errClockSetBack = errors.New("the database's clock was set back: follow again")

// Follow calls emit with the newest entries that match a query, at most its limit, and then
// with each new one, oldest first, until ctx ends. If the filter has the key since, Follow begins
// with all entries since then. There may be none. An entry whose outcome has changed is emitted
// again. An action that writes an event waits until it has ended, and is left out if its event was
// found. An entry that is committed, or an outcome that is recorded, within followSpan of its time
// is emitted, unless more than mostFollowed entries have followed.
func (s *Store) Follow(ctx context.Context, q Query, emit func([]Entry) error) error {
	f := &follower{store: s, q: q, emit: emit, seen: map[Place]string{}}
	f.q.Oldest, f.q.Before, f.q.Limit = false, Place{}, followPage
	if err := f.readClock(ctx); err != nil {
		return err
	}
	f.floor = f.now.Add(-followSpan)
	if err := f.begin(ctx, q.Limit); err != nil {
		return err
	}
	ticker := time.NewTicker(followInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
		if err := f.follow(ctx); err != nil {
			return err
		}
	}
}

// follower is the state of a stream.
type follower struct {
	store *Store
	q     Query
	emit  func([]Entry) error
	// floor is the instant before which entries are no longer read. seen has the outcomes of the
	// entries since then that need not be emitted.
	floor time.Time
	seen  map[Place]string
	// now is the database's time at the local time read.
	now, read time.Time
}

// clock returns the database's time.
func (f *follower) clock() time.Time { return f.now.Add(time.Since(f.read)) }

// readClock reads the database's clock.
func (f *follower) readClock(ctx context.Context) error {
	now, err := postgres.Now(ctx, f.store.db)
	switch {
	case err != nil:
		return err
	case !f.read.IsZero() && now.Before(f.clock().Add(-followSpan/2)):
		return errClockSetBack
	}
	f.now, f.read = now, time.Now()
	return nil
}

// begin emits the first entries: all that the filter selects if it has the key since, or else the
// newest ones. It remembers the older ones that exist, so that an entry that is committed later is
// not taken for one of them.
func (f *follower) begin(ctx context.Context, limit int) error {
	if since := f.q.Where.Of("since"); len(since) > 0 {
		// An instant that is relative to the present must not move on.
		f.q.since = latest(since, f.now)
		return f.pages(ctx, f.q.since, Place{}, f.emitNews)
	}
	begin := Page{Next: Place{at: f.now}}
	if limit > 0 {
		q := f.q
		q.Limit = limit
		var err error
		if begin, err = f.store.Find(ctx, q); err != nil {
			return err
		}
	}
	if !begin.Next.IsZero() {
		err := f.pages(ctx, f.floor, begin.Next, func(entries []*Entry) error {
			f.news(entries)
			return nil
		})
		if err != nil {
			return err
		}
	}
	slices.Reverse(begin.Entries)
	first := make([]*Entry, len(begin.Entries))
	for i := range begin.Entries {
		first[i] = &begin.Entries[i]
	}
	return f.emitNews(first)
}

// latest returns the latest instant of some terms.
func latest(terms []filter.Term, now time.Time) (since time.Time) {
	for _, t := range terms {
		at := t.At
		if at.IsZero() {
			at = now.Add(-t.Span)
		}
		if since.Before(at) {
			since = at
		}
	}
	return since
}

// follow emits what is new. It reads everything since the floor if that was not read recently.
func (f *follower) follow(ctx context.Context) error {
	if time.Since(f.read) < deepInterval {
		from := f.clock().Add(-followRecent)
		if from.Before(f.floor) {
			from = f.floor
		}
		return f.pages(ctx, from, Place{}, f.emitNews)
	}
	if err := f.readClock(ctx); err != nil {
		return err
	}
	settled := f.now.Add(-followSpan)
	if err := f.pages(ctx, f.floor, Place{}, f.emitNews); err != nil {
		return err
	}
	f.raise(settled)
	return nil
}

// pages reads the entries from an instant on, page by page, and calls take with them, oldest
// first, without the actions whose events follow. before ends the pages; zero: nothing does.
func (f *follower) pages(ctx context.Context, from time.Time, before Place, take func([]*Entry) error) error {
	q := f.q
	q.Oldest, q.after = true, from
	var waiting []Entry
	for more := true; more; {
		entries, next, err := f.store.read(ctx, q)
		if err != nil {
			return err
		}
		waiting = append(waiting, entries...)
		more = !next.IsZero() && (before.IsZero() || next.compare(before) < 0)
		q.Before = next
		ready := len(waiting)
		if more {
			ready = complete(waiting)
		}
		twins := twinsIn(q.oldestFirst(waiting))
		var found []*Entry
		for i := range waiting[:ready] {
			e := &waiting[i]
			_, seen := f.seen[e.place()]
			hidden := !seen && e.Log == Audit && twins[e.ID]
			if !hidden && (before.IsZero() || e.place().compare(before) < 0) {
				found = append(found, e)
			}
		}
		if err := take(found); err != nil {
			return err
		}
		waiting = slices.Clone(waiting[ready:])
		f.bound()
	}
	return nil
}

// complete returns how many of the oldest entries have no further events.
func complete(oldestFirst []Entry) (n int) {
	if len(oldestFirst) == 0 {
		return 0
	}
	open := oldestFirst[len(oldestFirst)-1].At.Add(-longestAction)
	n, _ = slices.BinarySearchFunc(oldestFirst, open, func(e Entry, at time.Time) int { return e.At.Compare(at) })
	return max(n, len(oldestFirst)-mostWaiting)
}

func (f *follower) emitNews(oldestFirst []*Entry) error { return f.emit(f.news(oldestFirst)) }

// news returns the entries that were not emitted yet or have changed since, and remembers those
// that may be read again.
func (f *follower) news(oldestFirst []*Entry) (news []Entry) {
	now := f.clock()
	for _, e := range oldestFirst {
		place := e.place()
		known, seen := f.seen[place]
		if seen && known == e.Outcome || !seen && e.awaitsEvent() && now.Sub(e.At) < longestAction {
			continue
		}
		if !e.At.Before(f.floor) {
			f.seen[place] = e.Outcome
		}
		news = append(news, *e)
	}
	return news
}

// raise raises the floor to an instant.
func (f *follower) raise(to time.Time) {
	if f.floor.Before(to) {
		f.floor = to
		maps.DeleteFunc(f.seen, func(p Place, _ string) bool { return p.at.Before(to) })
	}
}

// bound raises the floor if far more than mostFollowed entries are remembered, so that mostFollowed
// remain.
func (f *follower) bound() {
	if len(f.seen) > 2*mostFollowed {
		places := slices.SortedFunc(maps.Keys(f.seen), Place.compare)
		f.raise(places[len(places)-mostFollowed].at)
	}
}
