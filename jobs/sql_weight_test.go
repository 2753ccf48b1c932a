package jobs_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/jobs"
)

// SQL refuses a weight with which a job would never start, as the API does.
func TestSQLEnqueueRefusesWeightAboveRate(t *testing.T) {
	t.Parallel()
	pool, inserter := apply(t, enqueueFile)
	exec(t, pool, `INSERT INTO forge_limits (scope, name, most, key_source, key_path, per, burst)
		VALUES ('queue_rate', 'mail', 10, 'args', '{tenant}', '1 minute', 4), ('job_rate', 'plain', 6, NULL, NULL, '1 minute', NULL), ('queue', 'default', 1, NULL, NULL, NULL, NULL)`)
	for _, test := range []struct{ kind, opts, want string }{
		{"plain", `{"weight": 6}`, `<nil>`},
		{"plain", `{"weight": 7}`, `opts.weight: more units than the rate_limit of job plain ever has at once (got 7); Want at most 6.`},
		{"wave", `{"weight": 7}`, `<nil>`},
		{"wave", `{"weight": 4, "queue": "mail"}`, `<nil>`},
		{"wave", `{"weight": 5, "queue": "mail"}`, `opts.weight: more units than the rate_limit of queue mail ever has at once (got 5); Want at most 4.`},
	} {
		_, err := sqlEnqueue(t.Context(), pool, test.kind, `{}`, test.opts)
		if got := refusal(err); got != test.want {
			t.Errorf("%s %s: got %s, want %s", test.kind, test.opts, got, test.want)
		}
		var job jobstore.NewJob
		if err := json.Unmarshal([]byte(test.opts), &job); err != nil {
			t.Fatal(err)
		}
		job.Kind = test.kind
		if _, err := jobs.NewEnqueuer(pool, inserter).Enqueue(t.Context(), job, true, "test"); isHeavy(err) != (test.want != "<nil>") {
			t.Errorf("%s %s: the API answers %v", test.kind, test.opts, err)
		}
	}
	_, err := pool.Exec(t.Context(), `SELECT forge_enqueue_many('[{"kind": "wave"}, {"kind": "plain", "weight": 7}]')`)
	if got := refusal(err); !strings.HasPrefix(got, "jobs[1].weight: more units") {
		t.Errorf("got %s", got)
	}
}

func isHeavy(err error) bool {
	_, ok := errors.AsType[jobstore.WeightError](err)
	return ok
}

// The functions record what they add, without duplicates, so that nodes count it.
func TestSQLEnqueueIsCounted(t *testing.T) {
	t.Parallel()
	pool, _ := apply(t, enqueueFile)
	mustSQLEnqueue(t, pool, "plain", `{}`, `{"unique": "a"}`)
	mustSQLEnqueue(t, pool, "plain", `{}`, `{"unique": "a"}`)
	exec(t, pool, `SELECT * FROM forge_enqueue_many('[{"kind": "plain"}, {"kind": "wave"}, {"kind": "plain", "unique": "a"}, {"kind": "wave"}, {"kind": "wave", "unique": "b", "throttle": "1h"}, {"kind": "wave", "unique": "b", "throttle": "1h"}]')`)
	if got, want := rows(t, pool, `SELECT concat_ws(' ', kind, jobs) FROM forge_sql_enqueued ORDER BY id, kind`), []string{"plain 1", "plain 1", "wave 3"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	counts, more, err := jobstore.New(pool).TakeSQLEnqueued(t.Context())
	slices.SortFunc(counts, func(a, b jobstore.KindCount) int { return strings.Compare(a.Kind, b.Kind) })
	if want := []jobstore.KindCount{{Kind: "plain", Jobs: 2}, {Kind: "wave", Jobs: 3}}; err != nil || more || !slices.Equal(counts, want) {
		t.Errorf("got %v, %v, %v", counts, more, err)
	}
	if left, _, err := jobstore.New(pool).TakeSQLEnqueued(t.Context()); err != nil || len(left) > 0 {
		t.Errorf("taken twice: %v, %v", left, err)
	}
}
