// Command screenshots takes the pictures of the documentation: it starts a
// cluster with forge dev, kills the leader once and looks at the dashboard with
// a real Chromium.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/forge-scheduler/forge/test/browser"
)

// settings are what the flags say.
type settings struct {
	binary, config, out string
	before, after       time.Duration
}

func main() {
	var s settings
	flag.StringVar(&s.binary, "binary", "bin/forge", "the forge to run")
	flag.StringVar(&s.config, "config", "forge.toml.example", "its configuration")
	flag.StringVar(&s.out, "out", "docs/images", "the directory of the pictures")
	flag.DurationVar(&s.before, "before", 130*time.Second, "how long crons run before the leader is killed")
	flag.DurationVar(&s.after, "after", 70*time.Second, "how long they run after it")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, s, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "screenshots:", err)
		os.Exit(1) //nolint:gocritic // everything that run started has stopped
	}
}

func run(ctx context.Context, s settings, progress io.Writer) error {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(progress, format+"\n", args...) }

	chromium, err := browser.Start(ctx)
	if err != nil {
		return err
	}
	defer chromium.Stop()

	say("starting a cluster of three nodes")
	c, err := startCluster(ctx, s.binary, s.config)
	if err != nil {
		return err
	}
	defer func() {
		say("stopping the cluster")
		if err := c.stop(); err != nil {
			say("the cluster did not stop cleanly: %v", err)
		}
	}()

	say("letting crons run for %v", s.before)
	if err := sleep(ctx, s.before); err != nil {
		return err
	}
	old, err := c.killLeader(ctx)
	if err != nil {
		return err
	}
	say("killed %s, the scheduler's leader", old)
	next, err := c.awaitOther(ctx, old)
	if err != nil {
		return err
	}
	say("%s leads; waiting for %v more", next, s.after)
	if err := sleep(ctx, s.after); err != nil {
		return err
	}
	return takeAll(ctx, chromium, c, s.out, say)
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
