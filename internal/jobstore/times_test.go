package jobstore

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/filter"
	"github.com/forge-scheduler/forge/internal/limitkey"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

// strangeTimes are times that time.Time or JSON cannot represent.
var strangeTimes = []string{"-infinity", "infinity", "20000-01-01Z", "4000-01-01Z BC"}

// insertStrangeTimes inserts a job of each state with each strange time, in the queue "default". The
// jobs have the cron nightly, and the running ones the client n-00000000000000aa.
func insertStrangeTimes(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	mustExec(t, pool, `
		INSERT INTO river_job (kind, args, state, attempt, max_attempts, metadata, errors, scheduled_at, created_at, attempted_at, attempted_by, finalized_at)
		SELECT 'strange', '{}', s, 1, 1, '{"forge:cron": "nightly"}', ARRAY['{"error": "it failed"}'::jsonb], at, at, at, '{n-00000000000000aa}',
		       CASE WHEN s IN ('completed', 'cancelled', 'discarded') THEN at END
		FROM unnest($1::text[]::timestamptz[]) AS at, unnest(enum_range(NULL::river_job_state)) AS s`, strangeTimes)
}

// Jobs of other programs can have any time. Each read works, and its times can be encoded.
func TestReadsOfStrangeTimes(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	insertStrangeTimes(t, pool)
	mustExec(t, pool, `INSERT INTO forge_claims (client_id, ids) SELECT 'n-00000000000000aa', array_agg(id) FROM river_job WHERE state = 'running'`)
	ctx, store := t.Context(), New(pool)
	where := func(text string) *filter.Filter {
		f, err := filter.Parse(text, Keys)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	search := func(f Filter) func() (any, error) {
		return func() (any, error) {
			found, err := store.Search(ctx, f)
			if err == nil && len(found.Jobs) == 0 {
				err = fmt.Errorf("no job was found")
			}
			return found.Jobs, err
		}
	}
	for name, read := range map[string]func() (any, error){
		"List":           func() (any, error) { return store.List(ctx, Filter{}) },
		"Get":            func() (any, error) { return store.Get(ctx, 1) },
		"Search":         search(Filter{}),
		"Search slowest": search(Filter{Sort: Slowest}),
		"Search waiting": search(Filter{Sort: Waiting}),
		"Search took":    search(Filter{Where: where("took:>1s")}),
		"Search since":   search(Filter{Where: where("since:2h")}),
		"Search until":   search(Filter{Where: where("until:2h")}),
		"CountMatching":  func() (any, error) { return store.CountMatching(ctx, Retry, Filter{}, Matching{}) },
		"CountDead":      func() (any, error) { return store.CountDead(ctx, DeadFilter{}, Matching{}) },
		"DeadGroups":     func() (any, error) { return store.DeadGroups(ctx, DeadFilter{}) },
		"DeadLetters":    func() (any, error) { return store.DeadLetters(ctx, DeadFilter{}, 0, 10) },
		"LockNewDead":    func() (any, error) { return store.LockNewDead(ctx, 10) },
		"LockOrphans":    func() (any, error) { return store.LockOrphans(ctx, "n-00000000000000aa", 10) },
		"Queues":         func() (any, error) { return store.Queues(ctx) },
		"WaitingQueues":  func() (any, error) { return store.WaitingQueues(ctx) },
		"Queue":          func() (any, error) { return store.Queue(ctx, "default") },
		"Counts":         func() (any, error) { return store.CountsByQueueAndState(ctx) },
		"KeyUses": func() (any, error) {
			return store.KeyUses(ctx, "default", limitkey.Key{Source: limitkey.Cron}, KeySearch{}, 10)
		},
		"NextDue": func() (any, error) {
			next, err := store.NextDue(ctx)
			if next != -NoDueJob {
				err = fmt.Errorf("the next job is due in %s: %w", next, err)
			}
			return next, err
		},
		"BatchCronRuns": func() (runs any, err error) {
			var batch pgx.Batch
			BatchCronRuns(&batch, []string{"nightly"}, []int64{0}, func(found CronRuns) { runs = found })
			return runs, pool.SendBatch(ctx, &batch).Close()
		},
		"OpenCount": func() (any, error) {
			var count OpenCount
			for {
				if _, all, err := count.Next(ctx, pool, 1); all != nil || err != nil {
					return all, err
				}
			}
		},
	} {
		found, err := read()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _, err := json.Marshal(found); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	queues, err := store.Queues(ctx)
	if err != nil || len(queues) != 1 || queues[0].OldestAt.IsZero() || queues[0].Wait() != longestWait {
		t.Errorf("queues: %+v, %v", queues, err)
	}
	job, err := store.Get(ctx, 1)
	if err != nil || job.ScheduledAt.IsZero() {
		t.Errorf("job: %+v, %v", job, err)
	}
}

// The leader offers and releases the jobs that are due, and nodes claim and finish them.
func TestJobsWithStrangeTimesRun(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newTestClient(t, pool)
	insertStrangeTimes(t, pool)
	mustExec(t, pool, `DELETE FROM river_job WHERE state NOT IN ('available', 'scheduled')`)
	mustExec(t, pool, `INSERT INTO river_job (kind, args, max_attempts) SELECT 'normal', '{}', 1 FROM generate_series(1, 3)`)
	mustExec(t, pool, `INSERT INTO river_job (kind, args, max_attempts, scheduled_at, state) VALUES ('normal', '{}', 1, now(), 'scheduled')`)
	ctx, store := t.Context(), New(pool)
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		released, err := New(tx).ReleaseDue(ctx, time.Now(), 100)
		if released != 3 {
			t.Errorf("%d jobs were released, want 3", released)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	// Each scan continues after the job that the last one found.
	var ids []int64
	scan := Scan{Queue: "default", First: 1, Limit: 1}
	for range 20 {
		before := len(ids)
		_, err := store.ScanAvailable(ctx, []Scan{scan}, time.Second, func(job *AvailableJob) {
			ids = append(ids, job.ID)
			scan.After[0] = Position{job.ScheduledAt, job.ID}
			if job.DueIn > 0 || job.DueIn < -100*365*24*time.Hour {
				t.Errorf("job %d is due in %s", job.ID, job.DueIn)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(ids) == before {
			break
		}
	}
	if len(ids) != 8 { // 4 long ago, 4 now
		t.Errorf("scans found the jobs %d, want 8", ids)
	}
	low, err := store.LowestAvailable(ctx, []Low{{Queue: "default", Priority: 1, Position: scan.After[0]}})
	if err != nil || len(low) != 1 || low[0].ID != ids[0] {
		t.Errorf("lowest: %+v, %v; want job %d", low, err, ids[0])
	}

	inTurns := FairQueue{Queue: "default", Key: limitkey.Key{Source: limitkey.Args, Path: []string{"k"}}}
	if err := store.CreateFairIndex(ctx, inTurns); err != nil {
		t.Fatal(err)
	}
	fair, err := store.ScanFair(ctx, FairScan{FairQueue: inTurns, Limit: 20}, time.Second)
	if err != nil || len(fair) != 8 {
		t.Errorf("a scan in turns found %d jobs, want 8: %v", len(fair), err)
	}

	claimed, err := claimUnlimited(ctx, client, Offer{Queue: "default", IDs: ids, Term: 1, MaxAttemptedBy: 100})
	if err != nil || len(claimed) != 8 {
		t.Fatalf("claimed %d jobs, want 8: %v", len(claimed), err)
	}
	ends := make([]*time.Time, len(ids))
	for i := range ends {
		now := time.Now()
		ends[i] = &now
	}
	if done, err := client.Complete(ctx, ids, ends, make([]*time.Time, len(ids))); err != nil || len(done) != 8 {
		t.Errorf("completed %d jobs, want 8: %v", len(done), err)
	}
}

// An action on many jobs includes those with strange times.
func TestActionsOnStrangeTimes(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	insertStrangeTimes(t, pool)
	ctx, store := t.Context(), New(pool)
	for _, test := range []struct {
		action Action
		state  string
	}{{Retry, "completed"}, {Retry, "cancelled"}, {Retry, "discarded"}, {Cancel, "scheduled"}} {
		f := Filter{State: test.state}
		counted, err := store.CountMatching(ctx, test.action, f, Matching{})
		if err != nil || counted.Jobs != int64(len(strangeTimes)) {
			t.Errorf("counted %d %s jobs: %v", counted.Jobs, test.state, err)
			continue
		}
		if changed, err := store.ActOnAll(ctx, Order{Action: test.action}, f, counted); err != nil || changed != len(strangeTimes) {
			t.Errorf("%s: changed %d %s jobs: %v", test.action, changed, test.state, err)
		}
	}
}
