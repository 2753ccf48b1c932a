package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/internal/pgtest"
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

// A stable leader is shown, and so is its end, however many terms others have had since.
func TestWatchFindsLeadersBehindManyTerms(t *testing.T) {
	t.Parallel()
	ctx, pool := t.Context(), pgtest.Connect(t, pgtest.URL(t))
	exec := func(sql string) {
		t.Helper()
		if _, err := pool.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	flap := func(from, to int) {
		t.Helper()
		exec(fmt.Sprintf(`
INSERT INTO forge_leader_history (role, term, node_id, incarnation, acquired_at, ended_at, end_reason)
SELECT 'log_compactor', n, 'b', 'x', now() + n * interval '1 ms' - interval '10 s', now() + n * interval '1 ms' - interval '10 s', 'crashed'
FROM generate_series(%d, %d) AS n`, from, to))
	}
	exec(`INSERT INTO forge_leader_history (role, term, node_id, incarnation, acquired_at) VALUES ('scheduler', 1, 'a', 'x', now() - interval '1 day')`)
	flap(1, 500)
	watch := leaderWatch{store: leaderstore.New(pool)}
	changes := func() (lines []string) {
		t.Helper()
		news, err := watch.news(ctx, pool)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range news {
			lines = append(lines, fmt.Sprint(c.Role, " ", c.Term, " ", c.Change))
		}
		return lines
	}
	if diff := cmp.Diff([]string{"scheduler 1 leads"}, changes()); diff != "" {
		t.Error(diff)
	}
	flap(501, 1000)
	if got := changes(); len(got) != 2*500 || got[0] != "log_compactor 501 elected" || got[999] != "log_compactor 1000 lost" {
		t.Errorf("%d changes, %q to %q", len(got), got[0], got[len(got)-1])
	}
	exec(`UPDATE forge_leader_history SET ended_at = now() - interval '1 hour', end_reason = 'crashed' WHERE role = 'scheduler'`)
	if diff := cmp.Diff([]string{"scheduler 1 lost"}, changes()); diff != "" {
		t.Error(diff)
	}
	if again := changes(); len(again) != 0 {
		t.Errorf("reported twice: %v", again)
	}
}
