package cronstore_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

func TestConfigurationOfAQueue(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	store := cronstore.New(pool)
	if configured, kinds, err := store.Queue(t.Context(), "mail", 5); configured != nil || len(kinds) != 0 || err != nil {
		t.Errorf("without a configuration: %+v, %v, %v", configured, kinds, err)
	}
	if _, err := pool.Exec(t.Context(), `INSERT INTO forge_config (hash, applied_by, body) VALUES ('h', 'test', $1)`, json.RawMessage(`{
		"queues": {"mail": {"max_workers": 4, "global_limit": 9, "limit_per_key": {"key": "args.tenant", "limit": 2}, "rate_limit": {"limit": 9, "per": "1m", "burst": 3, "key": "cron"}, "priority": 2}, "default": {"priority": 1}},
		"jobs": {"send": {"queue": "mail"}, "bounce": {"queue": "mail"}, "report": {"queue": "default"}, "plain": {}}}`)); err != nil {
		t.Fatal(err)
	}
	configured, kinds, err := store.Queue(t.Context(), "mail", 5)
	if diff := cmp.Diff(&cronstore.QueueConfig{MaxWorkers: 4, GlobalLimit: 9, LimitPerKey: &cronstore.KeyLimit{Key: "args.tenant", Limit: 2}, RateLimit: &cronstore.Rate{Limit: 9, Per: "1m", Burst: 3, Key: "cron"}, Priority: 2}, configured); diff != "" || err != nil || !cmp.Equal(kinds, []string{"bounce", "send"}) {
		t.Errorf("%v, %v (-want +got):\n%s", kinds, err, diff)
	}
	if configured, kinds, err = store.Queue(t.Context(), "default", 5); configured == nil || !cmp.Equal(kinds, []string{"plain", "report"}) || err != nil {
		t.Errorf("default: %+v, %v, %v", configured, kinds, err)
	}
	if configured, kinds, err = store.Queue(t.Context(), `o'dd/"`, 5); configured != nil || len(kinds) != 0 || err != nil {
		t.Errorf("an unknown queue: %+v, %v, %v", configured, kinds, err)
	}
}

// The crons of a queue are found by an index among many others.
func TestCronsOfAQueue(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for _, sql := range []string{
		`INSERT INTO forge_crons (name, spec, spec_hash, watermark)
			SELECT 'c' || i, jsonb_build_object('job', 'j' || i, 'queue', CASE WHEN i IN (7, 80) THEN 'mail' ELSE 'default' END), 'h', now() FROM generate_series(1, 20000) AS i`,
		`INSERT INTO forge_crons (name, spec, spec_hash, watermark, removed_at) VALUES ('gone', '{"job": "j", "queue": "mail"}', 'h', now(), now())`,
		`UPDATE forge_crons SET paused_at = now(), next_tick = now() WHERE name = 'c80'`,
		`VACUUM ANALYZE forge_crons`,
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	crons, err := cronstore.New(pool).OfQueue(t.Context(), "mail", 5)
	if err != nil || len(crons) != 2 || crons[0].Name != "c7" || crons[0].Job != "j7" || crons[0].Paused || !crons[1].Paused || crons[1].NextTick.IsZero() {
		t.Errorf("%+v, %v", crons, err)
	}
	rows, err := pool.Query(t.Context(), "EXPLAIN "+cronstore.QueueCronsSQL, "mail", 5)
	if err != nil {
		t.Fatal(err)
	}
	var plan strings.Builder
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			t.Fatal(err)
		}
		plan.WriteString(line + "\n")
	}
	if err := rows.Err(); err != nil || !strings.Contains(plan.String(), "forge_crons_queue") {
		t.Errorf("the plan does not use the index, %v:\n%s", err, plan.String())
	}
}
