package jobstore_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

func pauseOf(t *testing.T, pool *pgxpool.Pool, queue string) jobstore.QueuePause {
	t.Helper()
	one, err := jobstore.New(pool).Queue(t.Context(), queue)
	if err != nil {
		t.Fatal(err)
	}
	all, err := jobstore.New(pool).Queues(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range all {
		if q.Name == queue && q.QueuePause != one.QueuePause {
			t.Errorf("%s: paused %+v in the list, %+v alone", queue, q.QueuePause, one.QueuePause)
		}
	}
	return one.QueuePause
}

// One call ends a bounded number of pauses, and further calls the others.
func TestEndPausesIsBounded(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	store := jobstore.New(pool)
	for _, queue := range []string{"a", "b", "c"} {
		if _, err := pool.Exec(t.Context(), `INSERT INTO river_queue (name, updated_at) VALUES ($1, now())`, queue); err != nil {
			t.Fatal(err)
		}
		if _, _, err := store.PauseQueue(t.Context(), queue, jobstore.QueuePauseOrder{For: time.Second}); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []int{2, 1, 0} {
		if ended, err := store.EndPauses(t.Context(), time.Now().Add(time.Hour), 2); err != nil || len(ended) != want {
			t.Errorf("ended %v, %v; want %d", ended, err, want)
		}
	}
}

// A pause has an author, a reason and an end, at which EndPauses resumes the queue.
func TestPauseEnds(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	exec(t, pool, `INSERT INTO river_queue (name, metadata, updated_at) VALUES ('mail', '{"mine": 1}', now()), ('other', '{}', now())`)
	store := jobstore.New(pool)
	pause, changed, err := store.PauseQueue(t.Context(), "mail", jobstore.QueuePauseOrder{By: "ada", Reason: "it's down", For: 2 * time.Hour})
	if err != nil || !changed || pause.PausedUntil.Sub(pause.PausedAt) != 2*time.Hour || pause.PausedBy != "ada" || pause.PauseReason != "it's down" {
		t.Fatalf("%+v, %v, %v", pause, changed, err)
	}
	if got := pauseOf(t, pool, "mail"); got != pause {
		t.Errorf("read %+v, want %+v", got, pause)
	}
	if again, changed, err := store.PauseQueue(t.Context(), "mail", jobstore.QueuePauseOrder{By: "eve"}); err != nil || changed || again != pause {
		t.Errorf("paused again: %+v, %v, %v", again, changed, err)
	}
	if next, err := store.NextDue(t.Context()); err != nil || next <= time.Hour || next > 2*time.Hour {
		t.Errorf("the next is due in %v, %v", next, err)
	}
	if _, _, err := store.PauseQueue(t.Context(), "other", jobstore.QueuePauseOrder{}); err != nil {
		t.Fatal(err)
	}
	if ended, err := store.EndPauses(t.Context(), pause.PausedUntil.Add(-time.Microsecond), 100); err != nil || len(ended) != 0 {
		t.Errorf("ended too early: %v, %v", ended, err)
	}
	if ended, err := store.EndPauses(t.Context(), pause.PausedUntil, 100); err != nil || !cmp.Equal(ended, []string{"mail"}) {
		t.Errorf("ended %v, %v", ended, err)
	}
	if got := pauseOf(t, pool, "mail"); got != (jobstore.QueuePause{}) {
		t.Errorf("after the end: %+v", got)
	}
	if got := pauseOf(t, pool, "other"); got.PausedAt.IsZero() || !got.PausedUntil.IsZero() {
		t.Errorf("a pause without an end: %+v", got)
	}
	var metadata string
	if err := pool.QueryRow(t.Context(), `SELECT metadata::text FROM river_queue WHERE name = 'mail'`).Scan(&metadata); err != nil || metadata != `{"mine": 1}` {
		t.Errorf("metadata %s, %v", metadata, err)
	}
	changes, err := eventstore.New(pool).QueueChanges(t.Context(), "mail", 5)
	if err != nil || len(changes) != 2 || changes[0].Reason != "the pause ended" || changes[0].Paused() || changes[1].Reason != "it's down" || changes[1].By != "ada" {
		t.Errorf("events %+v, %v", changes, err)
	}
}

// What other programs write into river_queue neither breaks reads, nor ends pauses of others.
func TestPausesOfOtherPrograms(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	store := jobstore.New(pool)
	exec(t, pool, `INSERT INTO river_queue (name, updated_at) VALUES ('mail', now())`)
	if _, _, err := store.PauseQueue(t.Context(), "mail", jobstore.QueuePauseOrder{By: "ada", For: time.Second}); err != nil {
		t.Fatal(err)
	}
	exec(t, pool, `UPDATE river_queue SET paused_at = paused_at + interval '1 s' WHERE name = 'mail'`) // resumed and paused again by a River client
	if got := pauseOf(t, pool, "mail"); got.PausedAt.IsZero() || got.PausedBy != "" || !got.PausedUntil.IsZero() {
		t.Errorf("the facts of an earlier pause: %+v", got)
	}
	exec(t, pool, `
		INSERT INTO river_queue (name, metadata, paused_at, updated_at)
		SELECT 'q' || n, jsonb_build_object('forge:pause', jsonb_build_object('at', extract(epoch FROM now), 'until', until)), now, now
		FROM clock_timestamp() AS now, jsonb_array_elements('["x", 1e400, {}, null]') WITH ORDINALITY AS u (until, n)`)
	exec(t, pool, `INSERT INTO river_queue (name, metadata, paused_at, updated_at) VALUES ('list', '[]', now(), now()), ('text', '{"forge:pause": "x"}', now(), now())`)
	if ended, err := store.EndPauses(t.Context(), time.Now().Add(24*time.Hour), 100); err != nil || len(ended) != 0 {
		t.Errorf("ended %v, %v", ended, err)
	}
	if next, err := store.NextDue(t.Context()); err != nil || next != jobstore.NoDueJob {
		t.Errorf("the next is due in %v, %v", next, err)
	}
	if queues, err := store.Queues(t.Context()); err != nil || len(queues) != 7 {
		t.Errorf("%+v, %v", queues, err)
	}
	if _, changed, err := store.ResumeQueue(t.Context(), "list", jobstore.QueuePauseOrder{}); err != nil || !changed {
		t.Errorf("resume a queue with other metadata: %v, %v", changed, err)
	}
}

func TestPauseOrdersAreChecked(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for _, test := range []struct {
		order jobstore.QueuePauseOrder
		want  error
	}{
		{jobstore.QueuePauseOrder{Reason: strings.Repeat("ü", 201)}, eventstore.ErrReasonTooLong},
		{jobstore.QueuePauseOrder{For: time.Millisecond}, jobstore.ErrPauseSpan},
		{jobstore.QueuePauseOrder{For: -time.Hour}, jobstore.ErrPauseSpan},
		{jobstore.QueuePauseOrder{For: 367 * 24 * time.Hour}, jobstore.ErrPauseSpan},
		{jobstore.QueuePauseOrder{Reason: strings.Repeat("ü", 200), For: 366 * 24 * time.Hour}, jobstore.ErrNoQueue},
	} {
		if _, _, err := jobstore.New(pool).PauseQueue(t.Context(), "nobody", test.order); !errors.Is(err, test.want) {
			t.Errorf("%+v: %v, want %v", test.order, err, test.want)
		}
	}
}
