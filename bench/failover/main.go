// Command failover measures how long a cluster is without a leader after each
// kind of fault, with River's own elector beside it in the same run.
//
//	go run ./bench/failover [-trials 30] [-peer-trials 5] [-faults term,kill,...]
//
// Three forge serve processes with default settings stand on a PostgreSQL of
// their own. Each trial breaks the scheduler's leader, or the database, and takes
// the time to the commit of the next term, by the server's commit time stamps.
// The gap is from the last commit of the old term's work to the first of the new
// term; below zero would mean two leaders.
//
// It prints a table and, as the last line, one JSON object.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

type options struct {
	trials, peerTrials int
	faults             []string
	forge              string
}

func main() {
	if url := os.Getenv(peerEnv); url != "" {
		exit(runPeer(url))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "failover:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func parse(args []string, stderr io.Writer) (options, error) {
	flags := flag.NewFlagSet("failover", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var o options
	var faults string
	flags.IntVar(&o.trials, "trials", 30, "trials of each fault")
	flags.IntVar(&o.peerTrials, "peer-trials", 5, "trials of each fault with River's elector; 0 leaves it out")
	flags.StringVar(&faults, "faults", strings.Join(faultNames(), ","), "comma-separated `list` of faults")
	flags.StringVar(&o.forge, "forge", "", "`path` of the forge to measure; built from this tree by default")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.faults = strings.Split(faults, ",")
	for _, name := range o.faults {
		if !slices.Contains(faultNames(), name) {
			return o, fmt.Errorf("fault %q: want some of %s", name, strings.Join(faultNames(), ", "))
		}
	}
	if o.trials < 1 || o.peerTrials < 0 {
		return o, errors.New("want one trial or more")
	}
	return o, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	b, err := newBench(ctx, o, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.measureForge(ctx); err != nil {
		return err
	}
	if o.peerTrials > 0 {
		if err := b.measurePeer(ctx); err != nil {
			return err
		}
	}
	return b.report.print(stdout)
}
