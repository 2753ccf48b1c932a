package alerts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
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

// hangAt returns an answer that waits for the end of the context for targets of the receivers
// whose names begin with a prefix, and delivers all others.
func hangAt(prefix string) func(ctx context.Context, target string) error {
	return func(ctx context.Context, target string) error {
		if !strings.HasPrefix(target, prefix) {
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	}
}

// enqueue adds notifications about failed runs that have been due for a minute.
func (db *database) enqueue(target string, count int) {
	db.t.Helper()
	db.exec(`INSERT INTO forge_notifications (cron, tick, target, next_at)
		SELECT 'report', now() + i * interval '1 second', $1, now() - interval '1 minute' FROM generate_series(1, $2) AS i`, target, count)
}

// claimed returns how many notifications of a target have been claimed.
func (db *database) claimed(target string) (claimed int) {
	for _, n := range db.all() {
		if n.Target == target {
			claimed += n.Attempts
		}
	}
	return claimed
}

func (db *database) delivered(target string) bool {
	return slices.ContainsFunc(db.all(), func(n Notification) bool { return n.Target == target && n.State == NotificationDelivered })
}

// A receiver that hangs delays only its own notifications, at whichever place of it.
func TestHangingReceiverDelaysNoOther(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	db.enqueue("hook:a", 50)
	db.enqueue("hook:b", 50)
	db.exec(`INSERT INTO forge_notifications (cron, tick, target) VALUES ('report', now(), 'hooks')`)
	s := &sender{make(chan string, 128), hangAt("hook:")}
	stop := db.lead(db.makeLeader(1), s)
	db.wait("delivery to another receiver", func() bool { return db.delivered("hooks") })
	db.exec(`INSERT INTO forge_notifications (cron, tick, target) VALUES ('report', now(), 'pager:critical')`)
	db.exec(`NOTIFY "public.forge_failure"`)
	db.wait("delivery of a later notification", func() bool { return db.delivered("pager:critical") })
	if hanging := db.claimed("hook:a") + db.claimed("hook:b"); hanging != maxSendsPerReceiver || len(s.sent) != hanging+2 {
		t.Errorf("%d of the receiver that hangs are claimed, and %d are sent", hanging, len(s.sent))
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// Many receivers that hang at once leave places for another one.
func TestManyHangingReceiversDelayNoOther(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	const receivers = 20
	for i := range receivers {
		db.enqueue(fmt.Sprintf("hang%d:x", i), maxSendsPerReceiver+1)
	}
	db.exec(`INSERT INTO forge_notifications (cron, tick, target) VALUES ('report', now(), 'pager')`)
	s := &sender{make(chan string, 256), hangAt("hang")}
	stop := db.lead(db.makeLeader(1), s)
	db.wait("delivery to another receiver", func() bool { return db.delivered("pager") })
	total := 0
	for i := range receivers {
		claimed := db.claimed(fmt.Sprintf("hang%d:x", i))
		if claimed == 0 || claimed > maxSendsPerReceiver {
			t.Errorf("%d of hang%d are claimed", claimed, i)
		}
		total += claimed
	}
	if total > maxSends {
		t.Errorf("%d are sent at the same time", total)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// The result of a notification is saved, and the next one is sent, while others of the same
// receiver hang. A notification that is being sent is not sent again by the same leader, even if
// its claim has expired.
func TestHangingNotificationsAreSentOnce(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	db.enqueue("hook:hang", 2)
	db.enqueue("hook:fine", 3*maxSendsPerReceiver)
	s := &sender{make(chan string, 256), hangAt("hook:hang")}
	stop := db.lead(db.makeLeader(1), s)
	all := func() bool {
		left := func(n Notification) bool { return n.Target == "hook:fine" && n.State != NotificationDelivered }
		return len(s.sent) >= 2 && !slices.ContainsFunc(db.all(), left)
	}
	db.wait("delivery beside those that hang", all)
	db.exec(`UPDATE forge_notifications SET next_at = now() WHERE target = 'hook:hang'`)
	db.exec(`INSERT INTO forge_notifications (cron, tick, target) VALUES ('report', now(), 'hook:fine'), ('report', now(), 'pager')`)
	db.exec(`NOTIFY "public.forge_failure"`)
	db.wait("delivery after the claims have expired", func() bool { return all() && db.delivered("pager") })
	if claimed := db.claimed("hook:hang"); claimed != 2 {
		t.Errorf("two notifications that hang have been claimed %d times", claimed)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// Notifications that another transaction has locked delay no other receiver.
func TestLockedNotificationsDelayNoOther(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	db.enqueue("hook", 2)
	db.exec(`INSERT INTO forge_notifications (cron, tick, target) VALUES ('report', now(), 'pager')`)
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	if _, err := tx.Exec(t.Context(), `SELECT FROM forge_notifications WHERE target = 'hook' FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	s := &sender{make(chan string, 16), hangAt("none")}
	stop := db.lead(db.makeLeader(1), s)
	db.wait("delivery to another receiver", func() bool { return db.delivered("pager") })
	if db.claimed("hook") != 0 {
		t.Error("locked notifications are claimed")
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	db.wait("delivery of what was locked", func() bool { return db.delivered("hook") })
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// A leader that is deposed while notifications hang ends them, and saves nothing.
func TestDeposedLeaderEndsItsSends(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	db.enqueue("hook", 2)
	ended := make(chan error, 16)
	s := &sender{make(chan string, 16), func(ctx context.Context, _ string) error {
		<-ctx.Done()
		ended <- ctx.Err()
		return ctx.Err()
	}}
	dispatcher := NewDispatcher(DispatcherOptions{Pool: db.Pool, Sender: s, Schema: "public", Logger: slog.New(slog.DiscardHandler), Notifier: postgres.NewNotifier(db.Pool, slog.New(slog.DiscardHandler))})
	old := db.makeLeader(1)
	done := make(chan error, 1)
	go func() { done <- dispatcher.Lead(t.Context(), old) }()
	<-s.sent
	<-s.sent
	db.makeLeader(2)
	db.enqueue("pager", 1)
	db.exec(`NOTIFY "public.forge_failure"`)
	if err := <-done; !errors.Is(err, leaderstore.ErrDeposed) {
		t.Errorf("got %v", err)
	}
	for range 2 {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("a send has ended with %v", err)
		}
	}
	for _, n := range db.all() {
		if n.State != NotificationPending || n.Error != "" || n.Target == "pager" && n.Attempts > 0 {
			t.Errorf("after the term: %+v", n)
		}
	}
}

// A notification waits in the database for as long as its receiver asks, and others do not.
func TestRetryAfterIsHonoured(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	db.enqueue("hook", 1)
	db.enqueue("pager", 1)
	s := &sender{make(chan string, 16), func(_ context.Context, target string) error {
		if target == "hook" {
			return &RetryAfterError{After: 2 * time.Minute, Err: errors.New("slow down")}
		}
		return nil
	}}
	stop := db.lead(db.makeLeader(1), s)
	db.wait("both results", func() bool { return db.all()[0].Error != "" && db.delivered("pager") })
	if err := stop(); err != nil {
		t.Error(err)
	}
	var wait float64
	if err := db.QueryRow(t.Context(), `SELECT extract(epoch FROM next_at - clock_timestamp())::float8 FROM forge_notifications WHERE target = 'hook'`).Scan(&wait); err != nil {
		t.Fatal(err)
	}
	// claimTimeout and the usual wait are shorter.
	if n := db.all()[0]; n.State != NotificationPending || n.Error != "slow down" || wait < 60 || wait > 240 {
		t.Errorf("it waits for %.0f s: %+v", wait, n)
	}
}

// The database names the receiver of a target as the dispatcher does.
func TestReceiverOfTarget(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	for target, want := range map[string]string{"slack": "slack", "slack:#ops": "slack", "mail:a@b:c": "mail", ":x": "", "": ""} {
		db.exec(`DELETE FROM forge_notifications`)
		db.enqueue(target, 1)
		receiver, wait, found, err := New(db).nextDue(t.Context(), []string{"other"})
		if err != nil || !found || wait > 0 || receiver != want {
			t.Errorf("%q: %q, due in %s, %v", target, receiver, wait, err)
		}
		if receiver, _, found, err := New(db).nextDue(t.Context(), []string{want}); found || err != nil {
			t.Errorf("%q although it is unavailable: %q, %v", target, receiver, err)
		}
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
	for _, spread := range []float64{0, 0.5, 1} {
		var total time.Duration
		for attempts := 1; attempts < maxAttempts; attempts++ {
			state, text, wait := stateAfterAttempt(attempts, down, spread)
			if state != NotificationPending || text != "down" || wait < firstWait/2 || wait > maxWait*3/2 {
				t.Errorf("attempt %d: %s %q %s", attempts, state, text, wait)
			}
			total += wait
		}
		if total < 20*time.Minute || total > 2*time.Hour || spread == 0.5 && (total < 40*time.Minute || total > 55*time.Minute) {
			t.Errorf("with spread %v it gives up after %s", spread, total)
		}
	}
	if state, _, _ := stateAfterAttempt(maxAttempts, down, 0); state != NotificationFailed {
		t.Errorf("after the last attempt: %s", state)
	}
	if _, text, _ := stateAfterAttempt(1, errors.New(strings.Repeat("é\x00", maxError)), 0); !utf8.ValidString(text) || strings.Contains(text, "\x00") {
		t.Errorf("an error that PostgreSQL does not take: %q", text)
	}
	if state, text, _ := stateAfterAttempt(1, nil, 0); state != NotificationDelivered || text != "" {
		t.Errorf("without an error: %s %s", state, text)
	}
	if state, _, _ := stateAfterAttempt(1, fmt.Errorf("x: %w", ErrUnknown), 0); state != NotificationPending {
		t.Errorf("a receiver that this node does not know: %s", state)
	}
}

// The wait is the longer of the usual one and the one that the receiver asks for, both spread.
func TestWaitAfterAttempt(t *testing.T) {
	t.Parallel()
	retryAfter := func(after time.Duration) error {
		return fmt.Errorf("x: %w", &RetryAfterError{After: after, Err: errors.New("slow down")})
	}
	for name, c := range map[string]struct {
		attempts  int
		failure   error
		low, high time.Duration
	}{
		"first":             {1, errors.New("down"), firstWait / 2, firstWait * 3 / 2},
		"fourth":            {4, errors.New("down"), 4 * time.Second, 12 * time.Second},
		"last":              {maxAttempts - 1, errors.New("down"), maxWait / 2, maxWait * 3 / 2},
		"asked for more":    {1, retryAfter(30 * time.Second), 30 * time.Second, time.Minute},
		"asked for less":    {8, retryAfter(time.Second), 64 * time.Second, 192 * time.Second},
		"asked for a day":   {1, retryAfter(24 * time.Hour), maxWait, 2 * maxWait},
		"asked for the end": {1, retryAfter(math.MaxInt64), maxWait, 2 * maxWait},
		"asked for nothing": {1, retryAfter(-time.Hour), firstWait / 2, firstWait * 3 / 2},
	} {
		if low, high := waitAfterAttempt(c.attempts, c.failure, 0), waitAfterAttempt(c.attempts, c.failure, 1); low != c.low || high != c.high {
			t.Errorf("%s: %s to %s, want %s to %s", name, low, high, c.low, c.high)
		}
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
