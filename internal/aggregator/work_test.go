package aggregator_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

// worked covers the 20 minutes until 12:20. The node n1 finishes six attempts in each, n2 only in
// the minute from 12:10. In five minutes, from 12:15 on, more nodes worked than are kept, and n1
// is one of the others in the last two; in the last minute, n3 is too.
const worked = `
INSERT INTO forge_metrics_rollups (step, metric, labels, at, covered, value, last)
SELECT 60, 'forge_nodes', '{}', '2026-03-01 12:00Z'::timestamptz + i * interval '1 minute', 60, 3, 3 FROM generate_series(0, 19) AS i;
INSERT INTO forge_metrics_shares (step, dimension, at, key, attempts, failures, wait)
SELECT 60, 'node', '2026-03-01 12:00Z'::timestamptz + i * interval '1 minute', key, 6, 3, CASE WHEN key <> '_other' THEN array_fill(1, ARRAY[17]) END
FROM generate_series(0, 19) AS i, unnest('{n1,n2,_other}'::text[]) AS key
WHERE key = 'n1' AND i < 18 OR key = 'n2' AND i = 10 OR key = '_other' AND i >= 15`

func TestWork(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	exec(t, pool, worked)
	to := noon.Add(20 * time.Minute)
	for name, test := range map[string]struct {
		key   string
		since time.Time
		want  *aggregator.Work
	}{
		"of 15 minutes":                   {"n1", time.Time{}, &aggregator.Work{From: noon.Add(5 * time.Minute), Unknown: 2, Started: 17, Finished: 6, Failed: 3}},
		"since a start":                   {"n1", to.Add(-150 * time.Second), &aggregator.Work{From: to.Add(-3 * time.Minute), Unknown: 2, Started: 17, Finished: 6, Failed: 3}},
		"since an earlier start":          {"n1", noon.Add(-time.Hour), &aggregator.Work{From: noon.Add(5 * time.Minute), Unknown: 2, Started: 17, Finished: 6, Failed: 3}},
		"of a minute in ten":              {"n2", time.Time{}, &aggregator.Work{From: noon.Add(5 * time.Minute), Unknown: 5, Started: 1.7, Finished: .6, Failed: .3}},
		"of nothing":                      {"n3", time.Time{}, &aggregator.Work{From: noon.Add(5 * time.Minute), Unknown: 5}},
		"of nothing that is known":        {"n1", to.Add(-2 * time.Minute), nil},
		"since a start that is no minute": {"n1", to.Add(time.Second), nil},
	} {
		got, err := aggregator.NewStore(pool).WorkOf(t.Context(), "node", test.key, to.Add(time.Minute), test.since)
		if test.want != nil {
			test.want.To = to
		}
		if diff := cmp.Diff(test.want, got, cmpopts.IgnoreTypes(aggregator.Percentiles{}), cmpopts.EquateApprox(0, 1e-9)); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
}

// Records that began minutes ago are not spread over the time before.
func TestWorkSinceRecordsBegan(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	exec(t, pool, worked)
	exec(t, pool, `DELETE FROM forge_metrics_rollups WHERE at < '2026-03-01 12:17Z'`)
	store := aggregator.NewStore(pool)
	if got, err := store.WorkOf(t.Context(), "node", "n1", noon.Add(20*time.Minute), time.Time{}); err != nil || got == nil || !got.From.Equal(noon.Add(17*time.Minute)) || got.Finished != 6 {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := store.WorkOf(t.Context(), "node", "n1", noon.Add(time.Hour), time.Time{}); got != nil || err != nil {
		t.Errorf("an hour later: %+v, %v", got, err)
	}
}
