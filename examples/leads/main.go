// Command leads works only while it leads a role. Start several processes: one of them
// adds a row every 100 milliseconds. SIGUSR1 makes the leader step down.
//
//	FORGE_DATABASE_URL=postgres://... go run ./examples/leads NODE-ID LISTEN
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

const role = "mailer"

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: leads NODE-ID LISTEN")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1], os.Args[2])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "leads:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, id, listen string) error {
	cfg, err := forge.ParseConfig("leads", fmt.Sprintf("[node]\nid = %q\n[http]\nlisten = %q\n", id, listen))
	if err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, cfg.Database.URL)
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, `CREATE TABLE IF NOT EXISTS mails (id bigserial PRIMARY KEY, node text, term bigint)`); err != nil {
		return err
	}
	// The role's function only keeps the role: the work is in mail.
	hold := func(ctx context.Context, _ forge.Term) error { <-ctx.Done(); return nil }
	node, err := forge.New(cfg, forge.WithRole(role, hold))
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- node.Run(ctx) }()
	mail(ctx, node, pool)
	return <-done
}

// mail adds rows while this process leads, until ctx ends.
func mail(ctx context.Context, node *forge.Node, pool *pgxpool.Pool) {
	stepDown := make(chan os.Signal, 1)
	signal.Notify(stepDown, syscall.SIGUSR1)
	defer signal.Stop(stepDown)
	for ctx.Err() == nil {
		err := node.RunIfLeader(ctx, role, func(ctx context.Context, term forge.Term) error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				if err := term.Check(ctx, tx); err != nil { // the fence
					return err
				}
				_, err := tx.Exec(ctx, `INSERT INTO mails (node, term) VALUES ($1, $2)`, term.NodeID, term.Number)
				return err
			})
		})
		if err != nil && !errors.Is(err, forge.ErrNotLeader) && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "mail:", err) // the next attempt may succeed
		}
		select {
		case <-ctx.Done():
		case <-stepDown:
			if err := node.StepDown(ctx, role); err != nil {
				fmt.Fprintln(os.Stderr, "step down:", err)
			}
		case <-time.After(100 * time.Millisecond):
		}
	}
}
