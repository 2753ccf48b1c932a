package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/forge-scheduler/forge/bench/internal/rig"
	"github.com/forge-scheduler/forge/test/nodes"
	"github.com/forge-scheduler/forge/test/parts"
)

// bench is one run: its directory, the program that it measures and what it has
// measured.
type bench struct {
	options
	dir    string
	binary string
	report *report
	say    func(format string, args ...any)

	mu    sync.Mutex
	names map[string]int
}

// lane is what happens on one cluster, one thing after the other.
type lane struct {
	name string
	run  func(ctx context.Context, b *bench) error
}

func newBench(o options, progress io.Writer) (b *bench, err error) {
	b = &bench{options: o, binary: o.forge, say: rig.Progress(progress), names: map[string]int{}}
	if b.dir, err = rig.Dir("forge-failover"); err != nil {
		return nil, err
	}
	if err := b.prepare(); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

func (b *bench) prepare() (err error) {
	if err := os.WriteFile(b.config(), []byte(forgeConfig()), 0o644); err != nil { //nolint:gosec // no secret
		return fmt.Errorf("write the configuration: %w", err)
	}
	if b.binary == "" {
		b.say("building forge")
		if b.binary, err = nodes.Build(b.dir, "cmd/forge"); err != nil {
			return err
		}
	}
	b.report, err = newReport(b.options)
	return err
}

// config is the file that every node reads.
func (b *bench) config() string { return filepath.Join(b.dir, "forge.toml") }

func (b *bench) close() error { return os.RemoveAll(b.dir) }

// measure runs the lanes. What is taken over in milliseconds is measured alone;
// the rest mostly waits for leases and goes on side by side.
func (b *bench) measure(ctx context.Context) error {
	alone, together := b.lanes()
	for _, l := range alone {
		if err := b.runLane(ctx, l); err != nil {
			return err
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, l := range together {
		group.Go(func() error { return b.runLane(ctx, l) })
	}
	return group.Wait()
}

func (b *bench) lanes() (alone, together []lane) {
	quick := b.wanted(func(f fault) bool { return f.quick })
	if len(quick) > 0 {
		alone = append(alone, lane{"quick", measureOnOne(quick)})
	}
	for _, f := range b.wanted(func(f fault) bool { return !f.quick }) {
		run := measureOnOne([]fault{f})
		if f.own != nil {
			run = f.own
		}
		together = append(together, lane{f.name, run})
	}
	for name, network := range map[string]bool{"River": false, "River, cut off": true} {
		peers := b.wanted(func(f fault) bool { return f.peer && f.network == network })
		if b.peerTrials > 0 && len(peers) > 0 {
			together = append(together, lane{name, measurePeer(peers)})
		}
	}
	return alone, together
}

// wanted lists the faults that were asked for, of a kind.
func (b *bench) wanted(kind func(fault) bool) []fault {
	return slices.DeleteFunc(slices.Clone(faults), func(f fault) bool {
		return !kind(f) || !slices.Contains(b.faults, f.name)
	})
}

// runLane reports a part that this machine lacks by its name.
func (b *bench) runLane(ctx context.Context, l lane) error {
	err := l.run(ctx, b)
	missing, ok := errors.AsType[*parts.MissingError](err)
	switch {
	case err == nil:
		return nil
	case ok && os.Getenv("CI") != "true":
		b.report.notRun(l.name, missing.Error())
		return nil
	default:
		return fmt.Errorf("%s: %w", l.name, err)
	}
}

// name makes a name that nothing of the run had before, so that no node waits
// for its predecessor to be given up.
func (b *bench) name(prefix string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.names[prefix]++
	return fmt.Sprintf("%s%d", prefix, b.names[prefix])
}
