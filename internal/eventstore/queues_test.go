package eventstore_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

func TestQueueChanges(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	if _, err := pool.Exec(t.Context(), `
		INSERT INTO forge_events (type, at, data)
		SELECT t, now() - make_interval(secs => 100 - n), jsonb_build_object('queue', q, 'by', t || n)
		FROM (VALUES (1, 'queue_paused', 'a'), (2, 'queue_paused', 'b'), (3, 'queue_resumed', 'a'), (4, 'queue_paused', 'a'), (5, 'cron_paused', 'a')) AS e (n, t, q)`); err != nil {
		t.Fatal(err)
	}
	changes, err := eventstore.New(pool).QueueChanges(t.Context(), "a", 2)
	if err != nil || len(changes) != 2 || !changes[0].Paused() || changes[1].Paused() {
		t.Fatalf("%+v, %v", changes, err)
	}
	for i := range changes {
		changes[i].At = time.Time{}
	}
	want := []eventstore.QueueChange{{Action: "pause", By: "queue_paused4"}, {Action: "resume", By: "queue_resumed3"}}
	if diff := cmp.Diff(want, changes); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	if none, err := eventstore.New(pool).QueueChanges(t.Context(), `o'dd"`, 2); err != nil || len(none) != 0 {
		t.Errorf("another queue: %+v, %v", none, err)
	}
}
