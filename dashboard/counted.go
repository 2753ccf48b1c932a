package dashboard

import (
	"context"
	"time"

	"github.com/forge-scheduler/forge/internal/jobstore"
)

const (
	// keepCounts is for how long pages share a count of all jobs, and countPatience how
	// long they wait for it: of a million jobs it takes a good part of a second.
	keepCounts    = 2 * time.Second
	countPatience = 50 * time.Millisecond
	// oldCount is the age of which a page tells.
	oldCount = 5 * time.Second
)

func (s *server) newCounts() *latest[[]jobstore.Count] {
	patience := s.patience
	if patience == 0 {
		patience = countPatience
	}
	return &latest[[]jobstore.Count]{
		keep: keepCounts, patience: patience, lifetime: s.Lifetime, read: s.Source.Counts.CountsByQueueAndState,
		failed: func(ctx context.Context, err error) { s.Logger.WarnContext(ctx, "count jobs", "error", err) },
	}
}

// counted says how old the numbers of jobs on a page are, where that matters.
type counted struct {
	// Unknown: there are none yet.
	Unknown bool
	At      stamp
}

func newCounted(now time.Time, counts reading[[]jobstore.Count]) counted {
	switch {
	case counts.at.IsZero():
		return counted{Unknown: true}
	case counts.slow || now.Sub(counts.at) > oldCount:
		return counted{At: newStamp(modeAgo, now, counts.at)}
	default:
		return counted{}
	}
}
