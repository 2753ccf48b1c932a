package dashboardtest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/forge-scheduler/forge/internal/jobstore"
)

const DeadGroup = "d28cfe5c16a"

// Dead has one group of two letters, and records what it is requested to do.
type Dead struct{ *Cluster }

func (f Dead) DeadGroups(_ context.Context, filter jobstore.DeadFilter) ([]jobstore.DeadGroup, error) {
	return Read(f.Cluster, func() []jobstore.DeadGroup {
		seenTo := filter.Group == "" && len(f.Done) > 0 // no letters are left after an action on all
		if filter.Group != "" && filter.Group != DeadGroup || filter.Kind == "nobody" || seenTo {
			return nil
		}
		return []jobstore.DeadGroup{{
			Group: DeadGroup, Kind: "dump", Jobs: 2, First: Epoch.Add(-2 * time.Hour), Last: Epoch.Add(-time.Hour),
			Error: "disk <b>full</b>\x1b[0m", NewestJob: 42, SecondRound: Epoch.Add(time.Hour),
		}}
	})
}

func (f Dead) DeadLetters(_ context.Context, filter jobstore.DeadFilter, before int64, _ int) ([]jobstore.DeadLetter, error) {
	return Read(f.Cluster, func() []jobstore.DeadLetter {
		if filter.Group != DeadGroup || before != 0 {
			return nil
		}
		letters := []jobstore.DeadLetter{
			{
				ID: 42, Group: DeadGroup, Kind: "dump", Cron: "backup", NodeID: "node-2", Attempt: 3, DiedAt: Epoch.Add(-time.Hour), Error: "disk full",
				Lost: []jobstore.LostAttempt{{Attempt: 2, NodeID: "node-7", Error: "node lost: no heartbeat\x1b"}},
			},
			{ID: 41, Group: DeadGroup, Kind: "dump", Attempt: 3, DiedAt: Epoch.Add(-2 * time.Hour), Error: "disk full"},
		}
		return slices.DeleteFunc(letters, func(l jobstore.DeadLetter) bool { return filter.IDs != nil && !slices.Contains(filter.IDs, l.ID) })
	})
}

func (f Dead) CountDead(_ context.Context, filter jobstore.DeadFilter, _ jobstore.Matching) (m jobstore.Matching, err error) {
	switch {
	case filter.Kind == "vast":
		m.Jobs = 20_001
	case filter.Group == "" || filter.Group == DeadGroup:
		m = jobstore.Matching{Jobs: 2, UpTo: 42, AsOf: Epoch}
	}
	f.Mu.Lock()
	defer f.Mu.Unlock()
	return m, f.Err
}

func (f Dead) ActOnDead(_ context.Context, order jobstore.Order, filter jobstore.DeadFilter, counted jobstore.Matching) (int, error) {
	return int(counted.Jobs), Operator(f).note("backup", fmt.Sprintf("%s %v%s%s%s older %v newer %v by %s",
		order.Action, filter.IDs, filter.Group, filter.Kind, filter.Error, filter.OlderThan, filter.NewerThan, order.By))
}
