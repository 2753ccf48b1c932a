// Command soak runs a cluster of real nodes under an even load and looks for what
// grows: memory, goroutines, descriptors, connections, tables.
//
//	make soak [FOR=20m]
//	go -C bench run ./soak -forge ../bin/forge [-for 20m] [-every 5s] [-out ../bin/soak]
//
// Three nodes fire thirty crons and work jobs of each kind, with output, with
// failures and with retention so short that rows go as fast as they come. Each
// sample has what the nodes and PostgreSQL hold; what is printed is the slope of
// each line, and of the largest tables, through the second half of the samples, when
// caches are full and retention has begun, by the hour and as a share of its mean. A
// drawing of every line goes into -out.
//
// A run of twelve minutes or more fails if a line rises through its second half: memory,
// goroutines and descriptors by 5 % and 5, connections by 10 % and 2, and tables whose
// rows go as fast as they come by 10 % and 2 MiB. A run of any length fails if fewer
// than 15 jobs a second were inserted.
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
	"path/filepath"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/bench/internal/rig"
)

type options struct {
	length, every time.Duration
	forge, out    string
}

// leastSamples are what a slope through half of them means something by.
const leastSamples = 20

func main() { rig.Main("soak", run) }

func parse(args []string, stderr io.Writer) (options, error) {
	flags := flag.NewFlagSet("soak", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var o options
	flags.DurationVar(&o.length, "for", 20*time.Minute, "`length` of the run")
	flags.DurationVar(&o.every, "every", 5*time.Second, "`pause` between two samples")
	flags.StringVar(&o.forge, "forge", "../bin/forge", "`path` of the program")
	flags.StringVar(&o.out, "out", "../bin/soak", "`folder` for the drawing")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.every < time.Second || o.length < leastSamples*o.every {
		return o, fmt.Errorf("want pauses of a second or more, and %d of them in the run", leastSamples)
	}
	var err error
	o.forge, err = filepath.Abs(o.forge)
	return o, err
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	say := rig.Progress(stderr)
	r, err := rig.NewAnywhere(ctx, "soak", nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	c, err := start(ctx, r, o.forge)
	if err != nil {
		return err
	}
	defer c.close()
	say("%d nodes run; %s of samples, one each %s", len(c.nodes), o.length, o.every)
	samples, err := c.watch(ctx, o, say)
	if err != nil {
		return err
	}
	path := filepath.Join(o.out, "soak.svg")
	if err := os.MkdirAll(o.out, 0o750); err != nil {
		return err
	}
	if err := os.WriteFile(path, draw(samples), 0o600); err != nil {
		return err
	}
	say("drawing: %s", path)
	settings := map[string]any{}
	if err := r.Describe(ctx, settings); err != nil {
		return err
	}
	if err := report(stdout, o, settings, samples); err != nil {
		return err
	}
	if wrong := judge(o, samples); len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "; "))
	}
	return nil
}
