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
	"text/tabwriter"
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
}

// defaultPaths are the pages and the lists that are hardest to read: of a queue
// without jobs, one with few old ones, one kind, one cron, and far down.
const defaultPaths = "/,/crons,/crons?q=00077,/crons/cron-000042,/jobs,/jobs?state=completed,/jobs?queue=nothing,/jobs?queue=rare,/jobs?kind=kind-7," +
	"/jobs?cron=cron-000042,/jobs?state=cancelled&queue=rare,/jobs?before=500000,/jobs/500000,/bulk/jobs/retry?kind=kind-7,/bulk/jobs/cancel?queue=mail," +
	"/enqueue,/queues,/dead,/nodes,/leaders,/alerts,/charts,/storage,/settings"

// streamsOfOne is how many streams a node serves to one caller.
const streamsOfOne = 32

func main() { rig.Main("dashboard", run) }

func parse(args []string, stderr io.Writer) (options, error) {
	flags := flag.NewFlagSet("dashboard", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var o options
	var paths string
	flags.StringVar(&o.url, "url", "", "the `address` of a node that runs; empty: start one on a full database")
	flags.IntVar(&o.jobs, "jobs", 1_000_000, "how many jobs the database is filled with")
	flags.IntVar(&o.crons, "crons", 10_000, "how many crons it is filled with")
	flags.IntVar(&o.n, "n", 20, "how often each page is asked for")
	flags.IntVar(&o.streams, "streams", streamsOfOne, "how many pages are open at once; 0: none")
	flags.DurationVar(&o.length, "for", 20*time.Second, "for how `long` they are open")
	flags.StringVar(&paths, "paths", defaultPaths, "comma-separated `list` of pages; empty: only lists are measured")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.url, o.paths = strings.TrimSuffix(o.url, "/"), slices.DeleteFunc(strings.Split(paths, ","), func(path string) bool { return path == "" })
	if o.n < 1 || o.streams < 0 || o.streams > streamsOfOne || o.length < time.Second || o.jobs < 0 || o.crons < 0 {
		return o, errors.New("want n of 1 or more, 0 to 32 streams, no fewer than 0 jobs and crons, and a second or more")
	}
	return o, nil
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
	return measure(ctx, o, stdout, say)
}

func measure(ctx context.Context, o options, stdout io.Writer, say func(string, ...any)) error {
	result := rig.Result{
		Bench: "dashboard", Ratios: map[string]float64{}, Values: map[string]float64{},
		Settings: map[string]any{"machine": rig.Machine(), "jobs": o.jobs, "crons": o.crons, "n": o.n, "streams": o.streams},
	}
	pages, err := measurePages(ctx, o, say)
	if err != nil {
		return err
	}
	if err := printPages(stdout, pages, result); err != nil {
		return err
	}
	say("lists")
	if err := measureLists(ctx, o, stdout, result); err != nil {
		return err
	}
	if o.streams > 0 {
		say("opening %d streams", o.streams)
		if err := printStreams(ctx, o, stdout, result); err != nil {
			return err
		}
	}
	return result.Print(stdout)
}

func printPages(stdout io.Writer, pages []*page, result rig.Result) error {
	table := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "page\tfirst byte p50 ms\tp99 ms\tbytes\tfirst paint p50 ms\tagain p50 ms\t")
	for _, p := range pages {
		fmt.Fprintf(table, "%s\t%.1f\t%.1f\t%d\t%.0f\t%.0f\t\n", p.path, p.firstByte(0.5), p.firstByte(0.99), p.bytes, p.paint(0.5), p.again(0.5))
		result.Values[p.path+"_first_byte_p50_ms"], result.Values[p.path+"_bytes"] = p.firstByte(0.5), float64(p.bytes)
		result.Values[p.path+"_paint_p50_ms"], result.Values[p.path+"_paint_again_p50_ms"] = p.paint(0.5), p.again(0.5)
	}
	return table.Flush()
}

func printStreams(ctx context.Context, o options, stdout io.Writer, result rig.Result) error {
	cost, err := measureStreams(ctx, o)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "\n%d open pages: %.1f %% of a processor of the node, %.1f %% without them; %.2f kB a second each.\n",
		o.streams, 100*cost.with, 100*cost.without, cost.bytes/1000)
	result.Values["streams_cpu"], result.Values["idle_cpu"], result.Values["stream_bytes_s"] = rig.Round(cost.with), rig.Round(cost.without), rig.Round(cost.bytes)
	return nil
}
