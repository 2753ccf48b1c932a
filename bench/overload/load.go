package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/forge-scheduler/forge/bench/internal/rig"
)

// The environment makes this program the burners.
const (
	partEnv  = "BENCH_PART"
	burnPart = "burn"
	countEnv = "BENCH_COUNT"
)

// play is the burners, until they are killed.
func play(ctx context.Context, part string) error {
	count, err := strconv.Atoi(os.Getenv(countEnv))
	if part != burnPart || err != nil {
		return fmt.Errorf("unknown part %q", part)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go endWithParent(cancel)
	burn(ctx, count)
	return nil
}

// endWithParent calls cancel when whoever started this process is gone: a run that was
// killed leaves no burners.
func endWithParent(cancel context.CancelFunc) {
	for parent := os.Getppid(); os.Getppid() == parent; time.Sleep(time.Second) {
	}
	cancel()
}

// burn keeps so many threads busy: for the system each is what a process would be.
func burn(ctx context.Context, count int) {
	runtime.GOMAXPROCS(count + 1)
	var running sync.WaitGroup
	for range count {
		running.Go(func() {
			runtime.LockOSThread()
			for n := 0; n%(1<<24) != 0 || ctx.Err() == nil; n++ {
			}
		})
	}
	running.Wait()
}

// inserters insert at the same time.
const inserters = 8

// insertedKind is the kind of the inserted jobs.
const insertedKind = "inserted"

// inserted is such a job.
type inserted struct{}

func (inserted) Kind() string { return insertedKind }

// inserter inserts jobs at an even rate, as long as those before are in, and keeps the
// ids of those that were acknowledged.
type inserter struct {
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	acked  []int64
	failed int
}

func startInserter(ctx context.Context, pool *pgxpool.Pool, rate int) (*inserter, error) {
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{})
	if err != nil {
		return nil, fmt.Errorf("make a client that inserts: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	i := &inserter{cancel: cancel}
	due := make(chan struct{})
	i.running.Go(func() {
		defer close(due)
		for at := time.Now(); ; at = at.Add(time.Second / time.Duration(rate)) {
			if rig.SleepUntil(ctx, at) != nil {
				return
			}
			select {
			case due <- struct{}{}:
			case <-ctx.Done():
				return
			}
		}
	})
	for range inserters {
		i.running.Go(func() {
			for range due {
				i.insert(ctx, client)
			}
		})
	}
	return i, nil
}

func (i *inserter) insert(ctx context.Context, client *river.Client[pgx.Tx]) {
	job, err := client.Insert(context.WithoutCancel(ctx), inserted{}, nil)
	i.mu.Lock()
	defer i.mu.Unlock()
	if err != nil {
		i.failed++
		return
	}
	i.acked = append(i.acked, job.Job.ID)
}

// stop returns the ids of the jobs that were acknowledged.
func (i *inserter) stop() []int64 {
	i.cancel()
	i.running.Wait()
	return i.acked
}

// stalls are how long PostgreSQL stands still, in turn; between is the time between.
var stalls = []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}

const between = time.Second

// stall stops all processes of the server and lets them go on, again and again, until
// ctx ends.
func stall(ctx context.Context, postmaster int) error {
	for n := 0; ctx.Err() == nil; n++ {
		all, err := children(postmaster)
		if err != nil {
			return err
		}
		all = append(all, postmaster)
		for _, pid := range all {
			_ = syscall.Kill(pid, syscall.SIGSTOP) // it may have ended
		}
		// It is the caller that ctx tells that the time is over.
		_ = rig.SleepUntil(ctx, time.Now().Add(stalls[n%len(stalls)]))
		for _, pid := range all {
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
		_ = rig.SleepUntil(ctx, time.Now().Add(between))
	}
	return nil
}

// snapshotSQL takes a snapshot that lasts as long as the transaction.
const snapshotSQL = `SELECT count(*) FROM forge_crons`

// holdSnapshot opens a transaction that sees the database as it is now, and returns
// what ends it.
func holdSnapshot(ctx context.Context, url string) (release func(), err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("connect for the snapshot: %w", err)
	}
	release = func() { _ = conn.Close(context.WithoutCancel(ctx)) } // which ends the transaction
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err == nil {
		_, err = tx.Exec(ctx, snapshotSQL)
	}
	if err != nil {
		release()
		return nil, fmt.Errorf("hold a snapshot: %w", err)
	}
	return release, nil
}
