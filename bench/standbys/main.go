// Command standbys measures what nodes cost PostgreSQL while nothing happens: the
// statements of the election, the server processes and its processor time, for
// clusters of some sizes and for some profiles of [cluster.leader_election].
//
//	go -C bench run ./standbys [-for 10s] [-sizes 3,50,200] [-heartbeats=false]
//
// The nodes are the real electors and deputies, each on sessions of its own, in one
// process; their leaders' work does nothing. Statements are counted by
// pg_stat_statements, by what they are for, and the processor time is that of all
// processes of the server, from /proc. A first measurement leaves the nodes'
// heartbeats out, as they are not the election's; a second has them.
//
// It prints two tables and, as the last line, one JSON object.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/bench/internal/rig"
)

type options struct {
	length     time.Duration
	sizes      []int
	heartbeats bool
}

func main() { rig.Main("standbys", run) }

func parse(args []string, stderr io.Writer) (options, error) {
	flags := flag.NewFlagSet("standbys", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var o options
	var sizes string
	flags.DurationVar(&o.length, "for", 10*time.Second, "`length` of each measurement")
	flags.StringVar(&sizes, "sizes", "3,50,200", "comma-separated `list` of numbers of nodes")
	flags.BoolVar(&o.heartbeats, "heartbeats", true, "measure once more with heartbeats")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	for text := range strings.SplitSeq(sizes, ",") {
		size, err := strconv.Atoi(text)
		if err != nil || size < 1 || size > maxNodes {
			return o, fmt.Errorf("size %q: want 1 to %d", text, maxNodes)
		}
		o.sizes = append(o.sizes, size)
	}
	if o.length < time.Second {
		return o, errors.New("want a second or more")
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
	defer func() { err = errors.Join(err, b.rig.Close()) }()
	var sizes, times []row
	for _, size := range o.sizes {
		measured, err := b.measure(ctx, size, standard)
		if err != nil {
			return fmt.Errorf("%d nodes: %w", size, err)
		}
		sizes = append(sizes, measured)
	}
	for _, p := range profiles {
		measured, err := b.measure(ctx, profileNodes, p)
		if err != nil {
			return fmt.Errorf("profile %s: %w", p.name, err)
		}
		times = append(times, measured)
	}
	return report(stdout, b, sizes, times)
}
