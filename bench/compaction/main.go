// Command compaction measures what merging and compressing the output of jobs
// saves, how long it takes, and what it costs those who work meanwhile.
//
//	go -C bench run ./compaction [-lines 10000000] [-window 5s] [-pairs 24]
//
// It writes lines as services log them (time, level, identifiers, durations), a
// thousand an attempt, into the database as nodes do. A third of the attempts wrote
// slowly, a chunk for each line; a third in chunks of twenty lines; a third fast, in
// chunks of 64 kB. Sizes are those of the tables with their indexes and TOAST after
// VACUUM, before merging and after it; indexes that the compactor then finds mostly
// empty are built anew by itself. A third row has them after VACUUM FULL of both.
//
// Meanwhile a node works jobs that do nothing, as fast as it can with its defaults,
// and the compactor works in every other window of time. The ratio throughput is the
// median over the pairs of windows of the jobs with it over those without; the last
// pair, in which the compactor comes to its end, does not count unless it is the only
// one. The compactor pauses as it does in a node, and each of its windows is a pass.
// What is left after so many pairs is merged while nothing else works, and in the end
// retention removes it all.
//
// The run fails unless every chunk is in a pack in the end, and the first attempts read
// as they were written, before and after. The ratio size is that of the bytes before to
// those after, size_full to those after VACUUM FULL.
//
// It prints a table and, as the last line, one JSON object.
package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"time"

	"github.com/forge-scheduler/forge/bench/internal/rig"
)

type options struct {
	lines  int
	window time.Duration
	most   int // pairs of windows
}

func main() { rig.Main("compaction", run) }

func parse(args []string, stderr io.Writer) (options, error) {
	flags := flag.NewFlagSet("compaction", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var o options
	flags.IntVar(&o.lines, "lines", 10_000_000, "lines of output")
	flags.DurationVar(&o.window, "window", 5*time.Second, "`length` of a window with the compactor, and of one without")
	flags.IntVar(&o.most, "pairs", 24, "most `pairs` of windows; the rest is merged while nothing else works")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.lines < 3*attemptLines || o.window < 100*time.Millisecond || o.most < 1 {
		return o, errors.New("want 3000 lines or more, windows of 100ms or more and a pair of them")
	}
	return o, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	b, err := newBench(ctx, o, rig.Progress(stderr))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.measure(ctx); err != nil {
		return err
	}
	return b.report(ctx, stdout)
}
