// Command snapshot measures jobs and crons while long transactions hold snapshots, which
// keep PostgreSQL from removing the rows that have died since, with River and
// graphile-worker beside forge in the same run.
//
//	go -C bench run ./snapshot [-hold 2m] [-long 10m] [-peers=false] [-rate 800] [-crons 100]
//
// Each system in turn has a database of its own and nodes that are processes of this
// program, or of graphile-worker. Jobs that do nothing are inserted at an even rate, in a
// transaction each ten milliseconds, whether those before have started or not. forge's
// crons are due each second besides; the peers have jobs only. A turn has these phases:
//
//	before    nobody holds a snapshot
//	readers   three readers hold a snapshot for -hold each, and overlap
//	pause     nobody holds a snapshot, for -recover
//	long      one reader holds a snapshot for -long
//	after     as pause
//
// A start is late by the time from the instant at which the job was to be inserted, or the
// tick, to the first instruction of the worker. The rate that is kept are the starts in a
// phase as a share of what was due in it. The backlog are jobs that are due for a second
// or more and have not started: at most, and at the end of the phase. A system has
// recovered in the first of three seconds on end without a backlog whose p99 is no more
// than twice that of the phase before. Dead rows and sizes are those of all tables of the
// system at the end of the phase, by PostgreSQL's statistics.
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
	"time"

	"github.com/forge-scheduler/forge/bench/internal/rig"
)

type options struct {
	before, hold, long, recover time.Duration
	rate, crons, nodes          int
	peers                       bool
}

func main() { rig.Main("snapshot", run) }

func parse(args []string, stderr io.Writer) (options, error) {
	flags := flag.NewFlagSet("snapshot", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var o options
	flags.DurationVar(&o.before, "before", 20*time.Second, "`length` of the phase before")
	flags.DurationVar(&o.hold, "hold", 2*time.Minute, "`length` of each of the three snapshots that overlap")
	flags.DurationVar(&o.long, "long", 10*time.Minute, "`length` of the long snapshot")
	flags.DurationVar(&o.recover, "recover", 20*time.Second, "`time` that a system has to recover")
	flags.IntVar(&o.rate, "rate", 800, "jobs a second")
	flags.IntVar(&o.crons, "crons", 100, "crons of forge, due each second")
	flags.IntVar(&o.nodes, "nodes", 2, "processes of each system")
	flags.BoolVar(&o.peers, "peers", true, "measure River and graphile-worker too, which needs npm when it is first used")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.before < time.Second || o.hold < time.Second || o.long < time.Second || o.recover < calmSeconds*time.Second {
		return o, fmt.Errorf("want a second before, snapshots of a second, and %ds to recover, or more", calmSeconds)
	}
	if o.rate < batchesASecond || o.crons < 1 || o.nodes < 1 {
		return o, fmt.Errorf("want %d jobs a second, a cron and a node, or more", batchesASecond)
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
	systems := []*system{forgeSystem}
	if o.peers {
		systems = append(systems, riverSystem, graphileSystem)
	}
	for _, s := range systems {
		if err := b.turn(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return b.report.print(stdout)
}
