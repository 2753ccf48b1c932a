package deadletters

import (
	"slices"
	"time"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/leaderstore"
)

// rounds contains the second rounds of the configuration in force, by kind.
type rounds map[string]config.SecondRound

// mark returns the mark that is recorded on a dead letter.
func (r rounds) mark(l deadLetter) jobstore.DeadMark {
	mark := jobstore.DeadMark{Attempt: l.attempt, Group: jobstore.Fingerprint(l.kind, l.failure)}
	if round, ok := r[l.kind]; ok && !l.hadSecondRound {
		mark.SecondRound = jobstore.MarkInstant(l.diedAt.Add(round.After))
	}
	return mark
}

// grant is the second round of one job.
type grant struct {
	candidate

	attempts int
	mark     jobstore.SecondRound
}

// decide returns which due candidates get their second round and which do not. Among
// candidates with the same unique key, the first gets it.
func (r rounds) decide(found []candidate, fence leaderstore.Fence, now time.Time) (granted []grant, forgone []int64) {
	taken := map[string]bool{}
	for _, c := range found {
		round, configured := r[c.kind]
		if !configured || !c.valid || c.uniqueKeyTaken || taken[string(c.uniqueKey)] {
			forgone = append(forgone, c.id)
			continue
		}
		if len(c.uniqueKey) > 0 {
			taken[string(c.uniqueKey)] = true
		}
		granted = append(granted, grant{candidate: c, attempts: round.Attempts, mark: jobstore.SecondRound{
			At: now.UTC(), Attempt: c.attempt, Term: fence.Term, NodeID: fence.NodeID,
		}})
	}
	return granted, forgone
}

// queuesOf returns the queues with new available jobs.
func queuesOf(granted []grant) []string {
	var queues []string
	for _, g := range granted {
		queues = append(queues, g.queue)
	}
	slices.Sort(queues)
	return slices.Compact(queues)
}
