// Command failover measures how long a cluster is without a leader after each
// kind of fault, with River's own elector beside it in the same run.
//
//	go -C bench run ./failover [-trials 30] [-promotions 5] [-peer-trials 5] [-faults term,kill,...]
//
// Three forge serve processes with default settings stand on a PostgreSQL of
// their own. Each trial breaks the scheduler's leader, its network, or the
// database, and takes the time to the commit of the next term, by the server's
// commit time stamps. A restart or a promotion is timed from the moment at which
// the database takes writes again.
//
// The gap is from the last commit of the old term's work to the first of the new
// term; below zero would mean two leaders. Under hangs and partitions the pause
// is from the old leader's own stop to the new one's start.
//
// Partitions are dropped packets in network namespaces and need root, nft and ip;
// a promotion needs pg_basebackup. What is missing is listed by name at the end.
// Faults that are taken over in milliseconds run alone, the others beside each
// other. It prints a table and, as the last line, one JSON object. A freeze or a
// partition that lasts longer than docs/leadership.md promises is printed with what
// PostgreSQL's sessions did, and makes the exit status 1.
package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"strings"

	"github.com/forge-scheduler/forge/bench/internal/rig"
)

type options struct {
	trials, promotions, peerTrials int
	faults                         []string
	forge                          string
}

func main() { rig.Main("failover", run) }

func parse(args []string, stderr io.Writer) (options, error) {
	flags := flag.NewFlagSet("failover", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var o options
	var faults string
	flags.IntVar(&o.trials, "trials", 30, "trials of each fault")
	flags.IntVar(&o.promotions, "promotions", 5, "trials of a promotion, which costs a cluster each")
	flags.IntVar(&o.peerTrials, "peer-trials", 5, "trials of each fault with River's elector; 0 leaves it out")
	flags.StringVar(&faults, "faults", strings.Join(faultNames(), ","), "comma-separated `list` of faults")
	flags.StringVar(&o.forge, "forge", "", "`path` of the forge to measure; built from this tree by default")
	err := flags.Parse(args)
	if err != nil {
		return o, err
	}
	if o.faults, err = rig.Pick("fault", faults, faultNames()); err != nil {
		return o, err
	}
	if o.trials < 1 || o.promotions < 1 || o.peerTrials < 0 {
		return o, errors.New("want one trial or more")
	}
	return o, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	if url := os.Getenv(peerEnv); url != "" {
		return runPeer(ctx, url)
	}
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	b, err := newBench(o, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.measure(ctx); err != nil {
		return err
	}
	return b.report.print(stdout)
}
