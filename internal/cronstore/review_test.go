package cronstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

// A cron that comes back is due from its removal on, within the window in which
// ticks are caught up, and is paused if it was paused.
func TestCronComesBack(t *testing.T) {
	t.Parallel()
	changed := spec("@every 10s")
	changed.Schedule = "@every 20s"
	for _, tt := range []struct {
		name        string
		removed     string // how long ago
		paused      bool
		with        cronstore.Spec
		least, most int
		all         bool // of those are marked
	}{
		{"after five minutes", "5 minutes", false, spec("@every 10s"), 30, 31, true},
		{"after a day: the window is an hour", "1 day", false, spec("@every 10s"), 360, 361, true},
		{"while it was paused by hand", "5 minutes", true, spec("@every 10s"), 30, 31, true},
		{"with another schedule, which starts from now", "5 minutes", false, changed, 0, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.Pool(t)
			apply(t, pool, "h1", map[string]cronstore.Spec{"a": spec("@every 10s")}, false)
			apply(t, pool, "h2", map[string]cronstore.Spec{}, false)
			// The leader's last read was shortly after the removal.
			exec(t, pool, `UPDATE forge_crons SET removed_at = clock_timestamp() - $1::interval,
				watermark = clock_timestamp() - $1::interval + interval '3 seconds'`, tt.removed)
			if tt.paused {
				exec(t, pool, `UPDATE forge_crons SET paused_at = removed_at - interval '1 hour'`)
			}
			apply(t, pool, "h3", map[string]cronstore.Spec{"a": tt.with}, false)
			back := get(t, pool, "a")
			timeline, err := back.Timeline()
			if err != nil {
				t.Fatal(err)
			}
			due, unconfigured, paused := 0, 0, 0
			for tick := range timeline.Ticks(back.Watermark, back.UpdatedAt) {
				due++
				if tick.Unconfigured {
					unconfigured++
				}
				if tick.Paused {
					paused++
				}
				if tick.Removed {
					t.Errorf("the tick at %s would not be fired", tick.At)
				}
			}
			if due < tt.least || due > tt.most || tt.all && unconfigured != due || (paused == due) != tt.paused && due > 0 {
				t.Errorf("%d ticks due, %d unconfigured, %d paused; want %d to %d", due, unconfigured, paused, tt.least, tt.most)
			}
			for tick := range timeline.After(back.UpdatedAt) {
				if tick.Unconfigured || tick.Paused != tt.paused {
					t.Errorf("the next tick: %+v", tick)
				}
				break
			}
		})
	}
}

// A node without an operator neither removes all or more than half of the crons nor
// applies the file of another cluster; nothing is changed in these cases.
func TestUnattendedApplyRemovesNoMoreThanHalf(t *testing.T) {
	t.Parallel()
	hour := spec("@hourly")
	four := map[string]cronstore.Spec{"a": hour, "b": hour, "c": hour, "d": hour}
	for _, tt := range []struct {
		name    string
		wanted  map[string]cronstore.Spec
		cluster string
		held    string // empty: the file is applied
	}{
		{"half of them", map[string]cronstore.Spec{"a": hour, "b": hour}, "one", ""},
		{"more than half", map[string]cronstore.Spec{"a": hour, "new": hour}, "one", "it would remove 3 of 4 crons (b, c, d)"},
		{"all of them", nil, "one", "it would remove 4 of 4 crons (a, b, c, d)"},
		{"none, for another cluster", four, "two", ""},
		{
			"one more, for another cluster",
			map[string]cronstore.Spec{"a": hour, "b": hour, "c": hour, "d": hour, "e": hour},
			"two",
			`it is the file of cluster "two", and the configuration in force is of cluster "one"`,
		},
		{"by one who does not say which", map[string]cronstore.Spec{"a": hour, "b": hour, "c": hour}, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.Pool(t)
			unattended := func(hash, cluster string, crons map[string]cronstore.Spec) error {
				_, err := cronstore.New(pool).Apply(t.Context(), cronstore.Applied{
					Hash: hash, NodeID: "n1", Crons: crons, Cluster: cluster, Confirm: cronstore.Unattended,
				}, false)
				return err
			}
			if err := unattended("h1", "one", four); err != nil {
				t.Fatal(err)
			}
			hash := "h2"
			if len(tt.wanted) == len(four) {
				hash = "h1" // the same crons are the same file
			}
			err := unattended(hash, tt.cluster, tt.wanted)
			held, isHeld := errors.AsType[*cronstore.HeldError](err)
			if isHeld != (tt.held != "") || isHeld && held.Error() != tt.held || !isHeld && err != nil {
				t.Errorf("got %v; want %q", err, tt.held)
			}
			if crons, err := cronstore.New(pool).List(t.Context()); isHeld && (err != nil || len(crons) != 4) {
				t.Errorf("%d crons are left, %v", len(crons), err)
			}
			if inForce, err := cronstore.New(pool).HashInForce(t.Context()); err != nil || isHeld && inForce != "h1" {
				t.Errorf("in force is %s, %v", inForce, err)
			}
		})
	}
}

// A preview returns what would be removed and changes nothing.
func TestPreviewChangesNothing(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	apply(t, pool, "h1", map[string]cronstore.Spec{"a": spec("@hourly"), "b": spec("@hourly")}, false)
	review, state, err := cronstore.New(pool).Preview(t.Context(), cronstore.Applied{
		Hash: "h2", NodeID: "n1", Crons: map[string]cronstore.Spec{"b": spec("@daily")}, Cluster: "one",
	}, false)
	if diff := cmp.Diff(cronstore.Review{Removed: []string{"a"}, Configured: 2, Cluster: "one"}, review); diff != "" || err != nil || state != cronstore.StateApplied {
		t.Errorf("%s, %v (-want +got):\n%s", state, err, diff)
	}
	if _, state, err := cronstore.New(pool).Preview(t.Context(), cronstore.Applied{Hash: "h1", Cluster: "one"}, false); err != nil || state != cronstore.StateInForce {
		t.Errorf("of the one in force: %s, %v", state, err)
	}
	inForce, err := cronstore.New(pool).ConfigInForce(t.Context())
	if err != nil || inForce.Hash != "h1" || inForce.Cluster != "" {
		t.Errorf("in force: %+v, %v", inForce, err)
	}
	if a := get(t, pool, "a"); !a.RemovedAt.IsZero() {
		t.Error("the cron was removed")
	}
}

// A superseded configuration whose text was deleted is not applied again.
func TestPrunedConfigStaysSuperseded(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for _, hash := range []string{"aaaa", "bbbb", "cccc"} {
		apply(t, pool, hash, nil, false)
	}
	store := cronstore.New(pool)
	if pruned, err := store.PruneConfigs(t.Context(), time.Now().Add(time.Hour), 10); err != nil || pruned != 2 {
		t.Fatalf("deleted %d configurations, %v", pruned, err)
	}
	if _, err := store.FindConfig(t.Context(), "aaaa"); !errors.Is(err, cronstore.ErrNoConfig) {
		t.Errorf("a deleted configuration: %v", err)
	}
	if outcome := apply(t, pool, "aaaa", nil, false); outcome.State != cronstore.StateSuperseded || outcome.InForce != "cccc" {
		t.Errorf("%+v", outcome)
	}
	if outcome := apply(t, pool, "aaaa", nil, true); outcome.State != cronstore.StateApplied {
		t.Errorf("%+v", outcome)
	}
}
