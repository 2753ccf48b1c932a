package activity

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/forge-scheduler/forge/internal/postgres"
)

const (
	// followInterval is how often a followed stream is read.
	followInterval = 500 * time.Millisecond
	// followSpan is how much of the newest part each read includes again: an entry is
	// committed after its time, and the outcome of an action is recorded when it ends.
	followSpan = time.Minute
	// followPage is how many entries one statement of a followed stream reads, mostFollowed
	// more than the number that appear between two reads.
	followPage   = 1000
	mostFollowed = 20 * followPage
)

// Follow calls emit with the newest entries that match a query, at most its limit, and then
// with each new one, oldest first, until ctx ends. There may be none. An entry whose outcome
// has changed is emitted again. An action that writes an event waits until it has ended, and is
// left out if its event was found.
func (s *Store) Follow(ctx context.Context, q Query, emit func([]Entry) error) error {
	q.Oldest = false
	now, err := postgres.Now(ctx, s.db)
	if err != nil {
		return err
	}
	page, err := s.Find(ctx, q)
	if err != nil {
		return err
	}
	f := follower{seen: map[Place]Entry{}, held: map[Place]time.Time{}, newest: now.Add(-followSpan), since: page.Next}
	if q.Limit < 1 {
		f.since = Place{at: now}
	}
	found := page.Entries
	q.Limit = followPage
	ticker := time.NewTicker(followInterval)
	defer ticker.Stop()
	for {
		if err := emit(f.news(found)); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
		q.after = f.newest.Add(-followSpan)
		if found, err = s.all(ctx, q); err != nil {
			return err
		}
	}
}

// all returns all pages of a query, newest first, at most mostFollowed entries.
func (s *Store) all(ctx context.Context, q Query) (all []Entry, err error) {
	for {
		page, err := s.Find(ctx, q)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Entries...)
		if page.Next.IsZero() || len(all) >= mostFollowed {
			return all, nil
		}
		q.Before = page.Next
	}
}

// follower remembers the newest entries that were emitted.
type follower struct {
	seen map[Place]Entry
	// held is when entries were first found that wait for their outcomes.
	held   map[Place]time.Time
	newest time.Time
	// since is the place before which older entries were not requested.
	since Place
}

// news returns the entries that were not emitted yet or have changed since, oldest first.
func (f *follower) news(newestFirst []Entry) (news []Entry) {
	twins := twinsIn(Query{}.oldestFirst(newestFirst))
	for _, e := range slices.Backward(newestFirst) {
		place := e.place()
		known, seen := f.seen[place]
		switch {
		case seen && known.Outcome == e.Outcome, !seen && !f.since.IsZero() && place.compare(f.since) < 0:
			continue
		case !seen && (e.Log == Audit && twins[e.ID] || f.hold(&e)):
			continue
		}
		f.seen[place] = e
		f.newest = later(f.newest, e.At)
		news = append(news, e)
	}
	old := f.newest.Add(-followSpan)
	maps.DeleteFunc(f.seen, func(p Place, _ Entry) bool { return p.at.Before(old) })
	maps.DeleteFunc(f.held, func(p Place, _ time.Time) bool { return p.at.Before(old) })
	return news
}

// hold reports whether an action has to wait for its outcome, but not for long.
func (f *follower) hold(e *Entry) bool {
	if !e.awaitsEvent() {
		return false
	}
	since, known := f.held[e.place()]
	if !known {
		since = time.Now()
		f.held[e.place()] = since
	}
	return time.Since(since) < longestAction
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
