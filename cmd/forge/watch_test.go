package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/leaderstore"
)

func TestWatchReportsEachChangeOnce(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return time.Unix(int64(s), 0).UTC() }
	first := leaderstore.Tenure{Role: "scheduler", Term: 1, NodeID: "a", AcquiredAt: at(1)}
	seen, news := beginTenures([]leaderstore.Tenure{first})
	want := []leaderChange{{At: at(1), Change: "leads", Role: "scheduler", NodeID: "a", Term: 1}}
	if diff := cmp.Diff(want, news); diff != "" {
		t.Error(diff)
	}
	first.EndedAt, first.EndReason = at(5), "crashed"
	second := leaderstore.Tenure{
		Role: "scheduler", Term: 2, NodeID: "b", AcquiredAt: at(6), EndedAt: at(7), EndReason: "resigned",
		HasGap: true, Gap: time.Second,
	}
	gap := 1000.0
	want = []leaderChange{
		{At: at(5), Change: "lost", Role: "scheduler", NodeID: "a", Term: 1, Reason: "crashed"},
		{At: at(6), Change: "elected", Role: "scheduler", NodeID: "b", Term: 2, GapMS: &gap},
		{At: at(7), Change: "lost", Role: "scheduler", NodeID: "b", Term: 2, Reason: "resigned"},
	}
	if diff := cmp.Diff(want, seen.update([]leaderstore.Tenure{second, first})); diff != "" {
		t.Error(diff)
	}
	if again := seen.update([]leaderstore.Tenure{second, first}); len(again) != 0 {
		t.Errorf("reported twice: %+v", again)
	}
}
