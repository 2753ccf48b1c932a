package jobs

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// summaryEvery is the time between two log lines about finished jobs.
	summaryEvery = time.Minute
	// summaryKinds is how many kinds a line names: those with the most jobs.
	summaryKinds = 5
)

// summary counts the attempts that end on this node and logs them once a minute. It
// contains at most the kinds that the node has workers for.
type summary struct {
	logger *slog.Logger

	mu              sync.Mutex
	since           time.Time
	outcomes, kinds map[string]int
}

func newSummary(logger *slog.Logger) *summary {
	return &summary{logger: logger, since: time.Now(), outcomes: map[string]int{}, kinds: map[string]int{}}
}

func (s *summary) add(kind, outcome string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outcomes[outcome]++
	s.kinds[kind]++
}

// run logs until ctx ends, and then logs the rest.
func (s *summary) run(ctx context.Context) {
	ticker := time.NewTicker(summaryEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			s.log(ctx)
			return
		case <-ticker.C:
			s.log(ctx)
		}
	}
}

// log logs what has ended since the last line, if anything.
func (s *summary) log(ctx context.Context) {
	s.mu.Lock()
	since, outcomes, kinds := s.since, maps.Clone(s.outcomes), maps.Clone(s.kinds)
	s.since = time.Now()
	clear(s.outcomes)
	clear(s.kinds)
	s.mu.Unlock()
	if len(outcomes) == 0 {
		return
	}
	attrs := []slog.Attr{slog.Duration("in", time.Since(since).Round(100*time.Millisecond))}
	for _, outcome := range slices.Sorted(maps.Keys(outcomes)) {
		attrs = append(attrs, slog.Int(outcome, outcomes[outcome]))
	}
	attrs = append(attrs, slog.String("kinds", topKinds(kinds)))
	s.logger.LogAttrs(ctx, slog.LevelInfo, "jobs finished", attrs...)
}

// topKinds returns the kinds with the most jobs, and the sum of the others.
func topKinds(kinds map[string]int) string {
	names := slices.SortedFunc(maps.Keys(kinds), func(a, b string) int {
		return cmp.Or(cmp.Compare(kinds[b], kinds[a]), strings.Compare(a, b))
	})
	var parts []string
	others := 0
	for i, name := range names {
		if i < summaryKinds {
			parts = append(parts, fmt.Sprintf("%s %d", name, kinds[name]))
		} else {
			others += kinds[name]
		}
	}
	if others > 0 {
		parts = append(parts, fmt.Sprintf("others %d", others))
	}
	return strings.Join(parts, ", ")
}
