package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/pgembed"
)

// patience bounds every wait: a machine may be slow, a fault may not be healed.
const patience = time.Minute

// bench is one run: a PostgreSQL, the processes on it and what was measured.
type bench struct {
	options
	dir     string
	binary  string
	server  *pgembed.Server
	launch  pgembed.Options
	pool    *pgxpool.Pool
	nodes   []*process
	report  *report
	started int // processes so far; each gets a name of its own
	say     func(format string, args ...any)
}

func newBench(ctx context.Context, o options, progress io.Writer) (b *bench, err error) {
	b = &bench{options: o, binary: o.forge, say: func(format string, args ...any) {
		_, _ = fmt.Fprintf(progress, format+"\n", args...)
	}}
	if b.dir, err = os.MkdirTemp("", "forge-failover-"); err != nil {
		return nil, fmt.Errorf("make a directory for the run: %w", err)
	}
	if err := b.prepare(ctx); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

func (b *bench) prepare(ctx context.Context) error {
	if err := os.Chmod(b.dir, 0o755); err != nil { //nolint:gosec // under root the server's user has to enter it
		return fmt.Errorf("open the run's directory: %w", err)
	}
	if b.binary == "" {
		b.say("building forge")
		b.binary = filepath.Join(b.dir, "forge")
		build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", b.binary, "github.com/forge-scheduler/forge/cmd/forge") //nolint:gosec // fixed
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("build forge: %w\n%s", err, out)
		}
	}
	b.say("starting PostgreSQL")
	b.launch = pgembed.Options{
		DataDir:  filepath.Join(b.dir, "postgres"),
		Settings: map[string]string{"track_commit_timestamp": "on", "max_connections": "200"},
	}
	if err := b.startServer(ctx); err != nil {
		return err
	}
	b.launch.Port = b.server.Port()
	var err error
	if b.pool, err = pgxpool.New(ctx, b.server.URL()); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	b.report, err = newReport(b.options, b.server.Version())
	return err
}

func (b *bench) startServer(ctx context.Context) (err error) {
	if b.server, err = pgembed.Start(ctx, b.launch); err != nil {
		return fmt.Errorf("start PostgreSQL: %w", err)
	}
	return nil
}

// close ends every process and removes what the run made.
func (b *bench) close() error {
	b.killAll()
	if b.pool != nil {
		b.pool.Close()
	}
	var err error
	if b.server != nil {
		err = b.server.Stop(pgembed.Fast)
	}
	return errors.Join(err, os.RemoveAll(b.dir))
}

func (b *bench) killAll() {
	for _, node := range b.nodes {
		node.kill()
	}
	b.nodes = nil
}

// name makes a name that no process of the run had before, so that none waits
// for its predecessor to be given up.
func (b *bench) name() string {
	b.started++
	return fmt.Sprintf("n%d", b.started)
}

func (b *bench) node(id string) *process {
	for _, node := range b.nodes {
		if node.id == id {
			return node
		}
	}
	return nil
}

func (b *bench) forget(id string) {
	for i, node := range b.nodes {
		if node.id == id {
			b.nodes = append(b.nodes[:i], b.nodes[i+1:]...)
			return
		}
	}
}

// await looks every few milliseconds until done says so. Errors of the database
// count as not yet: it may be what is broken.
func await(ctx context.Context, what string, done func(ctx context.Context) (bool, error)) error {
	deadline := time.Now().Add(patience)
	for {
		ok, err := done(ctx)
		if ok && err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return errors.Join(fmt.Errorf("waited %v in vain: %s", patience, what), err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// awaitRow looks until a query has a row that is true in its first column.
func (b *bench) awaitRow(ctx context.Context, what, sql string, args ...any) error {
	return await(ctx, what, func(ctx context.Context) (ok bool, err error) {
		err = b.pool.QueryRow(ctx, sql, args...).Scan(&ok)
		if errors.Is(err, pgx.ErrNoRows) {
			return false, nil
		}
		return ok, err
	})
}
