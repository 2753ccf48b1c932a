// Command after is the program of command before, moved from River to forge.
// docs/river.md shows the difference.
//
//	DATABASE_URL=postgres://... go run ./examples/river/after
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"

	"github.com/forge-scheduler/forge"
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

	cfg, err := forge.ParseConfig("shop", "[node]\nslots = 10\n") // or forge.LoadConfig, of a forge.toml
	if err != nil {
		return err
	}
	node, err := forge.New(cfg, forge.WithWorkers(workers))
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- node.Run(running) }()
	select {
	case <-node.Ready():
	case err := <-ended:
		return err
	}
	if err := placeOrder(ctx, pool, node.Client()); err != nil {
		stop()
		return errors.Join(err, <-ended)
	}
	return <-ended
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
