// Command embed runs a forge node with its own worker, and enqueues a job in its own
// transaction: the order and the job are committed together, or neither is.
//
//	FORGE_DATABASE_URL=postgres://... go run ./examples/embed
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

// ReceiptArgs are the arguments of a job, as in River.
type ReceiptArgs struct {
	OrderID int64 `json:"order_id"`
}

// Kind returns the kind of the job.
func (ReceiptArgs) Kind() string { return "send_receipt" }

// ReceiptWorker sends receipts.
type ReceiptWorker struct {
	river.WorkerDefaults[ReceiptArgs]
	sent chan<- int64
}

// Work sends the receipt of an order.
func (w *ReceiptWorker) Work(_ context.Context, job *river.Job[ReceiptArgs]) error {
	fmt.Printf("receipt of order %d sent, attempt %d\n", job.Args.OrderID, job.Attempt)
	w.sent <- job.Args.OrderID
	return nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "embed:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	cfg, err := forge.ParseConfig("embedded", `
[node]
id = "shop"
[http]
listen = "127.0.0.1:8090"
`)
	if err != nil {
		return err
	}
	sent := make(chan int64, 1)
	workers := river.NewWorkers()
	river.AddWorker(workers, &ReceiptWorker{sent: sent})
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

	order, err := placeOrder(ctx, cfg.Database.URL, node)
	if err != nil {
		stop()
		return errors.Join(err, <-ended)
	}
	fmt.Printf("order %d placed\n", order)
	select {
	case <-sent:
	case <-ctx.Done():
	}
	stop()
	return <-ended
}

// placeOrder writes the order and enqueues its receipt in one transaction.
func placeOrder(ctx context.Context, url string, node *forge.Node) (order int64, err error) {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return 0, err
	}
	defer pool.Close()
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `CREATE TABLE IF NOT EXISTS shop_orders (id bigserial PRIMARY KEY, item text)`); err != nil {
			return err
		}
		row := tx.QueryRow(ctx, `INSERT INTO shop_orders (item) VALUES ('anvil') RETURNING id`)
		if err := row.Scan(&order); err != nil {
			return err
		}
		_, err := node.Client().InsertTx(ctx, tx, ReceiptArgs{OrderID: order}, nil)
		return err
	})
	return order, err
}
