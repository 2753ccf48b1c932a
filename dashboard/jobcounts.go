package dashboard

import (
	"cmp"
	"context"
	"time"

	"github.com/forge-scheduler/forge/internal/jobstore"
)

const (
	// keepCounts is how long pages share a count of all jobs. countTimeout is how long a
	// page waits for the count: counting a million jobs takes a good part of a second.
	keepCounts   = 2 * time.Second
	countTimeout = 50 * time.Millisecond
	// oldCount is the age from which pages show how old a count is.
	oldCount = 5 * time.Second
)

func (s *clusterState) newCounts() *staleCache[[]jobstore.Count] {
	return &staleCache[[]jobstore.Count]{
		keep: keepCounts, timeout: cmp.Or(s.CountTimeout, countTimeout), lifetime: s.Lifetime, read: s.Source.Counts.CountsByQueueAndState,
		failed: func(ctx context.Context, err error) { s.Logger.WarnContext(ctx, "count jobs", "error", err) },
	}
}

// jobCountAge describes the age of the job counts on a page. It is zero for recent counts.
type jobCountAge struct {
	// Unknown reports that there is no count yet.
	Unknown bool
	At      stamp
}

func newJobCountAge(now time.Time, counts cachedValue[[]jobstore.Count]) jobCountAge {
	switch {
	case counts.at.IsZero():
		return jobCountAge{Unknown: true}
	case counts.slow || now.Sub(counts.at) > oldCount:
		return jobCountAge{At: newStamp(modeAgo, now, counts.at)}
	default:
		return jobCountAge{}
	}
}
