package assign

import (
	"context"
	"maps"
	"slices"
)

// maxUnworked bounds the kinds that are told of, for a row can name any; those
// beyond them share otherKinds.
const (
	maxUnworked = 100
	otherKinds  = "_other"
)

// census are waiting jobs by kind, of kinds that no member works.
type census map[string]int

// add counts jobs of a kind, and returns the census.
func (c census) add(kind string, jobs int) census {
	if c == nil {
		c = census{}
	}
	named := len(c)
	if c[otherKinds] > 0 {
		named--
	}
	if c[kind] == 0 && named >= maxUnworked {
		kind = otherKinds
	}
	c[kind] += jobs
	return c
}

// works says whether any member has a worker for the job's kind.
func (b *board) works(j job) bool {
	return slices.ContainsFunc(b.members, func(m *member) bool { return m.works(j) })
}

// unworkedNow is what the last whole pass found, or the present one where that is
// more already.
func (l *lane) unworkedNow() census {
	found := maps.Clone(l.unworked)
	for kind, jobs := range l.countingUnworked {
		if more := jobs - found[kind]; more > 0 {
			found = found.add(kind, more)
		}
	}
	return found
}

// tellUnworked says of each kind that no live node works that its jobs wait: once,
// until one does or none waits.
func (l *loop) tellUnworked(ctx context.Context) {
	var found census
	for _, queue := range slices.Sorted(maps.Keys(l.lanes)) {
		lane := l.lanes[queue].unworkedNow()
		for _, kind := range slices.Sorted(maps.Keys(lane)) {
			found = found.add(kind, lane[kind])
		}
	}
	for kind := range l.board.told {
		if found[kind] == 0 {
			delete(l.board.told, kind)
			l.metrics.AssignmentUnworked.DeleteLabelValues(kind)
		}
	}
	for kind, jobs := range found {
		l.metrics.AssignmentUnworked.WithLabelValues(kind).Set(float64(jobs))
		if !l.board.told[kind] {
			l.board.told[kind] = true
			l.logger.WarnContext(ctx, "no live node has a worker for a kind; its jobs wait", "kind", kind, "jobs", jobs)
		}
	}
}
