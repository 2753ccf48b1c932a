package jobstore

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/pgtest"
)

// newSecondClient returns a client of another node than newTestClient.
func newSecondClient(t *testing.T, pool *pgxpool.Pool) *Client {
	t.Helper()
	mustExec(t, pool, `INSERT INTO forge_nodes (node_id, incarnation) VALUES ('m', '00000000000000bb')`)
	return NewClient(pool, Identity{ClientID: "m-00000000000000bb", NodeID: "m", Incarnation: "00000000000000bb", Schema: "public"})
}

// Each node has a limit per node of its own, which its claims count and keep, also for jobs that
// ran before the limit.
func TestLimitPerNode(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	first, second := newTestClient(t, pool), newSecondClient(t, pool)
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

// A job that is retried on another node takes a place there, and none on the node that ran it
// before, even while other jobs of the first claim still run.
func TestRetryOnAnotherNodeFreesPlace(t *testing.T) {
	t.Parallel()
	for name, forget := range map[string]bool{"forgotten claims": true, "no forgotten claims": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.Pool(t)
			first, second := newTestClient(t, pool), newSecondClient(t, pool)
			setLimits(t, pool, Limit{Scope: ScopeQueue, Name: "default", Most: 3, Key: "'gpu'", PerNode: true})
			mustExec(t, pool, `INSERT INTO river_job (args, kind) SELECT '{}', 'k' FROM generate_series(1, 5)`)
			claimAll := func(client *Client, ids ...int64) {
				t.Helper()
				rows, err := claimLimited(t.Context(), client, Offer{Queue: "default", IDs: ids, Term: 1, MaxAttemptedBy: 100})
				if err != nil || len(rows) != len(ids) {
					t.Errorf("claimed %d jobs, want %d: %v", len(rows), len(ids), err)
				}
			}
			demand := func(what string, client *Client, want ...int64) {
				t.Helper()
				of := Places{Scope: ScopeQueue, Name: "default", Class: ClassNode, Key: "gpu", Client: client.of.ClientID}
				places, err := New(pool).PlacesTaken(t.Context(), []Places{of})
				if err != nil || len(places) != 1 || places[0].Jobs != len(want) {
					t.Errorf("%s: places %+v, want %d: %v", what, places, len(want), err)
				}
				holders, err := New(pool).Holders(t.Context(), of, 9)
				if diff := cmp.Diff(want, holders); err != nil || diff != "" {
					t.Errorf("%s: holders (-want +got), %v:\n%s", what, err, diff)
				}
			}
			claimAll(first, 1, 2, 3)
			mustExec(t, pool, `UPDATE river_job SET state = 'available' WHERE id = 1`)
			if forget {
				forgetClaims(t, pool)
			}
			claimAll(second, 1)
			demand("the first node", first, 2, 3)
			demand("the second node", second, 1)
			claimAll(first, 4)
			mustExec(t, pool, `UPDATE river_job SET state = 'available' WHERE id = 2`)
			claimAll(first, 2)
			demand("after a retry on the same node", first, 3, 4, 2)
		})
	}
}
