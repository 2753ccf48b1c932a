package riveradapter

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/internal/wire"
)

// pinned is the River version that this package was written for. Before you raise it,
// read River's pilot, driver, producer and completer again, and the tests below.
const pinned = "v0.51.1"

func TestRiverVersionIsPinned(t *testing.T) {
	t.Parallel()
	body, err := os.ReadFile("../../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for _, module := range []string{"river", "river/riverdriver", "river/riverdriver/riverpgxv5", "river/rivershared", "river/rivertype"} {
		if line := "github.com/riverqueue/" + module + " " + pinned; !strings.Contains(string(body), line) {
			t.Errorf("go.mod does not say %q", line)
		}
	}
}

const clientID = "node-a-00000000000000aa"

func newPilot(t *testing.T) *Pilot {
	t.Helper()
	return pilotOn(t, pgtest.URL(t))
}

func pilotOn(t *testing.T, url string) *Pilot {
	t.Helper()
	pool := pgtest.Connect(t, url)
	exec(t, pool, `INSERT INTO forge_leaders (role, term) VALUES ('scheduler', 1)`)
	exec(t, pool, `INSERT INTO forge_nodes (node_id, incarnation) VALUES ('node-a', '00000000000000aa')`)
	counter := func() prometheus.Counter { return prometheus.NewCounter(prometheus.CounterOpts{Name: "test"}) }
	return New(Options{
		Pool: pool, NodeID: "node-a", Incarnation: "00000000000000aa", ClientID: clientID, Schema: "public",
		Slots: 100, Queues: map[string]int{"default": 100}, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Claims: counter(), Refused: counter(), Fenced: func(string) {},
		Start: func(claimed []Claimed) []Claimed { return claimed }, Cancel: func(int64) {}, Unfetched: func(*rivertype.JobRow) bool { return false },
	})
}

// claim claims the offered jobs and returns those that River's producer gets.
func claim(ctx context.Context, p *Pilot) (*riverdriver.JobGetAvailableResult, error) {
	failed := p.exchange(ctx)
	result, err := p.JobGetAvailable(ctx, nil, nil, &riverdriver.JobGetAvailableParams{MaxToLock: 100, Queue: "default"})
	return result, errors.Join(failed, err)
}

func exec(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// insert adds a job and returns its id.
func insert(t *testing.T, pool *pgxpool.Pool, state string, attemptedBy []string, metadata string) int64 {
	t.Helper()
	var id int64
	err := pool.QueryRow(t.Context(), `
		INSERT INTO river_job (args, kind, state, attempt, max_attempts, attempted_by, metadata, finalized_at, scheduled_at, tags, errors)
		VALUES ('{}', 'k', $1::text::river_job_state, 3, 25, $2, $3,
		        CASE WHEN $1 IN ('completed', 'cancelled', 'discarded') THEN timestamptz '2026-01-01' END,
		        '2026-01-01', '{x,y}', ARRAY['{"at":"2026-01-01T00:00:00Z","attempt":2,"error":"e","trace":""}'::jsonb])
		RETURNING id`, state, attemptedBy, metadata).Scan(&id)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// row returns the columns that the contract covers. It checks only the presence of times
// that the statement sets itself.
func row(t *testing.T, pool *pgxpool.Pool, id int64) map[string]any {
	t.Helper()
	var body []byte
	err := pool.QueryRow(t.Context(), `
		SELECT to_jsonb(j) - 'id' - 'created_at' || jsonb_build_object(
			'attempted_at', attempted_at > now() - interval '1 minute',
			'finalized_at', CASE WHEN finalized_at > now() - interval '1 minute' THEN 'now' ELSE finalized_at::text END)
		FROM river_job j WHERE id = $1`, id).Scan(&body)
	if err != nil {
		t.Fatal(err)
	}
	var columns map[string]any
	if err := json.Unmarshal(body, &columns); err != nil {
		t.Fatal(err)
	}
	return columns
}

func TestClaimMatchesRiver(t *testing.T) {
	t.Parallel()
	p := newPilot(t)
	many := make([]string, 100)
	for i := range many {
		many[i] = strings.Repeat("x", i+1)
	}
	for name, attemptedBy := range map[string][]string{"first": nil, "second": {"other"}, "hundredth": many[:99], "after": many} {
		stock, ours := insert(t, p.pool, "available", attemptedBy, `{}`), insert(t, p.pool, "pending", attemptedBy, `{}`)
		params := &riverdriver.JobGetAvailableParams{ClientID: clientID, MaxAttemptedBy: 100, MaxToLock: 1, Queue: "default"}
		want, err := riverpgxv5.New(p.pool).GetExecutor().JobGetAvailable(t.Context(), params)
		if err != nil || len(want.Jobs) != 1 {
			t.Fatalf("%s: stock River got %v, %v", name, want, err)
		}
		exec(t, p.pool, `UPDATE river_job SET state = 'available' WHERE id = $1`, ours)
		p.buffer.add(wire.Offer{Term: 1, Seq: 1, Jobs: map[string][]int64{"default": {ours}}}, time.Now())
		got, err := claim(t.Context(), p)
		if err != nil || len(got.Jobs) != 1 {
			t.Fatalf("%s: got %v, %v", name, got, err)
		}
		if diff := cmp.Diff(row(t, p.pool, stock), row(t, p.pool, ours)); diff != "" {
			t.Errorf("%s: rows differ (-river +forge):\n%s", name, diff)
		}
		if diff := cmp.Diff(timeless(want.Jobs[0]), timeless(got.Jobs[0])); diff != "" {
			t.Errorf("%s: results differ (-river +forge):\n%s", name, diff)
		}
	}
}

func timeless(job *rivertype.JobRow) rivertype.JobRow {
	same := *job
	same.ID, same.CreatedAt, same.AttemptedAt = 0, time.Time{}, nil
	return same
}

func TestSetStateMatchesRiver(t *testing.T) {
	t.Parallel()
	p := newPilot(t)
	stock := riverpgxv5.New(p.pool).GetExecutor()
	at, failure, update := time.Date(2026, 2, 2, 2, 2, 2, 0, time.UTC), []byte(`{"error":"boom"}`), []byte(`{"forge:attempt:3":{"attempt":3}}`)
	changes := map[string]func(id int64) *riverdriver.JobSetStateIfRunningParams{
		"completed": func(id int64) *riverdriver.JobSetStateIfRunningParams {
			return riverdriver.JobSetStateCompleted(id, at, update)
		},
		"bare": func(id int64) *riverdriver.JobSetStateIfRunningParams {
			return riverdriver.JobSetStateCompleted(id, at, nil)
		},
		"cancelled": func(id int64) *riverdriver.JobSetStateIfRunningParams {
			return riverdriver.JobSetStateCancelled(id, at, failure, update)
		},
		"discarded": func(id int64) *riverdriver.JobSetStateIfRunningParams {
			return riverdriver.JobSetStateDiscarded(id, at, failure, update)
		},
		"retryable": func(id int64) *riverdriver.JobSetStateIfRunningParams {
			return riverdriver.JobSetStateErrorRetryable(id, at, failure, update)
		},
		"available": func(id int64) *riverdriver.JobSetStateIfRunningParams {
			return riverdriver.JobSetStateErrorAvailable(id, at, failure, update)
		},
		"snoozed": func(id int64) *riverdriver.JobSetStateIfRunningParams {
			return riverdriver.JobSetStateSnoozed(id, at, 2, update)
		},
		"interrupted": func(id int64) *riverdriver.JobSetStateIfRunningParams {
			return riverdriver.JobSetStateInterrupted(id, at, 2, update)
		},
	}
	for name, change := range changes {
		for _, state := range []string{"running", "cancelled", "available"} {
			for _, metadata := range []string{`{"a":1}`, `{"cancel_attempted_at":"2026-01-01"}`} {
				theirs := insert(t, p.pool, state, []string{"other", clientID}, metadata)
				ours := insert(t, p.pool, state, []string{"other", clientID}, metadata)
				want, err := stock.JobSetStateIfRunningMany(t.Context(), many(change(theirs)))
				if err != nil {
					t.Fatal(err)
				}
				got, err := p.JobSetStateIfRunningMany(t.Context(), nil, many(change(ours)))
				if err != nil {
					t.Fatalf("%s of a %s job: %v", name, state, err)
				}
				if diff := cmp.Diff(row(t, p.pool, theirs), row(t, p.pool, ours)); diff != "" {
					t.Errorf("%s of a %s job with %s: rows differ (-river +forge):\n%s", name, state, metadata, diff)
				}
				if len(got) != 1 || len(want) != 1 || got[0].State != want[0].State {
					t.Errorf("%s of a %s job: got %v, want %v", name, state, got, want)
				}
			}
		}
	}
}

// The result of a plain success is built from the claimed row. It must equal the row in
// the database.
func TestPlainSuccessResultMatchesDatabase(t *testing.T) {
	t.Parallel()
	p := newPilot(t)
	stock := riverpgxv5.New(p.pool).GetExecutor()
	ids := []int64{
		insert(t, p.pool, "available", []string{"other"}, `{"a":1}`), insert(t, p.pool, "available", nil, `{}`),
		insert(t, p.pool, "available", nil, `{}`),
	}
	p.buffer.add(wire.Offer{Term: 1, Seq: 1, Jobs: map[string][]int64{"default": ids}}, time.Now())
	claimed, err := claim(t.Context(), p)
	if err != nil || len(claimed.Jobs) != 3 {
		t.Fatalf("got %v, %v", claimed, err)
	}
	end := time.Now().Truncate(time.Microsecond)
	done, err := p.JobSetStateIfRunningMany(t.Context(), nil, many(
		riverdriver.JobSetStateCompleted(ids[2], end, nil),
		riverdriver.JobSetStateErrorRetryable(ids[1], end, []byte(`{"error":"boom"}`), nil),
		riverdriver.JobSetStateCompleted(ids[0], end, nil),
	))
	if err != nil || len(done) != 3 {
		t.Fatalf("got %v, %v", done, err)
	}
	for _, job := range done {
		want, err := stock.JobGetByID(t.Context(), &riverdriver.JobGetByIDParams{ID: job.ID})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, job); diff != "" {
			t.Errorf("the result differs from the database (-database +result):\n%s", diff)
		}
	}
	if claimed.Jobs[0].State != rivertype.JobStateRunning {
		t.Error("the worker's own row was changed")
	}
	if left := p.buffer.ownIDs(); len(left) != 0 {
		t.Errorf("jobs stay in the buffer: %v", left)
	}
}

func many(params ...*riverdriver.JobSetStateIfRunningParams) *riverdriver.JobSetStateIfRunningManyParams {
	all := &riverdriver.JobSetStateIfRunningManyParams{}
	for _, p := range params {
		all.ID = append(all.ID, p.ID)
		all.Attempt = append(all.Attempt, p.Attempt)
		all.ErrData = append(all.ErrData, p.ErrData)
		all.FinalizedAt = append(all.FinalizedAt, p.FinalizedAt)
		all.MetadataDoMerge = append(all.MetadataDoMerge, p.MetadataDoMerge)
		all.MetadataUpdates = append(all.MetadataUpdates, p.MetadataUpdates)
		all.ScheduledAt = append(all.ScheduledAt, p.ScheduledAt)
		all.State = append(all.State, p.State)
	}
	return all
}

func TestSetStateOmitsRejectedResults(t *testing.T) {
	t.Parallel()
	p := newPilot(t)
	var refused int
	p.fenced = func(string) { refused++ }
	mine := insert(t, p.pool, "running", []string{"other", clientID}, `{}`)
	stale := insert(t, p.pool, "running", []string{clientID, "other"}, `{}`)
	nobodys := insert(t, p.pool, "running", nil, `{}`)
	now := time.Now()
	jobs, err := p.JobSetStateIfRunningMany(t.Context(), nil, many(
		riverdriver.JobSetStateCompleted(mine, now, nil),
		riverdriver.JobSetStateCompleted(stale, now, []byte(`{"x":1}`)),
		riverdriver.JobSetStateCompleted(nobodys, now, nil),
		riverdriver.JobSetStateCompleted(1<<40, now, nil),
	))
	if err != nil || len(jobs) != 1 || jobs[0].ID != mine || refused != 2 {
		t.Errorf("got %v, %v, %d refused", jobs, err, refused)
	}
	for _, id := range []int64{stale, nobodys} {
		if got := row(t, p.pool, id); got["state"] != "running" || len(got["metadata"].(map[string]any)) != 0 {
			t.Errorf("the rejected row became %v", got)
		}
	}
}

func TestClaimWithLostReplyIsRecovered(t *testing.T) {
	t.Parallel()
	p := newPilot(t)
	claimed, missed := insert(t, p.pool, "available", nil, `{}`), insert(t, p.pool, "pending", nil, `{}`)
	p.buffer.add(wire.Offer{Term: 1, Seq: 1, Jobs: map[string][]int64{"default": {claimed, missed}}}, time.Now())

	batch := p.buffer.take("default", 10)
	ids := batch.free
	if err := p.store.ClaimOffers(t.Context(), []jobstore.Offer{{Queue: "default", IDs: ids, Term: batch.term, MaxAttemptedBy: 100}}, func(int, *jobstore.Row) error { return nil }); err != nil {
		t.Fatal(err)
	}
	p.settle("default", ids, nil, context.DeadlineExceeded)
	if got := p.Running(); got != 0 {
		t.Errorf("%d jobs run after a failed claim", got)
	}
	result, err := claim(t.Context(), p)
	if err != nil || len(result.Jobs) != 1 || result.Jobs[0].ID != claimed {
		t.Errorf("got %v, %v", result, err)
	}
	if got := p.Running(); got != 1 {
		t.Errorf("%d jobs run, want 1", got)
	}
}

// An idle node sends no statement: without a pool, a statement would panic.
func TestIdleNodeSendsNoStatement(t *testing.T) {
	t.Parallel()
	p := &Pilot{buffer: newClaimBuffer(1, map[string]int{"default": 1}, nil, nil), pending: newResultBuffer(), rivers: newRiverJobs(), announced: newAnnouncements()}
	result, err := claim(t.Context(), p)
	if err != nil || len(result.Jobs) != 0 {
		t.Errorf("got %v, %v", result, err)
	}
	credit, _ := p.buffer.credit()
	credit.ReadsCounted = true
	if last := wire.Marshal(credit); p.report(t.Context(), last) != last {
		t.Error("an unchanged credit was reported")
	}
}
