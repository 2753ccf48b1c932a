package assign

import (
	"context"
	"maps"
	"slices"
)

// maxUnworked is the maximum number of kinds that are reported by name, because a row can
// name any kind. Further kinds share otherKinds.
const (
	maxUnworked = 100
	otherKinds  = "_other"
)

// kindCounts counts waiting jobs by kind, for kinds that no member works.
type kindCounts map[string]int

// add adds jobs of a kind and returns the counts.
func (c kindCounts) add(kind string, jobs int) kindCounts {
	if c == nil {
		c = kindCounts{}
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

// works reports whether any member has a worker for the job's kind.
func (t *nodeTable) works(j job) bool {
	return slices.ContainsFunc(t.members, func(m *member) bool { return m.works(j) })
}

// unworkedNow returns the counts of the last complete pass, or of the current pass where
// they are higher.
func (q *queueScan) unworkedNow() kindCounts {
	found := maps.Clone(q.unworked)
	for kind, jobs := range q.countingUnworked {
		if more := jobs - found[kind]; more > 0 {
			found = found.add(kind, more)
		}
	}
	return found
}

// logUnworked logs each kind that no live node works and whose jobs wait. It logs a kind
// once until a node works it or no job waits.
func (l *loop) logUnworked(ctx context.Context) {
	var found kindCounts
	for _, queue := range slices.Sorted(maps.Keys(l.queueScans)) {
		counts := l.queueScans[queue].unworkedNow()
		for _, kind := range slices.Sorted(maps.Keys(counts)) {
			found = found.add(kind, counts[kind])
		}
	}
	for kind := range l.nodes.loggedKinds {
		if found[kind] == 0 {
			delete(l.nodes.loggedKinds, kind)
			l.metrics.AssignmentUnworked.DeleteLabelValues(kind)
		}
	}
	for kind, jobs := range found {
		l.metrics.AssignmentUnworked.WithLabelValues(kind).Set(float64(jobs))
		if !l.nodes.loggedKinds[kind] {
			l.nodes.loggedKinds[kind] = true
			l.logger.WarnContext(ctx, "no live node has a worker for a kind; its jobs wait", "kind", kind, "jobs", jobs)
		}
	}
}
