package jobstore

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/forge-scheduler/forge/internal/pgtest"
)

// Each node has a limit per node of its own, which its claims count and keep, also for jobs that
// ran before the limit.
func TestLimitPerNode(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	first := newTestClient(t, pool)
	mustExec(t, pool, `INSERT INTO forge_nodes (node_id, incarnation) VALUES ('m', '00000000000000bb')`)
	second := NewClient(pool, Identity{ClientID: "m-00000000000000bb", NodeID: "m", Incarnation: "00000000000000bb", Schema: "public"})
	mustExec(t, pool, `INSERT INTO river_job (args, kind) SELECT json_build_object('device', CASE WHEN i <= 6 THEN 'x' ELSE 'y' END), 'k' FROM generate_series(1, 9) AS i`)
	claim(t, first, numbers(1, 1)) // without a limit
	onQueue, onKind := Limit{Scope: ScopeQueue, Name: "default", Most: 2, Key: "args.device", PerNode: true}, Limit{Scope: ScopeJob, Name: "k", Most: 3, Key: "'any'", PerNode: true}
	setLimits(t, pool, onQueue, onKind)
	inForce, err := New(pool).Limits(t.Context())
	if diff := cmp.Diff([]Limit{onKind, onQueue}, inForce, cmpopts.SortSlices(func(a, b Limit) bool { return a.Scope < b.Scope })); err != nil || diff != "" {
		t.Fatalf("%v %s", err, diff)
	}
	claimed := func(client *Client, first, last int64) (ids []int64) {
		t.Helper()
		rows, err := claimLimited(t.Context(), client, Offer{Queue: "default", IDs: numbers(first, last), Term: 1, MaxAttemptedBy: 100})
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range rows {
			ids = append(ids, row.ID)
		}
		return ids
	}
	for _, test := range []struct {
		what        string
		client      *Client
		first, last int64
		want        []int64
	}{
		{"one beside the one that runs", first, 2, 6, []int64{2}},
		{"no more", first, 3, 6, nil},
		{"of another value, up to the limit of the kind", first, 7, 9, []int64{7}},
		{"on another node", second, 3, 6, []int64{3, 4}},
		{"there up to the limit of the kind", second, 8, 9, []int64{8}},
	} {
		if diff := cmp.Diff(test.want, claimed(test.client, test.first, test.last)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.what, diff)
		}
	}
	of := func(client *Client, key string, jobs int) Places {
		return Places{ScopeQueue, "default", ClassNode, key, client.of.ClientID, jobs}
	}
	want := []Places{of(first, "x", 2), of(first, "y", 1), of(second, "x", 2), of(second, "z", 0)}
	places, err := New(pool).PlacesTaken(t.Context(), want)
	if diff := cmp.Diff(want, places, cmpopts.SortSlices(func(a, b Places) bool { return a.Client+a.Key > b.Client+b.Key })); err != nil || diff != "" {
		t.Errorf("places: %v %s", err, diff)
	}
	holders, err := New(pool).Holders(t.Context(), of(second, "x", 0), 9)
	if diff := cmp.Diff([]int64{3, 4}, holders); err != nil || diff != "" {
		t.Errorf("holders: %v %s", err, diff)
	}
	usages, err := New(pool).Usages(t.Context())
	if err != nil || len(usages) != 2 || !usages[0].PerNode || usages[0].Running != 6 {
		t.Errorf("usages: %+v, %v", usages, err)
	}
}
