package assign

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// waitReportInterval is the pause between two reports of the waits for limits. A wait of
	// which no sweep has read the job for twice as long is over.
	waitReportInterval = 5 * time.Second
	// maxWaits is the maximum number of groups that are reported with the value of their key.
	maxWaits = 50
	// maxTimedGroups bounds the groups whose waits are known.
	maxTimedGroups = 10_000
	otherKeys      = "_other"
)

// limitWaits tracks, for the groups that hold jobs back, since when the oldest of these jobs
// has been due. A sweep reads only a part of a backlog, so a report is about the jobs that were
// read since the report before the last one.
type limitWaits struct {
	reportedAt time.Time
	// current contains what was read since reportedAt, last what was read before.
	current, last map[group]time.Time
	starvation    starvation
}

// note records that a group holds back a job that was due at a time.
func (w *limitWaits) note(g group, due time.Time) {
	if w.current == nil {
		w.current = map[group]time.Time{}
	}
	oldest, known := w.current[g]
	if !known && len(w.current) >= maxTimedGroups && !w.starvation.knows(g) {
		return
	}
	if !known || due.Before(oldest) {
		w.current[g] = due
	}
}

// report sets the series of the waits, if the last report is long ago. It returns since when the
// oldest job of each group has been due; nil if there is no report.
func (w *limitWaits) report(now time.Time, wait *prometheus.GaugeVec) (oldest map[group]time.Time) {
	if now.Sub(w.reportedAt) < waitReportInterval {
		return nil
	}
	oldest = maps.Clone(w.last)
	if oldest == nil {
		oldest = map[group]time.Time{}
	}
	for g, due := range w.current {
		if before, ok := oldest[g]; !ok || due.Before(before) {
			oldest[g] = due
		}
	}
	w.reportedAt, w.last, w.current = now, w.current, nil
	wait.Reset()
	longest := slices.SortedFunc(maps.Keys(oldest), func(a, b group) int {
		return cmp.Or(oldest[a].Compare(oldest[b]), cmp.Compare(a.name, b.name), cmp.Compare(a.key, b.key))
	})
	others := map[limitID]bool{}
	for i, g := range longest {
		key := g.key
		if i >= maxWaits && key != "" {
			if others[g.limitID] {
				continue // one with a longer wait has set it
			}
			key, others[g.limitID] = otherKeys, true
		}
		wait.WithLabelValues(g.scope, g.name, g.class, key).Set(now.Sub(oldest[g]).Seconds())
	}
	return oldest
}
