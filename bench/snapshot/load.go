package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/forge-scheduler/forge/bench/internal/rig"
)

const (
	// batchesASecond are the transactions that insert jobs.
	batchesASecond = 100
	// inserters insert at the same time, so that one that waits delays none.
	inserters = 4
	// readers overlap in the phase of that name.
	readers = 3
)

// load inserts jobs from an instant on, each at its own, until stop is closed. It returns
// how many.
func (b *bench) load(ctx context.Context, f *field, begin time.Time, stop <-chan struct{}) (int64, error) {
	size := int64(b.rate / batchesASecond)
	batches := make(chan int64)
	group, ctx := errgroup.WithContext(ctx)
	for range inserters {
		group.Go(func() error {
			for batch := range batches {
				due := begin.Add(time.Duration(batch) * time.Second / batchesASecond)
				if err := f.add(ctx, batch*size, size, due); err != nil {
					return err
				}
			}
			return nil
		})
	}
	var batch int64
	group.Go(func() error {
		defer close(batches)
		for ; ; batch++ {
			select {
			case <-stop:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Until(begin.Add(time.Duration(batch) * time.Second / batchesASecond))):
			}
			select {
			case batches <- batch:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	if err := group.Wait(); err != nil {
		return 0, fmt.Errorf("insert jobs: %w", err)
	}
	return batch * size, nil
}

// add inserts jobs in one transaction.
func (f *field) add(ctx context.Context, first, count int64, due time.Time) error {
	jobs := make([]noop, count)
	for i := range jobs {
		jobs[i] = noop{N: first + int64(i), Due: due.UnixMicro()}
	}
	return pgx.BeginFunc(ctx, f.pool, func(tx pgx.Tx) error { return f.system.insert(ctx, f, tx, jobs) })
}

// read holds a snapshot for a while.
func (f *field) read(ctx context.Context, length time.Duration) error {
	conn, err := pgx.Connect(ctx, f.url)
	if err != nil {
		return fmt.Errorf("connect a reader: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // ends the transaction
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err == nil {
		_, err = tx.Exec(ctx, `SELECT count(*) FROM pg_class`)
	}
	if err != nil {
		return fmt.Errorf("take a snapshot: %w", err)
	}
	if err := rig.SleepUntil(ctx, time.Now().Add(length)); err != nil {
		return err
	}
	if err := tx.Rollback(ctx); err != nil {
		return fmt.Errorf("release a snapshot: %w", err)
	}
	return nil
}

// overlap lets readers hold snapshots, each a third of the time after the one before it.
func (f *field) overlap(ctx context.Context, hold time.Duration) error {
	begin := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	for n := range readers {
		group.Go(func() error {
			if err := rig.SleepUntil(ctx, begin.Add(time.Duration(n)*hold/readers)); err != nil {
				return err
			}
			return f.read(ctx, hold)
		})
	}
	return group.Wait()
}
