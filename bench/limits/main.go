// Command limits measures what limits by key and fair queues cost and keep.
//
//	make bench-limits
//	go -C bench run ./limits [-trials 3] [-jobs 200000] [-keys 10000]
//
// Three nodes, which are processes of this program, work jobs of a Go worker. Parts:
//
//	keyed  a backlog in a queue without limits, and the same backlog in a queue with
//	       limit_per_key, in turns. The ratio keyed is the rate of the second over that of the
//	       first; over_limit is by how many jobs the limit was exceeded at any time, by the
//	       times of the attempts.
//	fair   a backlog of one tenant in a queue with fair_by, and single jobs of other tenants.
//	       small_tenant_p99_ms is how long these wait, big_wait_s how long the last job of
//	       the backlog does.
//	waiting  a backlog of a million jobs with many values of the key of a limit, ten in a row of
//	       each, of which few run at a time. step_p99_ms is how long a step of the leader takes,
//	       heap_mb and rss_mb are what its process needs. beside is the rate of a queue without
//	       limits beside the backlog, over that without it; beside_over_paused is over that while
//	       the backlog's queue is paused, when only its rows are there. Then the leader is killed:
//	       takeover_first_ms is the time until a job of the backlog starts in the next term,
//	       takeover_usual_ms until they start at nine tenths of the rate that the nodes left have.
//
// It prints a table and, as the last line, one JSON object.
package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"time"

	"github.com/forge-scheduler/forge/bench/internal/rig"
)

// options are what a run is to do.
type options struct {
	trials  int
	jobs    int // of a backlog
	keys    int
	slots   int // of each node
	backlog int // of the big tenant
	singles int // jobs of other tenants
	service time.Duration

	waiting        int // jobs of the part waiting
	waitingKeys    int
	waitingWorkers int // of each node
	waitingService time.Duration
	watch          time.Duration
}

const (
	nodes = 3
	// keyLimit is how many jobs of a key may run at once.
	keyLimit = 2
)

func main() { rig.Main("limits", run) }

func parse(args []string, stderr io.Writer) (options, error) {
	flags := flag.NewFlagSet("limits", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var o options
	flags.IntVar(&o.trials, "trials", 3, "pairs of the part keyed")
	flags.IntVar(&o.jobs, "jobs", 200_000, "jobs of one backlog of the part keyed")
	flags.IntVar(&o.keys, "keys", 10_000, "keys of these jobs")
	flags.IntVar(&o.slots, "slots", 200, "jobs that one node runs at once; a tenth of them in the part fair")
	flags.IntVar(&o.backlog, "backlog", 10_000, "jobs of the big tenant")
	flags.IntVar(&o.singles, "singles", 100, "jobs of other tenants, one of each")
	flags.DurationVar(&o.service, "service", 50*time.Millisecond, "`length` of a job of the part fair")
	flags.IntVar(&o.waiting, "waiting", 1_000_000, "jobs of the part waiting")
	flags.IntVar(&o.waitingKeys, "waiting-keys", 100_000, "keys of these jobs")
	flags.IntVar(&o.waitingWorkers, "waiting-workers", 50, "of these jobs, how many a node runs at once")
	flags.DurationVar(&o.waitingService, "waiting-service", 500*time.Millisecond, "`length` of such a job")
	flags.DurationVar(&o.watch, "watch", 20*time.Second, "for how `long` the part waiting is watched")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.trials < 1 || o.jobs < 100 || o.keys < 1 || o.slots < 10 || o.backlog < 10 || o.singles < 1 || o.service < 0 ||
		o.waiting < 1 || o.waitingKeys < 1 || o.waitingKeys > o.waiting || o.waitingWorkers < 1 || o.waitingService <= 0 || o.watch < time.Second {
		return o, errors.New("want a trial, 100 jobs, a key, ten slots, ten jobs of the big tenant and one of another, waiting jobs of no more keys than jobs, and a second to watch")
	}
	return o, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	if out := os.Getenv(outEnv); out != "" {
		return runNode(ctx, out)
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
	if err := b.keyed(ctx); err != nil {
		return err
	}
	if err := b.fair(ctx); err != nil {
		return err
	}
	if err := b.wait(ctx); err != nil {
		return err
	}
	return b.print(stdout)
}
