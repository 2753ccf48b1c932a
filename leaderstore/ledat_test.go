package leaderstore_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/leaderstore"
)

// ledHistory has two terms of the scheduler with a gap of half an hour between them, the
// second of which lasts, and a role that has lost its leader.
const ledHistory = `
INSERT INTO forge_leader_history (role, term, node_id, incarnation, acquired_at, ended_at, end_reason, gap) VALUES
    ('scheduler', 1, 'a', 'a1', '2026-03-01 10:00Z', '2026-03-01 11:00Z', 'crashed', NULL),
    ('scheduler', 2, 'b', 'b1', '2026-03-01 11:30Z', NULL, NULL, '30 min'),
    ('log_compactor', 7, 'a', 'a1', '2026-03-01 10:00Z', '2026-03-01 11:00Z', 'crashed', '1 min');
INSERT INTO forge_leaders (role, node_id, incarnation, term, acquired_at, renewed_at, lease_until) VALUES
    ('scheduler', 'b', 'b1', 2, '2026-03-01 11:30Z', now(), now() + interval '1 hour'),
    ('log_compactor', NULL, NULL, 7, NULL, NULL, NULL)`

func TestLedAt(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	if _, err := pool.Exec(t.Context(), ledHistory); err != nil {
		t.Fatal(err)
	}
	at := func(clock string) time.Time {
		instant, err := time.Parse(time.RFC3339, "2026-03-01T"+clock+"Z")
		if err != nil {
			t.Fatal(err)
		}
		return instant
	}
	first := leaderstore.LedAt{Role: "scheduler", State: leaderstore.Led, NodeID: "a", Term: 1, From: at("10:00:00"), Until: at("11:00:00"), EndReason: "crashed"}
	gap := leaderstore.LedAt{Role: "scheduler", State: leaderstore.Gap, From: at("11:00:00"), Until: at("11:30:00"), EndReason: "crashed", NextNodeID: "b", NextTerm: 2}
	for clock, want := range map[string]leaderstore.LedAt{
		"09:59:59": {Role: "scheduler", State: leaderstore.NotRecorded, Until: at("10:00:00"), NextNodeID: "a", NextTerm: 1},
		"10:00:00": first, "10:59:59": first, "11:00:00": gap, "11:29:59": gap,
		"11:30:00": {Role: "scheduler", State: leaderstore.Led, NodeID: "b", Term: 2, From: at("11:30:00")},
		"23:00:00": {Role: "scheduler", State: leaderstore.Led, NodeID: "b", Term: 2, From: at("11:30:00")},
	} {
		found, err := leaderstore.New(pool).LedAt(t.Context(), at(clock))
		if err != nil || len(found) != 2 {
			t.Fatalf("%v, %v", found, err)
		}
		if diff := cmp.Diff(want, found[0]); diff != "" {
			t.Errorf("at %s (-want +got):\n%s", clock, diff)
		}
	}
	for clock, want := range map[string]leaderstore.LedAt{
		"09:58:00": {Role: "log_compactor", State: leaderstore.NotRecorded, Until: at("10:00:00"), NextNodeID: "a", NextTerm: 7},
		"09:59:30": {Role: "log_compactor", State: leaderstore.Gap, From: at("09:59:00"), Until: at("10:00:00"), NextNodeID: "a", NextTerm: 7},
		"12:00:00": {Role: "log_compactor", State: leaderstore.Gap, From: at("11:00:00"), EndReason: "crashed"},
	} {
		found, err := leaderstore.New(pool).LedAt(t.Context(), at(clock))
		if err != nil || len(found) != 2 {
			t.Fatalf("%v, %v", found, err)
		}
		if diff := cmp.Diff(want, found[1]); diff != "" {
			t.Errorf("at %s (-want +got):\n%s", clock, diff)
		}
	}
}

// A time selects the terms that overlap it, even if only with the gap before them.
func TestTenuresOfTime(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	if _, err := pool.Exec(t.Context(), ledHistory); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		from, to string
		want     []int64
	}{
		{"2026-03-01T08:00:00Z", "2026-03-01T10:00:00Z", nil},
		{"2026-03-01T10:30:00Z", "2026-03-01T10:31:00Z", []int64{1}},
		{"2026-03-01T10:30:00Z", "2026-03-01T11:00:01Z", []int64{2, 1}},
		{"2026-03-01T11:00:00Z", "2026-03-01T11:10:00Z", []int64{2}},
		{"2026-03-01T20:00:00Z", "2026-03-01T20:10:00Z", []int64{2}},
	} {
		from, _ := time.Parse(time.RFC3339, test.from)
		to, _ := time.Parse(time.RFC3339, test.to)
		found, err := leaderstore.New(pool).Tenures(t.Context(), leaderstore.TenureFilter{Role: role, From: from, To: to, Limit: 9})
		var terms []int64
		for _, tenure := range found {
			terms = append(terms, tenure.Term)
		}
		if diff := cmp.Diff(test.want, terms); diff != "" || err != nil {
			t.Errorf("%s to %s: %v (-want +got):\n%s", test.from, test.to, err, diff)
		}
	}
}
