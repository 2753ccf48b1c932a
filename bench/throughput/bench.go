package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/bench/internal/graphile"
	"github.com/forge-scheduler/forge/bench/internal/rig"
)

// turnTimeout bounds one turn of one system: it has failed then.
const turnTimeout = 5 * time.Minute

// bench is one run: a PostgreSQL, the processes on it and what was measured.
type bench struct {
	options
	rig    *rig.Rig
	report *report
	// graphile is installed when it is first measured.
	graphile graphile.Program
	started  int // processes so far; each gets a name of its own
	say      func(format string, args ...any)
}

func newBench(ctx context.Context, o options, progress io.Writer) (*bench, error) {
	b := &bench{options: o, say: rig.Progress(progress)}
	b.say("starting PostgreSQL")
	var err error
	// Checkpoints are made between the turns.
	b.rig, err = rig.NewAnywhere(ctx, "forge-throughput", map[string]string{
		"max_connections": "200", "max_wal_size": "8GB", "checkpoint_timeout": "1h",
	})
	if err != nil {
		return nil, err
	}
	b.report = newReport(o)
	if err := b.rig.Describe(ctx, b.report.settings); err != nil {
		return nil, errors.Join(err, b.rig.Close())
	}
	return b, nil
}

// start starts a node. Tuned, it has the slots that the options say.
func (b *bench) start(f *field, tuned bool, r role) (*rig.Process, error) {
	b.started++
	r.System, r.ID, r.URL, r.Workers = f.system.name, fmt.Sprintf("n%d", b.started), f.url, riverWorkers
	r.Length, r.Out = b.length, b.out(r.ID)
	return f.system.start(b, f, tuned, r)
}

// startNode starts a process of this program.
func startNode(b *bench, f *field, tuned bool, r role) (*rig.Process, error) {
	settings := ""
	if tuned {
		settings = fmt.Sprintf("slots = %d", b.slots)
		var err error
		if r.URL, err = pooled(f.url); err != nil {
			return nil, err
		}
		r.Workers, r.Cooldown = b.slots, fetchCooldown
	}
	body, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("say what to be: %w", err)
	}
	return b.rig.StartNode(r.ID, f.url, settings, roleEnv+"="+string(body))
}

func startGraphile(b *bench, f *field, tuned bool, r role) (*rig.Process, error) {
	role := graphile.Role{URL: f.url, Out: r.Out}
	if tuned {
		role.Worker = graphile.Tuned()
	}
	env, err := role.Env()
	if err != nil {
		return nil, err
	}
	return b.rig.StartLine(r.ID, b.graphile.Line, env)
}

// out is what a process writes.
func (b *bench) out(id string) string { return filepath.Join(b.rig.Dir, id+".out") }

// counted is what the running processes have worked.
func (b *bench) counted() (total int64) {
	for _, p := range b.rig.Processes() {
		total += counted(b.out(p.ID))
	}
	return total
}

// allWork says whether each running process has worked something.
func (b *bench) allWork() bool {
	return !slices.ContainsFunc(b.rig.Processes(), func(p *rig.Process) bool { return counted(b.out(p.ID)) == 0 })
}

// work measures how fast nodes work a backlog, and what it costs.
func (b *bench) work(ctx context.Context, f *field, nodes, jobs int, tuned bool) (w worked, err error) {
	ctx, cancel := context.WithTimeout(ctx, turnTimeout)
	defer cancel()
	defer b.rig.KillAll()
	for range nodes {
		if _, err := b.start(f, tuned, role{}); err != nil {
			return w, err
		}
	}
	if err := b.warmUp(ctx, f, jobs); err != nil {
		return w, err
	}
	if w, err = b.drain(ctx, f, jobs); err != nil {
		return w, err
	}
	return w, b.rig.StopAll(ctx)
}

// warmUp returns when each node has worked some jobs.
func (b *bench) warmUp(ctx context.Context, f *field, jobs int) error {
	return rig.Await(ctx, "every node of "+f.system.name+" to work", func(ctx context.Context) (bool, error) {
		if err := b.rig.Alive(); err != nil {
			return false, err
		}
		tx, err := f.insert(ctx, jobs/10)
		if err != nil {
			return false, err
		}
		err = b.release(ctx, f, tx, jobs/10)
		return b.allWork(), err
	})
}

// drain measures one backlog from its commit to the last result.
func (b *bench) drain(ctx context.Context, f *field, jobs int) (w worked, err error) {
	if err := b.clear(ctx, f); err != nil {
		return w, err
	}
	last, err := f.newest(ctx)
	if err != nil {
		return w, err
	}
	wal, err := f.wal(ctx)
	if err != nil {
		return w, err
	}
	tx, err := f.insert(ctx, jobs)
	if err != nil {
		return w, err
	}
	usage, before, began := b.usage(), b.counted(), time.Now()
	if err := b.release(ctx, f, tx, jobs); err != nil {
		return w, err
	}
	w.perSecond = float64(jobs) / time.Since(began).Seconds()
	w.cost(usage, b.usage(), jobs)
	after, err := f.wal(ctx)
	if err != nil {
		return w, err
	}
	w.wal = (after - wal) / float64(jobs)
	done, err := f.worked(ctx, last, int(b.counted()-before))
	if err == nil && done != jobs {
		err = fmt.Errorf("%s finished %d of %d jobs", f.system.name, done, jobs)
	}
	return w, err
}

// release lets the nodes see a transaction's jobs, and returns when all are done.
func (b *bench) release(ctx context.Context, f *field, tx pgx.Tx, jobs int) error {
	goal := b.counted() + int64(jobs)
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("commit jobs: %w", err)
	}
	return f.drained(ctx, b.counted, goal)
}

// usage is the processor time so far.
type usage struct {
	nodes, server time.Duration
	// There are no such figures on this system, or of a server at an address.
	nodesErr, serverErr error
}

func (b *bench) usage() (u usage) {
	u.server, u.serverErr = b.rig.ServerCPU()
	for _, p := range b.rig.Processes() {
		used, err := rig.CPU(p.PID())
		if err != nil {
			u.nodesErr = err
		}
		u.nodes += used
	}
	return u
}

// worked is what a drained backlog says.
type worked struct {
	perSecond, wal float64
	// Processor seconds for a thousand jobs; zero: not known.
	nodeCPU, serverCPU float64
}

func (w *worked) cost(before, after usage, jobs int) {
	if before.nodesErr == nil && after.nodesErr == nil {
		w.nodeCPU = (after.nodes - before.nodes).Seconds() * 1000 / float64(jobs)
	}
	if before.serverErr == nil && after.serverErr == nil {
		w.serverCPU = (after.server - before.server).Seconds() * 1000 / float64(jobs)
	}
}

// do lets a node carry a task out.
func (b *bench) do(ctx context.Context, f *field, task string, tuned bool) (figures map[string]float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, turnTimeout)
	defer cancel()
	defer b.rig.KillAll()
	if err := b.clear(ctx, f); err != nil {
		return nil, err
	}
	p, err := b.start(f, tuned, role{Task: task})
	if err != nil {
		return nil, err
	}
	if err := b.rig.End(ctx, p); err != nil {
		return nil, err
	}
	body, err := os.ReadFile(b.out(p.ID))
	if err == nil {
		err = json.Unmarshal(body, &figures)
	}
	if err != nil {
		return nil, fmt.Errorf("read what %s measured: %w", p.ID, err)
	}
	return figures, nil
}
