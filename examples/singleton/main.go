// Command singleton has a role of its own. Start several processes: the leader counts.
// The count is in the database, and no process whose term has ended can add to it.
//
//	FORGE_DATABASE_URL=postgres://... go run ./examples/singleton NODE-ID LISTEN
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: singleton NODE-ID LISTEN")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1], os.Args[2])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "singleton:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, id, listen string) error {
	cfg, err := forge.ParseConfig("singleton", fmt.Sprintf("[node]\nid = %q\n[http]\nlisten = %q\n", id, listen))
	if err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, cfg.Database.URL)
	if err != nil {
		return err
	}
	defer pool.Close()
	node, err := forge.New(cfg,
		forge.WithRole("counter", counter(pool), forge.RoleMetadata(map[string]int{"pid": os.Getpid()})),
		forge.WithCallbacks(forge.Callbacks{
			LeaderChanged: func(_ context.Context, leader forge.Leader) {
				if leader.Role == "counter" && leader.NodeID != "" {
					fmt.Printf("%s: %s counts in term %d\n", id, leader.NodeID, leader.Term)
				}
			},
		}),
	)
	if err != nil {
		return err
	}
	return node.Run(ctx)
}

// counter returns the function that the leader runs. It adds to the count ten times a
// second until its term ends.
func counter(pool *pgxpool.Pool) forge.RoleFunc {
	return func(ctx context.Context, term forge.Term) error {
		if _, err := pool.Exec(ctx, `CREATE TABLE IF NOT EXISTS counts (n bigint PRIMARY KEY, node text, term bigint)`); err != nil {
			return err
		}
		for ctx.Err() == nil {
			term.Report()
			err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return count(ctx, tx, term) })
			switch {
			case errors.Is(err, forge.ErrDeposed):
				return err
			case err != nil && ctx.Err() == nil:
				fmt.Fprintln(os.Stderr, "count:", err) // the next attempt may succeed
			}
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
		return nil
	}
}

func count(ctx context.Context, tx pgx.Tx, term forge.Term) error {
	if err := term.Check(ctx, tx); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `INSERT INTO counts SELECT coalesce(max(n), 0) + 1, $1, $2 FROM counts`, term.NodeID, term.Number)
	return err
}
