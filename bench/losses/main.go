// Command losses counts how often a leader that nothing ails loses its role while
// the machine is overloaded.
//
//	go -C bench run ./losses [-for 10m] [-leases 3s,1s]
//
// For each lease three nodes, processes of their own with a cron each second, stand
// on a PostgreSQL of their own. Beside them run, as further processes, two busy loops
// for each processor, a writer that syncs a file over and over, and clients that
// insert, update and checkpoint in the same server. Every tenure that ends is a loss:
// nobody asks for one.
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
	"strings"
	"time"

	"github.com/forge-scheduler/forge/bench/internal/rig"
)

type options struct {
	length time.Duration
	leases []time.Duration
}

func main() { rig.Main("losses", run) }

func parse(args []string, stderr io.Writer) (options, error) {
	flags := flag.NewFlagSet("losses", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var o options
	var leases string
	flags.DurationVar(&o.length, "for", 10*time.Minute, "`length` of the load, for each lease")
	flags.StringVar(&leases, "leases", "3s,1s", "comma-separated `list` of leases; checks and renewals are in proportion")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	for text := range strings.SplitSeq(leases, ",") {
		lease, err := time.ParseDuration(text)
		if err != nil || lease < 500*time.Millisecond {
			return o, fmt.Errorf("lease %q: want 500ms or more", text)
		}
		o.leases = append(o.leases, lease)
	}
	if o.length < time.Second {
		return o, errors.New("want a second or more")
	}
	return o, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	if part := os.Getenv(partEnv); part != "" {
		return play(ctx, part)
	}
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	say := rig.Progress(stderr)
	var outcomes []outcome
	for _, lease := range o.leases {
		say("lease %v, for %v", lease, o.length)
		measured, err := measure(ctx, lease, o.length)
		if err != nil {
			return fmt.Errorf("lease %v: %w", lease, err)
		}
		outcomes = append(outcomes, measured)
	}
	return report(stdout, o, outcomes)
}
