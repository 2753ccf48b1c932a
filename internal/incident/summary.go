package incident

import (
	"fmt"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/internal/explain"
)

// endings describe what the old leader did, by the end reason of its term.
var endings = map[string]string{
	"resigned":      "resigned",
	"stepped_down":  "stepped down",
	"transferred":   "transferred the role",
	"crashed":       "crashed",
	"lease_expired": "did not renew its lease",
	"evicted":       "was evicted, because its session outlived its lease",
	"database_lost": "lost the database",
}

// Ended describes what the old leader did.
func (o *OldLeader) Ended() string {
	words, known := endings[o.EndReason]
	switch {
	case !known:
		words = "lost the role"
	case o.Drill:
		words += " for a drill"
	case o.AskedBy != "" && planned(o.EndReason):
		words += ", as " + o.AskedBy + " requested"
	}
	return words
}

// summarize returns the report in a few sentences.
func (i *Incident) summarize() string {
	if i.Old == nil {
		return fmt.Sprintf("%s became the leader. The history has no term before this one.", i.NodeID)
	}
	said := []string{fmt.Sprintf("%s %s.", i.Old.NodeID, i.Old.Ended())}
	switch {
	case i.Kind == NoLeader:
		said = append(said, fmt.Sprintf("The role has had no leader for %s.", explain.Span(i.Gap())))
	case i.NodeID == i.Old.NodeID:
		said = append(said, fmt.Sprintf("It became the leader again %s later.", explain.Span(i.Gap())))
	default:
		said = append(said, fmt.Sprintf("%s became the leader %s later.", i.NodeID, explain.Span(i.Gap())))
	}
	return strings.Join(append(said, append(i.cost(), i.Loss())...), " ")
}

// cost describes the delayed ticks and the rescued jobs.
func (i *Incident) cost() (said []string) {
	switch ticks := i.Ticks; {
	case ticks == nil:
	case ticks.Count == 0:
		said = append(said, "No tick was delayed.")
	case ticks.More:
		said = append(said, fmt.Sprintf("At least %d ticks were delayed, the worst by %s.", ticks.Count, milliseconds(ticks.WorstMS)))
	default:
		said = append(said, fmt.Sprintf("%s delayed, the worst by %s.", count(ticks.Count, "tick was", "ticks were"), milliseconds(ticks.WorstMS)))
	}
	if i.Jobs.Rescued > 0 {
		said = append(said, fmt.Sprintf("%s of %s rescued.", count(int64(i.Jobs.Rescued), "running job", "running jobs"), i.Old.NodeID+verb(i.Jobs.Rescued)))
	}
	return said
}

// Loss describes what was lost.
func (i *Incident) Loss() string {
	var said []string
	if ticks := i.Lost.Ticks; ticks != nil && ticks.LostCount > 0 {
		said = append(said, count(int64(ticks.LostCount), "due tick is", "due ticks are")+" not in the ledger.")
	}
	if ticks := i.Lost.Ticks; ticks != nil && ticks.WaitingCount > 0 {
		said = append(said, count(int64(ticks.WaitingCount), "due tick is", "due ticks are")+" not recorded yet.")
	}
	if i.Jobs.Orphaned > 0 {
		said = append(said, count(int64(i.Jobs.Orphaned), "job is", "jobs are")+" still orphaned.")
	}
	switch {
	case len(said) > 0:
		return strings.Join(said, " ")
	case i.Lost.Nothing:
		return "Nothing was lost."
	default:
		return "Nothing is known to be lost. " + i.Lost.Unchecked
	}
}

func milliseconds(ms float64) string {
	return explain.Span(time.Duration(ms * float64(time.Millisecond)))
}

func verb(n int) string {
	if n == 1 {
		return " was"
	}
	return " were"
}

func count(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
