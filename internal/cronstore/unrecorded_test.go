package cronstore_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

// Each part of a definition on which ticks depend decides which of them are missed.
func TestUnrecordedReadsAllThatTicksDependOn(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	noon := time.Now().UTC().Truncate(24 * time.Hour).Add(-12 * time.Hour)
	minutely := func(change func(*cronstore.Spec)) cronstore.Spec {
		s := spec("* * * * *")
		change(&s)
		return s
	}
	crons := map[string]cronstore.Spec{
		"all":      spec("* * * * *"),
		"begins":   minutely(func(s *cronstore.Spec) { s.StartAt = noon.Add(3 * time.Minute) }),
		"ends":     minutely(func(s *cronstore.Spec) { s.EndAt = noon.Add(3 * time.Minute) }),
		"excluded": minutely(func(s *cronstore.Spec) { s.Exclude = []string{"1-4 * * * *"} }),
		"jitter":   minutely(func(s *cronstore.Spec) { s.Jitter = config.Duration(time.Hour) }),
		"file":     minutely(func(s *cronstore.Spec) { s.Paused = true }),
		"zone":     minutely(func(s *cronstore.Spec) { s.Schedule, s.Timezone = "32 17 * * *", "Asia/Kolkata" }),
		"hand":     spec("* * * * *"),
		"resumed":  spec("* * * * *"),
		"removed":  spec("* * * * *"),
		"future":   minutely(func(s *cronstore.Spec) { s.Schedule = "every full moon" }),
		"strange":  spec("* * * * *"),
	}
	for name, s := range crons {
		exec(t, pool, `INSERT INTO forge_crons (name, spec, spec_hash, created_at, updated_at, watermark) VALUES ($1, $2, '', $3, $3, $3)`, name, s, noon.Add(-time.Hour))
	}
	exec(t, pool, `UPDATE forge_crons SET paused_at = $1 WHERE name = 'hand'`, noon.Add(150*time.Second))
	exec(t, pool, `UPDATE forge_crons SET spec = spec || jsonb_build_object('earlier', jsonb_build_array(spec || jsonb_build_object('paused', true, 'until', $1::timestamptz)))
		WHERE name = 'resumed'`, noon.Add(210*time.Second))
	exec(t, pool, `UPDATE forge_crons SET removed_at = now() WHERE name = 'removed'`)
	exec(t, pool, `UPDATE forge_crons SET spec = spec || '{"exclude": 7}' WHERE name = 'strange'`)

	found, err := cronstore.New(pool).Unrecorded(t.Context(), cronstore.Stretch{After: noon, Until: noon.Add(5 * time.Minute)})
	if err != nil {
		t.Fatal(err)
	}
	missed := map[string][]int{}
	for _, tick := range found.Waiting {
		if tick.Cron != "jitter" { // some of its ticks fire later
			missed[tick.Cron] = append(missed[tick.Cron], int(tick.Tick.Sub(noon)/time.Minute))
		}
	}
	want := map[string][]int{
		"all": {1, 2, 3, 4, 5}, "begins": {3, 4, 5}, "ends": {1, 2}, "excluded": {5}, "hand": {1, 2}, "resumed": {4, 5}, "zone": {2},
	}
	if diff := cmp.Diff(want, missed); diff != "" {
		t.Errorf("missed minutes after noon (-want +got):\n%s", diff)
	}
	if found.Crons != 9 || found.Changed != 2 || found.More {
		t.Errorf("checked %d crons, and not %d", found.Crons, found.Changed)
	}
}
