package riveradapter

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/rivertype"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/wire"
)

func limit(t *testing.T, pool *pgxpool.Pool, limits ...jobstore.Limit) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return jobstore.New(tx).SetLimits(t.Context(), limits) })
	if err != nil {
		t.Fatal(err)
	}
}

// insertKind adds available jobs of a kind and returns their ids.
func insertKind(t *testing.T, pool *pgxpool.Pool, kind string, n int) []int64 {
	t.Helper()
	rows, err := pool.Query(t.Context(), `
		INSERT INTO river_job (args, kind) SELECT '{}', $1 FROM generate_series(1, $2) RETURNING id`, kind, n)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// claimOffered claims jobs for River's producer.
func claimOffered(ctx context.Context, p *Pilot, seq int64, limited bool, ids ...int64) ([]int64, error) {
	p.buffer.add(wire.Offer{Term: 1, Seq: seq, Limited: limited, Jobs: map[string][]int64{"default": ids}}, time.Now())
	got, err := claim(ctx, p)
	if err != nil {
		return nil, err
	}
	return idsOf(got.Jobs), nil
}

func idsOf(jobs []*rivertype.JobRow) []int64 {
	ids := make([]int64, len(jobs))
	for i, job := range jobs {
		ids[i] = job.ID
	}
	slices.Sort(ids)
	return ids
}

func TestClaimRespectsLimits(t *testing.T) {
	t.Parallel()
	p := newPilot(t)
	limit(t, p.pool, jobstore.Limit{Scope: "queue", Name: "default", Most: 4}, jobstore.Limit{Scope: "job", Name: "slow", Most: 2},
		jobstore.Limit{Scope: "queue", Name: "elsewhere", Most: 1})
	running := insert(t, p.pool, "running", []string{"other"}, `{}`)
	slow, fast := insertKind(t, p.pool, "slow", 3), insertKind(t, p.pool, "fast", 3)
	claim := func(seq int64, ids ...int64) []int64 {
		t.Helper()
		got, err := claimOffered(t.Context(), p, seq, true, ids...)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := claim(1, slow...); !slices.Equal(got, slow[:2]) {
		t.Errorf("of a kind whose limit is 2 it claimed %v of %v", got, slow)
	}
	if got := claim(2, append(fast, slow[2])...); !slices.Equal(got, fast[:1]) {
		t.Errorf("with one place left in the queue it claimed %v of %v", got, fast)
	}
	exec(t, p.pool, `UPDATE river_job SET state = 'completed', finalized_at = now() WHERE id = $1`, running)
	if got := claim(3, slow[2], fast[1]); !slices.Equal(got, fast[1:2]) {
		t.Errorf("with one place left in the queue and none of the kind it claimed %v, want %v", got, fast[1:2])
	}
	limit(t, p.pool) // the limit is removed: jobs that were offered with it are claimed as usual
	if got := claim(4, slow[2], fast[2]); len(got) != 2 {
		t.Errorf("without limits it claimed %v", got)
	}
	if credit, _ := p.buffer.credit(); credit.Slots != 100-6 {
		t.Errorf("rejected jobs keep their slots: %d of 100 are free, want 94", credit.Slots)
	}
}

// One call claims jobs with and without a limit.
func TestClaimCombinesLimitedAndUnlimitedJobs(t *testing.T) {
	t.Parallel()
	p := newPilot(t)
	limit(t, p.pool, jobstore.Limit{Scope: "job", Name: "slow", Most: 1})
	slow, fast := insertKind(t, p.pool, "slow", 2), insertKind(t, p.pool, "fast", 2)
	p.buffer.add(wire.Offer{Term: 1, Seq: 1, Limited: true, Jobs: map[string][]int64{"default": slow}}, time.Now())
	got, err := claimOffered(t.Context(), p, 2, false, fast...)
	if want := []int64{slow[0], fast[0], fast[1]}; err != nil || !slices.Equal(got, want) {
		t.Errorf("claimed %v, %v; want %v", got, err, want)
	}
}

// Successive leaders offer the same places again. Concurrent claims of several nodes
// never exceed the limit.
func TestConcurrentClaimsRespectLimit(t *testing.T) {
	t.Parallel()
	const nodes, rounds, maxJobs = 4, 15, 3
	pilots := nodesOf(t, nodes)
	first := pilots[0]
	limit(t, first.pool, jobstore.Limit{Scope: "queue", Name: "default", Most: maxJobs}, jobstore.Limit{Scope: "job", Name: "k", Most: maxJobs})
	ids := insertKind(t, first.pool, "k", nodes*rounds*maxJobs)
	var wg sync.WaitGroup
	for n, p := range pilots {
		wg.Go(func() {
			for round := range rounds {
				from := (n*rounds + round) * maxJobs
				if err := p.claimAndFinish(t.Context(), int64(round)+1, maxJobs, ids[from:from+maxJobs]); err != nil {
					t.Errorf("node %d: %v", n, err)
					return
				}
			}
		})
	}
	wg.Wait()
	var completed int
	if err := first.pool.QueryRow(t.Context(), `SELECT count(*) FROM river_job WHERE state = 'completed'`).Scan(&completed); err != nil {
		t.Fatal(err)
	}
	if completed < maxJobs {
		t.Errorf("%d jobs were claimed and ended; want %d or more", completed, maxJobs)
	}
}

// claimAndFinish claims as many of the jobs as possible, checks the number of running
// jobs, and completes its own.
func (p *Pilot) claimAndFinish(ctx context.Context, seq int64, maxJobs int, ids []int64) error {
	got, err := claimOffered(ctx, p, seq, true, ids...)
	if err != nil {
		return err
	}
	var running int
	if err := p.pool.QueryRow(ctx, `SELECT count(*) FROM river_job WHERE state = 'running'`).Scan(&running); err != nil {
		return err
	}
	if running > maxJobs {
		return fmt.Errorf("%d jobs run, the limit is %d", running, maxJobs)
	}
	_, err = p.pool.Exec(ctx, `UPDATE river_job SET state = 'completed', finalized_at = now() WHERE id = ANY ($1)`, got)
	return err
}
