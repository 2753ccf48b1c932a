// Command throughput measures how fast jobs are worked and inserted, how soon
// they start, and what they cost, with stock River beside it in the same run, and for
// worked jobs also graphile-worker.
//
//	go -C bench run ./throughput [-trials 3] [-parts worked_1_node,insert,...] [-peer=false] [-graphile=false]
//
// Every part is measured in turns, forge, River, forge, River and so on, each on a
// database of its own on one PostgreSQL and with nodes that are processes of this
// program, or of graphile-worker; they stop before the other's turn. A ratio is the median of those of
// the pairs, and above 1 means that forge is better: for rates it is forge's over
// the peer's, for times, bytes and processor time the peer's over forge's.
//
// Worked are jobs of a Go worker that does nothing. The backlog becomes visible in
// one commit, while the nodes wait, and the clock runs from there until no row is
// left that is not finished: the last result is in the table. Tuned are forge with
// as many slots, and River with as many workers and a fetch cooldown of 2 ms. By
// default forge has the 50 slots of an empty file; River, which has no default,
// the 100 workers of its README. forge's processes set the garbage collector as forge
// serve does, the others' as it comes. graphile-worker, which is installed from npm when it
// is first measured, has the settings of its own performance test, and by default
// none; it deletes the jobs that it has worked, where forge and River keep them.
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
	"slices"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/bench/internal/rig"
)

type options struct {
	trials int
	jobs   int
	nodes  int
	slots  int
	length time.Duration
	share  float64
	parts  []string
	peer   bool
	// graphileToo measures graphile-worker.
	graphileToo bool
}

func main() { rig.Main("throughput", run) }

func parse(args []string, stderr io.Writer) (options, error) {
	flags := flag.NewFlagSet("throughput", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var o options
	var names string
	flags.IntVar(&o.trials, "trials", 5, "pairs of each part")
	flags.IntVar(&o.jobs, "jobs", 40_000, "jobs that one trial works; a fifth of them with defaults")
	flags.IntVar(&o.nodes, "nodes", 3, "processes of the part worked_nodes")
	flags.IntVar(&o.slots, "slots", 1000, "jobs that one tuned process runs at once")
	flags.DurationVar(&o.length, "length", 4*time.Second, "`length` of the part start; of insert, of each way in turn, a third of it")
	flags.Float64Var(&o.share, "share", 1, "share of the million scheduled and the million finished rows, for a quick look")
	flags.StringVar(&names, "parts", strings.Join(partNames(), ","), "comma-separated `list` of parts")
	flags.BoolVar(&o.peer, "peer", true, "measure River too")
	flags.BoolVar(&o.graphileToo, "graphile", true, "measure graphile-worker too, which needs npm when it is first used")
	err := flags.Parse(args)
	if err != nil {
		return o, err
	}
	if o.parts, err = rig.Pick("part", names, partNames()); err != nil {
		return o, err
	}
	if o.trials < 1 || o.jobs < 100 || o.nodes < 2 || o.slots < 1 || o.length < 300*time.Millisecond || o.share <= 0 || o.share > 1 {
		return o, errors.New("want a trial, 100 jobs, two nodes, a slot, a length of 300ms or more, and a share up to 1")
	}
	return o, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	if role := os.Getenv(roleEnv); role != "" {
		return runNode(ctx, role)
	}
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	b, err := newBench(ctx, o, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.rig.Close()) }()
	for _, p := range parts {
		if !slices.Contains(o.parts, p.name) {
			continue
		}
		if err := p.run(ctx, b); err != nil {
			return fmt.Errorf("part %s: %w", p.name, err)
		}
	}
	return b.report.print(stdout)
}
