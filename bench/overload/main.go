// Command overload shows what three nodes do on a machine that is far too slow for
// their load: ticks are late, and none is lost.
//
//	make overload [FOR=2m] [SCENARIOS=burners,slow]
//	go -C bench run ./overload -forge ../bin/forge [-for 2m] [-only burners,slow] [-out ../bin/overload]
//
// Each scenario has a PostgreSQL and three nodes (forge serve) of its own, 100 crons
// that are due every second and 50 inserted jobs a second. All jobs are the shell
// command true, all policies the defaults. After a calm start the scenario's load is
// put on, kept for a while and taken away:
//
//	burners   50 busy threads for each processor
//	stalls    PostgreSQL stands still for one, two and four seconds in turn, with a
//	          second between, as it does when its disk does not answer (SIGSTOP to all
//	          its processes); between the stalls each flush of its log takes 100 ms more
//	slow      each statement takes 200 ms more: a proxy between the nodes and PostgreSQL
//	          holds up each Execute and Query message
//	snapshot  the burners, 150,000 completed jobs in the table, and a transaction with
//	          a snapshot that is held open from before the load until the end
//	backlog   the nodes start with a million due ticks that nobody recorded and a million
//	          waiting jobs; what still waits of them at the end of the load is deleted
//
// PostgreSQL, the nodes and the burners share a cgroup with three quarters of the
// machine's processor time, where one can be made, so that the rest of the machine stays
// usable and the figures comparable; the settings say whether there was one.
//
// What came of it is judged by test/chaos/checker, which shares no code with forge,
// from the ledger, the jobs and the instants of their commits as PostgreSQL remembers
// them: each due tick stands in the ledger once, was skipped only where the policies
// skip it, and has one job; each acknowledged job came to its end; no write was in the
// name of a term that was over. Judge adds what concerns time: of the ticks that fell
// due in any 30 s of the load at least half were recorded in those 30 s, each term of
// ten seconds recorded something, and a minute after the load all was as before it.
//
// It prints a table and, as the last line, one JSON object. A promise that was broken
// is printed before it, and makes the exit status 1.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/bench/internal/rig"
)

// options are what a run is to do.
type options struct {
	forge, out string
	only       []string
	length     time.Duration // of the load
	calm       time.Duration // before it
	recovery   time.Duration // how long the run waits for quiet after it, at most
	window     time.Duration // in which half of what falls due has to be recorded
	crons      int
	inserts    int // a second
	burners    int // for each processor
	completed  int
	backlog    int           // ticks, and jobs
	share      float64       // of the machine's processors
	lease      time.Duration // of leaders; 0: the default
}

func main() { rig.Main("overload", run) }

func parse(args []string, stderr io.Writer) (options, error) {
	flags := flag.NewFlagSet("overload", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var o options
	var only string
	flags.StringVar(&o.forge, "forge", "../bin/forge", "`path` of the program")
	flags.StringVar(&o.out, "out", "", "`folder` that keeps what the nodes log (default: nothing is kept)")
	flags.StringVar(&only, "only", strings.Join(scenarioNames(), ","), "comma-separated `list` of scenarios")
	flags.DurationVar(&o.length, "for", 2*time.Minute, "`length` of the load of each scenario")
	flags.DurationVar(&o.calm, "calm", 15*time.Second, "`length` of the time before the load")
	flags.DurationVar(&o.recovery, "recovery", 90*time.Second, "`length` of the wait for quiet after the load, at most")
	flags.DurationVar(&o.window, "window", 30*time.Second, "`length` of the windows in which half of what falls due is to be recorded")
	flags.IntVar(&o.crons, "crons", 100, "`number` of crons that are due every second")
	flags.IntVar(&o.inserts, "inserts", 50, "`number` of jobs that are inserted a second")
	flags.IntVar(&o.burners, "burners", 50, "`number` of busy threads for each processor")
	flags.IntVar(&o.completed, "completed", 150_000, "`number` of completed jobs in the table (snapshot)")
	flags.IntVar(&o.backlog, "backlog", 1_000_000, "`number` of ticks, and of jobs, that wait (backlog)")
	flags.Float64Var(&o.share, "share", 0.75, "`share` of the machine's processor time for the whole cluster and its load")
	flags.DurationVar(&o.lease, "lease", 0, "`lease_duration` of the cluster (default: forge's)")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.length < time.Second || o.window < time.Second || o.crons < 1 || o.inserts < 1 || o.share <= 0 || o.share > 1 {
		return o, errors.New("want a second or more of load, a cron and an insert a second or more, and a share of up to 1")
	}
	var err error
	if o.only, err = rig.Pick("scenario", only, scenarioNames()); err != nil {
		return o, err
	}
	o.forge, err = filepath.Abs(o.forge)
	return o, err
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if part := os.Getenv(partEnv); part != "" {
		return play(ctx, part)
	}
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	say := rig.Progress(stderr)
	var outcomes []outcome
	for _, name := range o.only {
		say("%s: %v of load", name, o.length)
		measured, err := measure(ctx, o, scenarios[name], say)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		measured.scenario = name
		outcomes = append(outcomes, measured)
	}
	return report(stdout, o, outcomes)
}
