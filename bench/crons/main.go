// Command crons measures how late crons fire, what many of them cost, and
// whether any tick is missed or doubled, with River's periodic jobs beside it in
// the same run.
//
//	go -C bench run ./crons [-duration 1m] [-scenarios 500,10000,...] [-peer=false]
//
// Every scenario and system has a database of its own on one PostgreSQL, and
// nodes that are processes of this program: forge nodes with default settings
// but for the slots, or stock River clients with River's own leader and as many
// workers. Both work the same Go job that does nothing but to write down when it
// started.
//
// A start is late by the time from the tick, by the clock of the machine that
// the database and the nodes share, to the first instruction of the worker. An
// insert is late by the time to the commit of the tick's row of the ledger; for
// River, which keeps no such time, to the beginning of the inserting transaction.
//
// A tick is skipped that comes while a run of its cron has not ended, as the default
// overlap policy says. A run has ended when that is recorded, which may be a quarter
// of a second after: ticks that jitter brings closer together are skipped.
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
	duration  time.Duration
	scenarios []string
	peer      bool
	nodes     int
	slots     int
	share     float64
}

func main() { rig.Main("crons", run) }

func parse(args []string, stderr io.Writer) (options, error) {
	flags := flag.NewFlagSet("crons", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var o options
	var names string
	flags.DurationVar(&o.duration, "duration", time.Minute, "`length` of the scenario 500; the others' are in proportion")
	flags.StringVar(&names, "scenarios", strings.Join(scenarioNames(), ","), "comma-separated `list` of scenarios")
	flags.BoolVar(&o.peer, "peer", true, "measure River's periodic jobs too")
	flags.IntVar(&o.nodes, "nodes", 2, "processes of each system")
	flags.IntVar(&o.slots, "slots", 500, "jobs that one process runs at once")
	flags.Float64Var(&o.share, "share", 1, "scale of the numbers of crons and of rows, for a quick look")
	err := flags.Parse(args)
	if err != nil {
		return o, err
	}
	if o.scenarios, err = rig.Pick("scenario", names, scenarioNames()); err != nil {
		return o, err
	}
	if o.duration < 2*time.Second || o.nodes < 1 || o.slots < 1 || o.share <= 0 || o.share > 1 {
		return o, errors.New("want a duration of 2s or more, a node, a slot and a share up to 1")
	}
	if slices.Contains(o.scenarios, "kill") && o.nodes < 2 {
		return o, errors.New("scenario kill: want two nodes or more")
	}
	return o, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	if system := os.Getenv(nodeEnv); system != "" {
		return runNode(ctx, system)
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
	for _, s := range scenarios {
		if !slices.Contains(o.scenarios, s.name) {
			continue
		}
		if err := s.run(ctx, b, s.name); err != nil {
			return fmt.Errorf("scenario %s: %w", s.name, err)
		}
	}
	return b.report.print(stdout)
}
