package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/forge-scheduler/forge/internal/compactor"
)

// passMargin is the delay that a pass may have: the previous one may take long, and a new
// leader begins its interval when it takes over.
const passMargin = 10 * time.Minute

// checkCompaction checks the log compactor's last pass. Without a running node there is
// no compactor to check.
func checkCompaction(f Facts, r *report) {
	if f.livingNodes() == 0 {
		return
	}
	now, since := f.upSince()
	if len(f.Cluster.Passes) == 0 {
		if now.Sub(since) < passMargin {
			r.ok("no pass yet; the nodes started %s ago", now.Sub(since).Round(time.Second))
			return
		}
		r.warn("see why nobody leads log_compactor: forge leader status", "no finished run or output was ever removed or merged")
		return
	}
	last := f.Cluster.Passes[0]
	ago := now.Sub(last.EndedAt).Round(time.Second)
	switch late := now.Sub(last.NextAt); {
	case late > passMargin && now.Sub(since) > passMargin:
		r.warn("see why nobody leads log_compactor: forge leader status; a long pass stands in its node's log",
			"no pass since %s ago; the next was due %s ago", ago, late.Round(time.Second))
	case len(last.Failed) > 0:
		what := slices.Sorted(maps.Keys(last.Failed))
		r.warn("forge compact status -o json has the errors; every pass tries again",
			"the last pass, %s ago, could not do all: %s (%s)", ago, strings.Join(what, ", "), last.Failed[what[0]])
	default:
		r.ok("last pass %s ago by %s: %s; the next is due %s", ago, last.NodeID, did(last), due(last.NextAt.Sub(now)))
	}
}

// upSince returns the database's time, and the time at which the first of the running
// nodes started.
func (f Facts) upSince() (now, since time.Time) {
	for _, node := range f.Cluster.Nodes {
		if !node.Present() || !f.heard(node) {
			continue
		}
		now = node.Now
		if since.IsZero() || node.StartedAt.Before(since) {
			since = node.StartedAt
		}
	}
	return now, since
}

func did(pass compactor.Pass) string {
	removed := int64(0)
	for _, rows := range pass.Removed {
		removed += rows
	}
	text := humanize.Comma(removed) + " rows removed"
	if pass.Chunks > 0 {
		text += fmt.Sprintf(", output merged from %s to %s", bytes(pass.TextBytes), bytes(pass.PackBytes))
	}
	return text
}

func due(in time.Duration) string {
	if in < time.Second {
		return "now"
	}
	return "in " + in.Round(time.Second).String()
}
