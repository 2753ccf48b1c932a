package assign

import (
	"context"
	"encoding/json"
	"flag"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/leaderstore"
)

var heldJobs = flag.Int("held-jobs", 20_000, "how many jobs end under one snapshot in TestHeldSnapshotDoesNotSlowScans")

func TestMarks(t *testing.T) {
	t.Parallel()
	start := time.Now()
	at := func(seconds int, id int64) jobstore.Position {
		return jobstore.Position{ScheduledAt: start.Add(time.Duration(seconds) * time.Second), ID: id}
	}
	var m marks
	step := func(after time.Duration, first *jobstore.Position, want jobstore.Position) {
		t.Helper()
		m.note([jobstore.Priorities]*jobstore.Position{0: first}, start.Add(after))
		if got := m.after()[0]; got != want {
			t.Errorf("after %s the mark is %v, want %v", after, got, want)
		}
	}
	zero := jobstore.Position{}
	ten, five, twenty := at(10, 1), at(5, 1), at(20, 1)
	step(0, &ten, zero)
	step(markDelay/2, &twenty, zero)
	step(markDelay/2, nil, zero)
	step(markDelay, &twenty, ten) // the lowest of that time
	step(markDelay*5/4, &five, ten)
	step(markDelay*2, &twenty, five) // a job that appeared below
	step(markDelay*3, &twenty, twenty)
	m.lower(1, at(20, 2))
	step(markDelay*3, nil, twenty)
	m.lower(1, ten)
	step(markDelay*3, nil, ten)
	m.lowerAll(at(7, 0).ScheduledAt)
	step(markDelay*3, nil, at(7, 0))
	step(markDelay*5, &twenty, at(7, 0))
	step(markDelay*6, &twenty, twenty)
	if m[1] != (mark{}) {
		t.Errorf("another priority has a mark: %+v", m[1])
	}
}

// A notification with a time lowers the marks of its queue.
func TestNotificationLowersMarks(t *testing.T) {
	t.Parallel()
	now := time.Now()
	scanned := func(queue string) *queueScan {
		q := &queueScan{queue: queue}
		for p := range q.marks {
			q.marks[p].low = jobstore.Position{ScheduledAt: now, ID: 9}
		}
		return q
	}
	l := &loop{schema: "public", queueScans: map[string]*queueScan{"q": scanned("q"), "r": scanned("r")}}
	earlier := now.Add(-time.Hour).UTC().Truncate(time.Microsecond)
	l.works(`{"queue": "q"}`)
	if low := l.queueScans["q"].marks[2].low; !low.ScheduledAt.Equal(now) {
		t.Errorf("River's notification moved the mark to %v", low)
	}
	l.works(`{"queue": "q", "from": "` + earlier.Format(time.RFC3339Nano) + `"}`)
	for p, mark := range l.queueScans["q"].marks {
		if !mark.low.ScheduledAt.Equal(earlier) || mark.low.ID != 0 {
			t.Errorf("the mark of priority %d is %v, want %v", p+1, mark.low, earlier)
		}
	}
	if low := l.queueScans["r"].marks[0].low; !low.ScheduledAt.Equal(now) {
		t.Errorf("the mark of another queue is %v", low)
	}
}

// scanRecorder records the last scan of a pool.
type scanRecorder struct {
	sql  string
	args []any
}

func (r *scanRecorder) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	r.sql, r.args = data.SQL, data.Args
	return ctx
}

func (*scanRecorder) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TraceBatchStart records the last statement of a batch.
func (r *scanRecorder) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	last := data.Batch.QueuedQueries[data.Batch.Len()-1]
	r.sql, r.args = last.SQL, last.Arguments
	return ctx
}

func (*scanRecorder) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*scanRecorder) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// scanned is one queue in a database, which is scanned and worked.
type scanned struct {
	t        *testing.T
	pool     *pgxpool.Pool
	traced   *pgxpool.Pool
	recorded *scanRecorder
	queue    *queueScan
	now      time.Time
}

func newScanned(t *testing.T) *scanned {
	t.Helper()
	url := pgtest.URL(t)
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	s := &scanned{t: t, pool: pgtest.Connect(t, url), recorded: &scanRecorder{}, queue: &queueScan{queue: "default"}, now: time.Now()}
	config.ConnConfig.Tracer = s.recorded
	if s.traced, err = pgxpool.NewWithConfig(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.traced.Close)
	return s
}

func (s *scanned) exec(sql string, args ...any) {
	s.t.Helper()
	if _, err := s.pool.Exec(s.t.Context(), sql, args...); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
}

// scan reads the top of the queue as the loop does. Twice the delay of the marks passes.
func (s *scanned) scan(limit int) []job {
	s.t.Helper()
	s.now = s.now.Add(2 * markDelay)
	pages := []scanPage{{queueScan: s.queue, limit: limit, fromMarks: true}}
	jobs, result, err := sweep(s.t.Context(), s.traced, pages, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	noteScans(pages, result, s.now)
	return jobs
}

// passNothing scans the queue, in which no job is visible, until the marks have passed the present.
func (s *scanned) passNothing() {
	s.t.Helper()
	for range 3 {
		if jobs := s.scan(100); len(jobs) != 0 {
			s.t.Fatalf("scanned %d jobs", len(jobs))
		}
	}
}

// cost returns how many buffers the last scan reads.
func (s *scanned) cost() int {
	s.t.Helper()
	var output []byte
	if err := s.pool.QueryRow(s.t.Context(), "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+s.recorded.sql, s.recorded.args...).Scan(&output); err != nil {
		s.t.Fatal(err)
	}
	var plans []struct {
		Plan struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
		}
	}
	if err := json.Unmarshal(output, &plans); err != nil {
		s.t.Fatal(err)
	}
	return plans[0].Plan.Hit + plans[0].Plan.Read
}

// work completes the jobs.
func (s *scanned) work(jobs []job) {
	s.t.Helper()
	ids := make([]int64, len(jobs))
	for i, j := range jobs {
		ids[i] = j.id
	}
	s.exec(`UPDATE river_job SET state = 'running', attempt = 1, attempted_by = '{x}' WHERE id = ANY ($1)`, ids)
	s.exec(`UPDATE river_job SET state = 'completed', finalized_at = now() WHERE id = ANY ($1)`, ids)
}

// Jobs that have ended while a snapshot is held do not make scans slower.
func TestHeldSnapshotDoesNotSlowScans(t *testing.T) {
	t.Parallel()
	s := newScanned(t)
	const page = 500
	insert := `INSERT INTO river_job (args, kind, priority) SELECT '{}', 'k', 1 + i % 2 FROM generate_series(1, $1::int) AS i`
	workAll := func(jobs int) {
		t.Helper()
		s.exec(insert, jobs)
		for found := s.scan(jobs); len(found) > 0; found = s.scan(jobs) {
			s.work(found)
		}
	}
	workAll(20 * page)
	s.exec(`VACUUM ANALYZE river_job`)
	s.exec(insert, page)
	s.scan(page)
	usual := s.cost()

	held, err := s.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Rollback(t.Context()) }()
	if _, err := held.Exec(t.Context(), `SET TRANSACTION ISOLATION LEVEL REPEATABLE READ`); err != nil {
		t.Fatal(err)
	}
	if _, err := held.Exec(t.Context(), `SELECT FROM forge_nodes`); err != nil {
		t.Fatal(err)
	}
	for ended := 0; ended < *heldJobs; ended += 10 * page {
		workAll(10 * page)
	}
	s.scan(page) // the marks are where the last jobs were, and then where none is
	s.exec(insert, page)
	began := time.Now()
	if jobs := s.scan(page); len(jobs) != page {
		t.Fatalf("scanned %d of %d jobs", len(jobs), page)
	}
	took, cost := time.Since(began), s.cost()
	s.queue.marks = marks{}
	began = time.Now()
	s.scan(page)
	tookAll, all := time.Since(began), s.cost()
	t.Logf("%d jobs have ended: a scan reads %d buffers (%s), usually %d, without marks %d (%s)", *heldJobs, cost, took, usual, all, tookAll)
	if cost > 2*usual {
		t.Errorf("a scan reads %d buffers, more than twice the usual %d", cost, usual)
	}
	if all < 10*usual {
		t.Errorf("without marks a scan reads %d buffers: the snapshot protects nothing", all)
	}
}

// The marks do not pass jobs that wait, and a queue that is paused has none.
func TestMarksStayBelowWaitingJobs(t *testing.T) {
	t.Parallel()
	s := newScanned(t)
	s.exec(`INSERT INTO river_job (args, kind, priority, scheduled_at) SELECT '{}', 'k', p, now() - i * interval '1 minute'
		FROM generate_series(1, 40) AS i, generate_series(1, 4) AS p`)
	for range 4 {
		if jobs := s.scan(1000); len(jobs) != 160 {
			t.Fatalf("scanned %d of 160 jobs", len(jobs))
		}
		s.scan(50) // not all priorities
	}
	s.work(s.scan(50))
	s.exec(`INSERT INTO river_queue (name, paused_at, updated_at) VALUES ('default', now(), now())`)
	for range 4 {
		s.now = s.now.Add(2 * markDelay)
		pages := []scanPage{{queueScan: s.queue, limit: 1000, fromMarks: true}}
		_, result, err := sweep(t.Context(), s.traced, pages, nil)
		if err != nil || !result.Paused[0] || pages[0].read != 0 {
			t.Fatalf("a paused queue: %+v, %d jobs, %v", result, pages[0].read, err)
		}
		noteScans(pages, result, s.now)
	}
	s.exec(`DELETE FROM river_queue`)
	if jobs := s.scan(1000); len(jobs) != 110 {
		t.Errorf("scanned %d of 110 jobs", len(jobs))
	}
}

// A page after the cursor says nothing about the jobs before the cursor.
func TestPagesAfterTheCursorDoNotMoveMarks(t *testing.T) {
	t.Parallel()
	now := time.Now()
	q := &queueScan{queue: "q"}
	for i := range 5 {
		page := scanPage{queueScan: q, after: position{1, now, 5}, limit: 2}
		page.note(job{position: position{2, now, int64(10 + i)}})
		noteScans([]scanPage{page}, jobstore.Scanned{Now: now, Paused: []bool{false}}, now.Add(time.Duration(i)*2*markDelay))
	}
	if q.marks != (marks{}) {
		t.Errorf("marks %+v", q.marks)
	}
}

// The marks end with their term, and with an interruption: nobody has read what happened since.
func TestNewLoopHasNoMarks(t *testing.T) {
	t.Parallel()
	logger := slog.New(slog.DiscardHandler)
	a, err := New(Options{Logger: logger, Notifier: postgres.NewNotifier(nil, logger)})
	if err != nil {
		t.Fatal(err)
	}
	nodes := newNodeTable(1, LeastLoaded)
	before := a.newLoop(leaderstore.Fence{Term: 1}, nodes, a.logger)
	before.queueScans["q"] = &queueScan{queue: "q", marks: marks{{low: jobstore.Position{ScheduledAt: time.Now()}}}}
	after := a.newLoop(leaderstore.Fence{Term: 2}, nodes, a.logger)
	if len(after.queueScans) != 0 || after.below.running() || after.below.took != 0 {
		t.Errorf("the next loop starts with %v", after.queueScans)
	}
}

// The check finds a job of a transaction that commits after the marks have passed its time. The
// marks go back to it, and the top of the queue is read at once.
func TestCheckLowersMarksToJobsCommittedLate(t *testing.T) {
	t.Parallel()
	s := newScanned(t)
	late, err := s.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = late.Rollback(t.Context()) }()
	if _, err := late.Exec(t.Context(), `INSERT INTO river_job (id, args, kind, priority) VALUES (7, '{}', 'k', 3)`); err != nil {
		t.Fatal(err)
	}
	s.passNothing()
	l := &loop{pool: s.pool, queueScans: map[string]*queueScan{"default": s.queue}, lastStep: time.Now()}
	check := func() {
		t.Helper()
		s.queue.topReadAt = s.now
		l.lastStep = l.lastStep.Add(time.Minute)
		l.checkBelow(t.Context())
		l.below.wait()
		if err := l.lowerMarks(); err != nil {
			t.Fatal(err)
		}
	}
	passed := s.queue.marks
	if check(); s.queue.marks != passed || s.queue.topReadAt.IsZero() {
		t.Errorf("no job is below the marks: %+v, before %+v", s.queue.marks, passed)
	}
	if err := late.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if jobs := s.scan(100); len(jobs) != 0 {
		t.Fatalf("a scan from the marks found %d jobs: the marks have not passed the job", len(jobs))
	}
	if check(); !s.queue.topReadAt.IsZero() {
		t.Error("the top of the queue is not read at once")
	}
	if jobs := s.scan(100); len(jobs) != 1 || jobs[0].id != 7 {
		t.Errorf("after the check a scan found %v", jobs)
	}
}

// A program that inserts jobs at the end of a long transaction has them found at once, also if it
// notifies nobody. A short transaction has nothing to say.
func TestLongInsertLowersMarks(t *testing.T) {
	t.Parallel()
	s := newScanned(t)
	listening, err := s.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer listening.Release()
	if _, err := listening.Exec(t.Context(), `LISTEN "public.river_insert"`); err != nil {
		t.Fatal(err)
	}
	s.exec(`INSERT INTO river_job (id, args, kind, queue) VALUES (1, '{}', 'k', 'short')`)
	err = pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `SELECT pg_sleep(0.25)`); err != nil {
			return err
		}
		s.passNothing()
		_, err := tx.Exec(t.Context(), `INSERT INTO river_job (id, args, kind, priority) VALUES (7, '{}', 'k', 3)`)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if jobs := s.scan(100); len(jobs) != 0 {
		t.Fatalf("a scan from the marks found %d jobs: the marks have not passed the job", len(jobs))
	}
	soon, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	note, err := listening.Conn().WaitForNotification(soon)
	if err != nil {
		t.Fatal(err)
	}
	l := &loop{schema: "public", queueScans: map[string]*queueScan{"default": s.queue}}
	if !l.handleNotification(note) {
		t.Errorf("%s triggers no step", note.Payload)
	}
	if jobs := s.scan(100); len(jobs) != 1 || jobs[0].id != 7 {
		t.Errorf("after %s, a scan found %v", note.Payload, jobs)
	}
}

// A program may prepare a transaction in which it inserts jobs late: PostgreSQL refuses that after a
// notification.
func TestLongInsertMayBePrepared(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.ServerWith(t, map[string]string{"max_prepared_transactions": "1"}).URL())
	for _, sql := range []string{
		`BEGIN; SELECT pg_sleep(0.25); INSERT INTO river_job (args, kind) VALUES ('{}', 'k'); PREPARE TRANSACTION 'late'`,
		`COMMIT PREPARED 'late'`,
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}
