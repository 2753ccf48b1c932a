package rig

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// Main runs a bench, or the part of one that its environment names, until it is
// done or told to stop, and ends the process.
func Main(name string, run func(ctx context.Context, args []string, stdout, stderr io.Writer) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Pick splits a comma-separated list of some of the names of a kind.
func Pick(kind, list string, names []string) ([]string, error) {
	picked := strings.Split(list, ",")
	for _, name := range picked {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("%s %q: want some of %s", kind, name, strings.Join(names, ", "))
		}
	}
	return picked, nil
}

// Progress writes lines to out, one at a time.
func Progress(out io.Writer) func(format string, args ...any) {
	var mu sync.Mutex
	return func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = fmt.Fprintf(out, format+"\n", args...)
	}
}
