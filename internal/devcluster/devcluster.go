package devcluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
)

// URLFile is the file in the data directory that holds the database's address
// while the cluster runs, readable by its owner alone.
const URLFile = "database-url"

// cluster is a running cluster.
type cluster struct {
	Options

	log       *logRenderer
	logger    *slog.Logger
	database  *Server
	nodes     []*process
	forceStop context.Context //nolint:containedctx // ends when a second interrupt does not want to wait for drains
	fail      context.CancelCauseFunc
}

// Run starts PostgreSQL and the nodes and blocks until ctx ends or PostgreSQL does. When
// ctx ends the nodes get SIGTERM and time to drain; a further interrupt then kills them.
// Nil means an ordinary shutdown. When Run returns, none of the processes that it started
// is left.
func Run(ctx context.Context, options Options) error {
	options, err := options.withDefaults()
	if err != nil {
		return err
	}
	ctx, release := endWithMake(ctx)
	defer release()
	c := &cluster{Options: options, log: newLogRenderer(options)}
	c.logger = c.log.logger()

	addresses, err := chooseAddresses(c.Listen, c.Nodes)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.DataDir, 0o755); err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	c.database, err = StartServer(ctx, ServerOptions{
		DataDir: filepath.Join(c.DataDir, "postgres"), BinDir: c.PostgresBinDir,
		Settings: c.PostgresSettings, Logger: c.logger,
	})
	if err != nil {
		return fmt.Errorf("start the embedded PostgreSQL: %w", err)
	}
	err = c.runOn(ctx, addresses)
	if stopErr := c.database.Stop(StopFast); err == nil {
		err = stopErr
	}
	return err
}

// runOn runs the nodes on the started database.
func (c *cluster) runOn(ctx context.Context, addresses []string) error {
	if c.Prepare != nil {
		if err := c.Prepare(ctx, c.database.URL()); err != nil {
			return fmt.Errorf("prepare the database: %w", err)
		}
	}
	urlFile := filepath.Join(c.DataDir, URLFile)
	if err := writePrivate(urlFile, c.database.URL()); err != nil {
		return err
	}
	defer func() { _ = os.Remove(urlFile) }()

	told := ctx
	ctx, c.fail = context.WithCancelCause(ctx)
	defer c.fail(nil)
	forceStop, release := forceStopAfter(ctx)
	defer release()
	c.forceStop = forceStop

	var running sync.WaitGroup
	for i, address := range addresses {
		node := newProcess(c, i, address)
		c.nodes = append(c.nodes, node)
		running.Go(func() { node.run(ctx) })
	}
	running.Go(func() { c.watchDatabase(ctx) })
	running.Go(func() { c.announce(ctx) })
	running.Wait()
	if told.Err() != nil {
		return nil
	}
	return context.Cause(ctx)
}

func (c *cluster) watchDatabase(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-c.database.Done():
		c.fail(fmt.Errorf("the embedded PostgreSQL ended: %w", c.database.Wait()))
	}
}

// forceStopAfter returns a context that ends with the first interrupt after ctx.
func forceStopAfter(ctx context.Context) (forceStop context.Context, release func()) {
	forceStop, cancel := context.WithCancel(context.WithoutCancel(ctx))
	interrupts := make(chan os.Signal, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-ctx.Done():
		case <-forceStop.Done():
			return
		}
		signal.Notify(interrupts, os.Interrupt, syscall.SIGTERM)
		defer signal.Stop(interrupts)
		select {
		case <-interrupts:
			cancel()
		case <-forceStop.Done():
		}
	}()
	return forceStop, func() {
		cancel()
		<-done
	}
}

func writePrivate(path, text string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("write the database's address: %w", err)
	}
	if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
		return fmt.Errorf("write the database's address: %w", err)
	}
	return nil
}
