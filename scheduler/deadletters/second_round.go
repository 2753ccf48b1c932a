package deadletters

import (
	"time"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/leaderstore"
)

// rounds contains the second rounds of the configuration in force, by kind.
type rounds map[string]config.SecondRound

// mark returns the mark that is recorded on a dead letter.
func (r rounds) mark(l jobstore.NewDead) jobstore.DeadMark {
	mark := jobstore.DeadMark{Attempt: l.Attempt, Group: jobstore.Fingerprint(l.Kind, l.Failure)}
	if round, ok := r[l.Kind]; ok && !l.HadSecondRound {
		mark.SecondRound = jobstore.MarkInstant(l.DiedAt.Add(round.After))
	}
	return mark
}

// decide returns which due candidates get their second round and which do not. Among
// candidates with the same unique key, the first gets it.
func (r rounds) decide(found []jobstore.DueRound, fence leaderstore.Fence, now time.Time) (granted []jobstore.GrantedRound, forgone []int64) {
	taken := map[string]bool{}
	for _, c := range found {
		round, configured := r[c.Kind]
		if !configured || !c.Valid || c.UniqueKeyTaken || taken[string(c.UniqueKey)] {
			forgone = append(forgone, c.ID)
			continue
		}
		if len(c.UniqueKey) > 0 {
			taken[string(c.UniqueKey)] = true
		}
		granted = append(granted, jobstore.GrantedRound{DueRound: c, Attempts: round.Attempts, Mark: jobstore.SecondRound{
			At: now.UTC(), Attempt: c.Attempt, Term: fence.Term, NodeID: fence.NodeID,
		}})
	}
	return granted, forgone
}
