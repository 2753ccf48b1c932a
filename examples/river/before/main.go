// Command before is a program that uses River. Command after is the same program with
// forge. docs/river.md shows the difference.
//
//	DATABASE_URL=postgres://... go run ./examples/river/before
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// ReceiptArgs are the arguments of a job.
type ReceiptArgs struct {
	Item string `json:"item"`
}

// Kind returns the kind of the job.
func (ReceiptArgs) Kind() string { return "send_receipt" }

// ReceiptWorker sends receipts.
type ReceiptWorker struct {
	river.WorkerDefaults[ReceiptArgs]
}

// Work sends the receipt for an item.
func (w *ReceiptWorker) Work(_ context.Context, job *river.Job[ReceiptArgs]) error {
	fmt.Printf("receipt for one %s sent\n", job.Args.Item)
	return nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "river:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer pool.Close()
	workers := river.NewWorkers()
	river.AddWorker(workers, &ReceiptWorker{})

	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 10}},
		Workers: workers,
	})
	if err != nil {
		return err
	}
	if err := client.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	if err := placeOrder(ctx, pool, client); err != nil {
		return err
	}
	<-ctx.Done()
	return client.Stop(context.WithoutCancel(ctx))
}

// placeOrder enqueues the receipts of an order in one transaction.
func placeOrder(ctx context.Context, pool *pgxpool.Pool, client *river.Client[pgx.Tx]) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := client.InsertTx(ctx, tx, ReceiptArgs{Item: "anvil"}, nil); err != nil {
			return err
		}
		_, err := client.InsertManyTx(ctx, tx, []river.InsertManyParams{
			{Args: ReceiptArgs{Item: "rope"}},
			{Args: ReceiptArgs{Item: "rocket"}, InsertOpts: &river.InsertOpts{Priority: 2}},
		})
		return err
	})
}
