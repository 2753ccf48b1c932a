package jobstore_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

// Queue returns what Queues returns, for each queue.
func TestQueueEqualsItsRowInTheList(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	exec(t, pool, jobsSQL)
	exec(t, pool, `INSERT INTO forge_nodes (node_id, incarnation, queues, slots) VALUES
		('n', '00000000000000aa', '{"a": 50, "idle": 2, "o''dd/ \" ?": 1}', 10), ('m', '00000000000000bb', '{"a": 4}', 10)`)
	exec(t, pool, `INSERT INTO river_queue (name, paused_at, updated_at) VALUES ('past', now(), now())`)
	exec(t, pool, `INSERT INTO forge_claims (client_id, ids) SELECT 'x', array_agg(id) FROM river_job WHERE state = 'running'`)
	set(t, pool, jobstore.Limit{Scope: "queue", Name: "a", Most: 3})
	store := jobstore.New(pool)
	queues, err := store.Queues(t.Context())
	if err != nil || len(queues) != 5 {
		t.Fatalf("%+v, %v", queues, err)
	}
	for _, want := range queues {
		got, err := store.Queue(t.Context(), want.Name)
		if err != nil || !got.Known {
			t.Errorf("%s: known %v, %v", want.Name, got.Known, err)
		}
		want.Now, got.Now, want.WaitSeconds, got.WaitSeconds = time.Time{}, time.Time{}, 0, 0
		if diff := cmp.Diff(want, got.Queue); diff != "" {
			t.Errorf("%s (-list +one):\n%s", want.Name, diff)
		}
	}
}

// A queue is known while anything names it. Dead letters, the oldest job and the kinds are those
// of the queue alone.
func TestQueueDetail(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	exec(t, pool, `
		INSERT INTO river_job (id, kind, queue, args, state, attempt, max_attempts, priority, scheduled_at, finalized_at) VALUES
		    (1, 'k', 'a', '{}', 'available', 0, 3, 1, now() - interval '1 minute', NULL),
		    (2, 'l', 'a', '{}', 'available', 0, 3, 4, now() - interval '1 hour', NULL),
		    (3, 'm', 'other', '{}', 'available', 0, 3, 1, now() - interval '1 day', NULL),
		    (4, 'k', 'a', '{}', 'discarded', 3, 3, 1, now(), now()), (5, 'k', 'a', '{}', 'discarded', 1, 3, 1, now(), now()),
		    (6, 'k', 'ended', '{}', 'completed', 1, 3, 1, now(), now()), (7, 'k', 'stopped', '{}', 'cancelled', 1, 3, 1, now(), now()),
		    (8, 'k', 'later', '{}', 'pending', 0, 3, 1, now(), NULL), (9, 'k', 'failed', '{}', 'discarded', 3, 3, 1, now(), now())`)
	store := jobstore.New(pool)
	got, err := store.Queue(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if wait := got.Now.Sub(got.OldestAt); got.OldestID != 2 || wait < time.Hour || got.Wait() != wait {
		t.Errorf("oldest job %d waits %v, since %v", got.OldestID, got.Wait(), got.OldestAt)
	}
	if diff := cmp.Diff([]string{"k", "l"}, got.Kinds); diff != "" || got.Dead != 1 || got.MoreDead || got.Available != 2 {
		t.Errorf("%+v, kinds (-want +got):\n%s", got, diff)
	}
	for name, known := range map[string]bool{"ended": true, "stopped": true, "later": true, "failed": true, "unknown": false, "": false, `o'dd"`: false} {
		if got, err := store.Queue(t.Context(), name); err != nil || got.Known != known {
			t.Errorf("%q: known %v, %v", name, got.Known, err)
		}
	}
}
