package alerts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/leaderstore"
)

var due = time.Date(2026, 11, 20, 1, 30, 0, 0, time.UTC)

const waitTimeout = time.Minute

type database struct {
	*pgxpool.Pool
	t *testing.T
}

// newDatabase returns a database with the cron report, which has two targets, and the
// cron quiet, which has none.
func newDatabase(t *testing.T) *database {
	t.Helper()
	db := &database{pgtest.Pool(t), t}
	db.exec(`INSERT INTO forge_crons (name, spec, spec_hash, watermark) VALUES
		('report', '{"schedule": "@daily", "on_failure": ["slack:#ops", "hook"]}', '', now()),
		('odd', '{"on_failure": "hook"}', '', now()),
		('quiet', '{"schedule": "@daily"}', '', now())`)
	return db
}

func (db *database) exec(sql string, args ...any) {
	db.t.Helper()
	if _, err := db.Exec(db.t.Context(), sql, args...); err != nil {
		db.t.Fatal(err)
	}
}

func (db *database) makeLeader(term int64) leaderstore.Fence {
	db.t.Helper()
	db.exec(`INSERT INTO forge_leaders (role, node_id, incarnation, term) VALUES ('metrics_aggregator', 'leader', $2, $1)
		ON CONFLICT (role) DO UPDATE SET term = excluded.term, incarnation = excluded.incarnation`, term, fmt.Sprintf("%016x", term))
	return leaderstore.Fence{Role: "metrics_aggregator", Term: term, NodeID: "leader", Incarnation: fmt.Sprintf("%016x", term)}
}

// job inserts a running job with metadata.
func (db *database) job(metadata string) (id int64) {
	db.t.Helper()
	err := db.QueryRow(db.t.Context(), `INSERT INTO river_job (kind, args, max_attempts, attempt, state, attempted_at, metadata)
		VALUES ('make', '{}', 3, 3, 'running', now(), $1) RETURNING id`, metadata).Scan(&id)
	if err != nil {
		db.t.Fatal(err)
	}
	return id
}

const discardSQL = `UPDATE river_job SET state = 'discarded', finalized_at = now(),
	errors = array_append(errors, '{"error": "exit status 3"}'::jsonb) WHERE id = $1`

func tickOf(cron string) string {
	return `{"forge:cron": "` + cron + `", "forge:tick": "2026-11-20T01:30:00Z"}`
}

// all returns every notification, by target.
func (db *database) all() []Notification {
	db.t.Helper()
	found, err := New(db).notifications(db.t.Context(), "read notifications", `SELECT `+notificationColumns+` FROM forge_notifications AS n ORDER BY n.target`)
	if err != nil {
		db.t.Fatal(err)
	}
	return found
}

func (db *database) targets() []string {
	targets := []string{}
	for _, n := range db.all() {
		targets = append(targets, n.Cron+" "+n.Target+" "+string(n.State))
	}
	return targets
}

func (db *database) wait(what string, condition func() bool) {
	db.t.Helper()
	for deadline := time.Now().Add(waitTimeout); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			db.t.Fatalf("no %s in %s: %+v", what, waitTimeout, db.all())
		}
	}
}

func TestFailedRunEnqueuesNotifications(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	id := db.job(tickOf("report"))
	rolledBack := errors.New("rolled back")
	err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), discardSQL, id); err != nil {
			return err
		}
		return rolledBack
	})
	if !errors.Is(err, rolledBack) || len(db.all()) != 0 {
		t.Fatalf("after a rollback: %v, %v", err, db.targets())
	}
	db.exec(`UPDATE river_job SET state = 'retryable' WHERE id = $1`, id)
	db.exec(discardSQL, id)
	db.exec(`UPDATE river_job SET state = 'available', finalized_at = NULL WHERE id = $1`, id)
	db.exec(discardSQL, id) // by hand: it is the same run
	want := []string{"report hook pending", "report slack:#ops pending"}
	if diff := cmp.Diff(want, db.targets()); diff != "" {
		t.Fatalf("after the failure (-want +got):\n%s", diff)
	}
	first := db.all()[0]
	if diff := cmp.Diff(Facts{JobID: id, Job: "make", Attempts: 3, Error: "exit status 3"}, first.Facts); diff != "" || !first.Tick.Equal(due) {
		t.Errorf("facts of the tick %s (-want +got):\n%s", first.Tick, diff)
	}
}

func TestRunWithoutTargetsEnqueuesNothing(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	for _, metadata := range []string{
		tickOf("quiet"), tickOf("odd"), tickOf("nobody"), `{}`, `{"forge:cron": "report"}`,
		`{"forge:cron": "report", "forge:tick": "soon"}`, `{"forge:cron": "report", "forge:tick": {"a": 1}}`, `{"forge:cron": 7}`,
	} {
		db.exec(discardSQL, db.job(metadata))
	}
	for _, state := range []string{"completed", "cancelled"} {
		db.exec(`UPDATE river_job SET state = $2::text::river_job_state, finalized_at = now() WHERE id = $1`, db.job(tickOf("report")), state)
	}
	if got := db.targets(); len(got) != 0 {
		t.Errorf("got %v", got)
	}
}

func TestFailedVerdictEnqueuesNotifications(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	db.exec(`INSERT INTO forge_cron_ticks (cron, tick, verdict, term, node_id) VALUES
		('report', '2026-11-20T01:30:00Z', 'fired', 1, 'a'), ('quiet', '2026-11-20T01:30:00Z', 'fired', 1, 'a')`)
	if got := db.targets(); len(got) != 0 {
		t.Errorf("before the failure: %v", got)
	}
	db.exec(`UPDATE forge_cron_ticks SET verdict = 'failed', reason = 'The job could not be inserted: no.'`)
	if len(db.all()) != 2 || db.all()[0].Facts.Error != "The job could not be inserted: no." {
		t.Errorf("got %+v", db.all())
	}
	db.exec(`INSERT INTO forge_cron_ticks (cron, tick, verdict, reason, term, node_id) VALUES
		('report', '2026-11-21T01:30:00Z', 'failed', 'No.', 1, 'a'), ('quiet', '2026-11-21T01:30:00Z', 'failed', 'No.', 1, 'a')`)
	if len(db.all()) != 4 {
		t.Errorf("after a tick that failed at once: %+v", db.all())
	}
	m := describe(db.all()[0])
	if want := "The tick 2026-11-20T01:30:00Z of report could not be fired: The job could not be inserted: no."; m.Description != want {
		t.Errorf("description %q", m.Description)
	}
}

// sender records the messages and returns the errors that it is given.
type sender struct {
	sent   chan string
	answer func(ctx context.Context, target string) error
}

func (s *sender) Send(ctx context.Context, target string, m Message) error {
	s.sent <- target + " " + m.Key
	return s.answer(ctx, target)
}

// lead runs a dispatcher until the returned function is called, which returns the
// dispatcher's error.
func (db *database) lead(fence leaderstore.Fence, s Sender) (stop func() error) {
	dispatcher := NewDispatcher(DispatcherOptions{Pool: db.Pool, Sender: s, Schema: "public", Logger: slog.New(slog.NewTextHandler(db.t.Output(), nil)), Notifier: postgres.NewNotifier(db.Pool, slog.New(slog.DiscardHandler))})
	ctx, cancel := context.WithCancel(db.t.Context())
	done := make(chan error, 1)
	go func() { done <- dispatcher.Lead(ctx, fence) }()
	return func() error {
		cancel()
		return <-done
	}
}

func (db *database) events(kind string) (found []map[string]any) {
	db.t.Helper()
	events, err := eventstore.New(db).Find(db.t.Context(), eventstore.Filter{Limit: 100})
	if err != nil {
		db.t.Fatal(err)
	}
	for _, e := range events {
		var data map[string]any
		if e.Type == kind && json.Unmarshal(e.Data, &data) == nil {
			found = append(found, data)
		}
	}
	return found
}

func TestDispatcherDeliversRetriesAndFails(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	failures := 0
	s := &sender{make(chan string, 16), func(_ context.Context, target string) error {
		if target == "hook" {
			if failures++; failures < 3 {
				return fmt.Errorf("the hook is down, try %d", failures)
			}
			return nil
		}
		return fmt.Errorf("%w: no such channel", ErrRefused)
	}}
	stop := db.lead(db.makeLeader(1), s)
	db.exec(discardSQL, db.job(tickOf("report"))) // notifies the dispatcher
	for try := 1; try < 3; try++ {
		db.wait("failed try", func() bool {
			n := db.all()[0]
			return n.Attempts > try || n.Error == fmt.Sprint("the hook is down, try ", try)
		})
		db.exec(`UPDATE forge_notifications SET next_at = now() WHERE target = 'hook'`)
		db.exec(`NOTIFY "public.forge_failure"`)
	}
	db.wait("delivery", func() bool {
		return db.all()[0].State == NotificationDelivered && db.all()[1].State == NotificationFailed
	})
	if err := stop(); err != nil {
		t.Error(err)
	}
	hook, slack := db.all()[0], db.all()[1]
	if hook.Attempts != 3 || hook.Error != "" || hook.DoneAt.IsZero() || hook.NodeID != "leader" || hook.Term != 1 {
		t.Errorf("hook: %+v", hook)
	}
	if slack.Attempts != 1 || slack.Error != "refused: no such channel" {
		t.Errorf("slack: %+v", slack)
	}
	if sent := db.events(eventstore.NotificationDelivered); len(sent) != 1 || sent[0]["target"] != "hook" || sent[0]["attempts"] != 3.0 {
		t.Errorf("events of deliveries: %v", sent)
	}
	if failed := db.events(eventstore.NotificationFailed); len(failed) != 1 || failed[0]["error"] != "refused: no such channel" {
		t.Errorf("events of failures: %v", failed)
	}
	keys := map[string]int{}
	for len(s.sent) > 0 {
		keys[<-s.sent]++
	}
	if diff := cmp.Diff(map[string]int{
		"hook cron report@2026-11-20T01:30:00Z": 3, "slack:#ops cron report@2026-11-20T01:30:00Z": 1,
	}, keys); diff != "" {
		t.Errorf("sent (-want +got):\n%s", diff)
	}
}

// TestNextLeaderResendsAfterCrash checks that a leader that dies while it sends leaves
// the messages to the next one, and that a deposed one can neither send nor settle.
func TestNextLeaderResendsAfterCrash(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	db.exec(discardSQL, db.job(tickOf("report")))
	hang := &sender{make(chan string, 16), func(ctx context.Context, _ string) error {
		<-ctx.Done()
		return ctx.Err()
	}}
	old := db.makeLeader(1)
	stop := db.lead(old, hang)
	<-hang.sent
	<-hang.sent
	if err := stop(); err != nil {
		t.Error(err)
	}
	for _, n := range db.all() {
		if n.State != NotificationPending || n.Attempts != 1 || n.Error != "" || n.NextAt.Sub(n.CreatedAt) < claimTimeout {
			t.Errorf("while the claim lasts: %+v", n)
		}
	}
	db.exec(`UPDATE forge_notifications SET next_at = now()`) // the claim is over
	good := &sender{make(chan string, 16), func(context.Context, string) error { return nil }}
	next := db.makeLeader(2)
	dispatcher := NewDispatcher(DispatcherOptions{Pool: db.Pool, Sender: good, Schema: "public", Logger: slog.New(slog.DiscardHandler), Notifier: postgres.NewNotifier(db.Pool, slog.New(slog.DiscardHandler))})
	refused := prometheus.NewCounter(prometheus.CounterOpts{Name: "refused"})
	old.Refused = refused
	if err := dispatcher.Lead(t.Context(), old); !errors.Is(err, leaderstore.ErrDeposed) || len(good.sent) != 0 {
		t.Errorf("the deposed leader: %v, sent %d", err, len(good.sent))
	}
	if got := testutil.ToFloat64(refused); got != 1 {
		t.Errorf("%v refused writes are counted, want 1", got)
	}
	stop = db.lead(next, good)
	db.wait("delivery", func() bool {
		return !slices.ContainsFunc(db.all(), func(n Notification) bool { return n.State != NotificationDelivered || n.Term != 2 || n.Attempts != 2 })
	})
	if err := stop(); err != nil {
		t.Error(err)
	}
	if len(good.sent) != 2 {
		t.Errorf("the next leader sent %d", len(good.sent))
	}
}

func TestPruneDeletesSettledNotifications(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	db.exec(`INSERT INTO forge_notifications (cron, tick, target, state, done_at) VALUES
		('a', now(), 'old', 'delivered', now() - interval '2 hours'), ('a', now(), 'failed', 'failed', now() - interval '2 hours'),
		('a', now(), 'new', 'delivered', now()), ('a', now(), 'pending', 'pending', NULL)`)
	err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
		n, err := New(tx).PruneNotifications(t.Context(), time.Now().Add(-time.Hour), 10)
		if n != 2 {
			t.Errorf("deleted %d", n)
		}
		return err
	})
	if err != nil || len(db.all()) != 2 {
		t.Errorf("%v, left %v", err, db.targets())
	}
}

func TestStateAfterAttempt(t *testing.T) {
	t.Parallel()
	down := errors.New("down")
	var total time.Duration
	for attempts := 1; attempts < maxAttempts; attempts++ {
		state, text, wait := stateAfterAttempt(attempts, down)
		if state != NotificationPending || text != "down" || wait < firstWait || wait > maxWait {
			t.Errorf("attempt %d: %s %q %s", attempts, state, text, wait)
		}
		total += wait
	}
	if total < 30*time.Minute || total > 2*time.Hour {
		t.Errorf("it gives up after %s", total)
	}
	if state, _, _ := stateAfterAttempt(maxAttempts, down); state != NotificationFailed {
		t.Errorf("after the last attempt: %s", state)
	}
	if _, text, _ := stateAfterAttempt(1, errors.New(strings.Repeat("é\x00", maxError))); !utf8.ValidString(text) || strings.Contains(text, "\x00") {
		t.Errorf("an error that PostgreSQL does not take: %q", text)
	}
	if state, text, _ := stateAfterAttempt(1, nil); state != NotificationDelivered || text != "" {
		t.Errorf("without an error: %s %s", state, text)
	}
	if state, _, _ := stateAfterAttempt(1, fmt.Errorf("x: %w", ErrUnknown)); state != NotificationPending {
		t.Errorf("a receiver that this node does not know: %s", state)
	}
}

func TestDescribeAndStatusSentence(t *testing.T) {
	t.Parallel()
	n := Notification{Cron: "report", Tick: due, Target: "hook", Facts: Facts{JobID: 7, Job: "make", Attempts: 3, Error: "bad\x1b[31m \xff\nthing"}}
	m := describe(n)
	const want = `The run of the tick 2026-11-20T01:30:00Z of report has failed for good: the last of 3 attempts of job 7 came to "bad[31m �\nthing".`
	if m.Description != want || m.Summary != "Cron report failed" || m.Labels["job_id"] != "7" || m.Labels["alertname"] != "CronFailed" {
		t.Errorf("got %+v", m)
	}
	done := time.Date(2026, 11, 20, 1, 31, 0, 0, time.UTC)
	got := StatusSentence([]Notification{
		{Target: "a", State: NotificationDelivered, DoneAt: done, Attempts: 2},
		{Target: "b", State: NotificationFailed, Attempts: 1, Error: "no"},
		{Target: "c", State: NotificationPending},
		{Target: "d", State: NotificationPending, Attempts: 2, Error: "down"},
	})
	if want := "a was told at 2026-11-20T01:31:00Z; b could not be told in 1 try (no); c is to be told; d is to be told (2 tries so far: down)"; got != want {
		t.Errorf("got %s", got)
	}
	if got := StatusSentence(nil); got != "" {
		t.Errorf("of none: %s", got)
	}
}
