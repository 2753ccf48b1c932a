// Command dashboard measures the dashboard of a node: of one that it starts on a
// PostgreSQL of its own with a million jobs and ten thousand crons, or with -url of one
// that runs already, with whatever its database holds.
//
//	go -C bench run ./dashboard [-jobs 1000000] [-crons 10000] [-n 20] [-streams 32] [-for 20s] [-paths /,/jobs]
//	go -C bench run ./dashboard -url http://127.0.0.1:8080
//
// For each page it takes the time to the first byte, the bytes on the wire (gzip), and
// the time to the first contentful paint in a real Chromium, in a tab that is open on
// another page of the node, with an empty cache and again with a full one: medians of n.
// A page with one word in it tells what of that is the browser's own. Then it opens so
// many streams of the overview, as that many open pages do, and takes what they carry and
// what processor time the node spends meanwhile, beside that of the same time without
// them.
//
// Of lists by each term of the filters and in each order, it takes the time to the first byte
// alone, five times as often.
//
// It prints tables and, as the last line, one JSON object.
//
// With -data the database is filled once, and stays. Runs can then measure parts, and each
// prints what all of them have measured. The filters of lists are relative to the time of the
// run, so measure soon after filling:
//
//	go -C bench run ./dashboard -data /var/tmp/dashboard -fill
//	go -C bench run ./dashboard -data /var/tmp/dashboard -n 5 -paths /,/jobs -lists none -streams 0
//	go -C bench run ./dashboard -data /var/tmp/dashboard -n 5 -paths '' -lists /jobs -streams 0
package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/bench/internal/rig"
)

type options struct {
	url     string
	jobs    int
	crons   int
	n       int
	streams int
	length  time.Duration
	paths   []string
	lists   []list
	data    string
	fill    bool
}

// defaultPaths are the pages and the lists that are hardest to read: of a queue
// without jobs, one with few old ones, one kind, one cron, and far down.
const defaultPaths = "/,/crons,/crons?q=00077,/crons/cron-000042,/jobs,/jobs?state=completed,/jobs?queue=nothing,/jobs?queue=rare,/jobs?kind=kind-7," +
	"/jobs?cron=cron-000042,/jobs?state=cancelled&queue=rare,/jobs?before=500000,/jobs/500000,/bulk/jobs/retry?kind=kind-7,/bulk/jobs/cancel?queue=mail," +
	"/enqueue,/queues,/queues/default,/queues/mail,/queues/nothing,/dead,/nodes,/nodes/" + filledNode + ",/leaders,/leaders/scheduler/terms/2,/activity," +
	"/alerts,/charts,/charts?by=cron,/charts?by=kind,/charts?by=node,/charts?by=queue,/charts?by=cron&span=24h,/charts?by=cron&span=7d," +
	"/storage,/doctor,/config,/search?q=cron-00,/settings"

// streamsOfOne is how many streams a node serves to one caller.
const streamsOfOne = 32

func main() { rig.Main("dashboard", run) }

func parse(args []string, stderr io.Writer) (options, error) {
	flags := flag.NewFlagSet("dashboard", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var o options
	var paths, only string
	flags.StringVar(&o.url, "url", "", "the `address` of a node that runs; empty: start one on a full database")
	flags.IntVar(&o.jobs, "jobs", 1_000_000, "how many jobs the database is filled with")
	flags.IntVar(&o.crons, "crons", 10_000, "how many crons it is filled with")
	flags.IntVar(&o.n, "n", 20, "how often each page is asked for")
	flags.IntVar(&o.streams, "streams", streamsOfOne, "how many pages are open at once; 0: none")
	flags.DurationVar(&o.length, "for", 20*time.Second, "for how `long` they are open")
	flags.StringVar(&only, "lists", "", "measure only the lists with this `text` in their names; none: no list")
	flags.StringVar(&o.data, "data", "", "a `directory` in which the filled database stays")
	flags.BoolVar(&o.fill, "fill", false, "with -data: fill the database, and measure nothing")
	flags.StringVar(&paths, "paths", defaultPaths, "comma-separated `list` of pages; empty: none")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.url, o.paths = strings.TrimSuffix(o.url, "/"), slices.DeleteFunc(strings.Split(paths, ","), func(path string) bool { return path == "" })
	for _, l := range lists {
		if only != "none" && strings.Contains(l.String(), only) {
			o.lists = append(o.lists, l)
		}
	}
	return o, o.check()
}

func (o options) check() error {
	switch {
	case o.n < 1 || o.streams < 0 || o.streams > streamsOfOne || o.length < time.Second || o.jobs < 0 || o.crons < 0:
		return errors.New("want n of 1 or more, 0 to 32 streams, no fewer than 0 jobs and crons, and a second or more")
	case o.fill && o.data == "":
		return errors.New("-fill needs -data")
	case o.data != "" && o.url != "":
		return errors.New("-data is for a node that the bench starts, -url for one that runs already")
	}
	return nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	if os.Getenv(nodeEnv) != "" {
		return rig.RunForge(ctx, nil)
	}
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	say := rig.Progress(stderr)
	if o.url == "" {
		url, end, err := fill(ctx, o, say)
		if err != nil {
			return err
		}
		defer func() { _ = end() }() // the figures are out
		o.url = url
		if err := rig.SleepUntil(ctx, time.Now().Add(settle)); err != nil {
			return err
		}
	}
	if o.fill {
		return nil
	}
	return measure(ctx, o, stdout, say)
}

func measure(ctx context.Context, o options, stdout io.Writer, say func(string, ...any)) error {
	all, err := readKept(o.data)
	if err != nil {
		return err
	}
	pages, err := measurePages(ctx, o, say)
	if err != nil {
		return err
	}
	found, err := measureLists(ctx, o, say)
	if err != nil {
		return err
	}
	all.Pages, all.Lists = replace(all.Pages, pages), replace(all.Lists, found)
	if o.streams > 0 {
		say("opening %d streams", o.streams)
		if all.Streams, err = measureStreams(ctx, o); err != nil {
			return err
		}
	}
	return errors.Join(all.write(o.data), all.print(stdout, o))
}
