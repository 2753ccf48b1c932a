package main

import (
	"context"
	"fmt"
)

// The parts whose names are written twice.
const (
	insertPart = "insert"
	startPart  = "start"
)

// part is one thing to look at.
type part struct {
	name string
	run  func(ctx context.Context, b *bench) error
}

var parts = []part{
	{"worked_1_node", func(ctx context.Context, b *bench) error { return b.workParts(ctx, 1, true) }},
	{"worked_nodes", func(ctx context.Context, b *bench) error { return b.workParts(ctx, b.nodes, true) }},
	{"worked_default", func(ctx context.Context, b *bench) error { return b.workParts(ctx, 1, false) }},
	{insertPart, func(ctx context.Context, b *bench) error { return b.tasks(ctx, insertPart, true) }},
	{startPart, func(ctx context.Context, b *bench) error { return b.tasks(ctx, startPart, false) }},
	{"rows", rows},
}

func partNames() []string {
	names := make([]string, len(parts))
	for i, p := range parts {
		names[i] = p.name
	}
	return names
}

// turns takes turns between the systems.
func (b *bench) turns(ctx context.Context, name string, systems []*system, take func(ctx context.Context, f *field) error) error {
	var fields []*field
	for _, s := range systems {
		f, err := b.field(ctx, s)
		if err != nil {
			return err
		}
		defer f.pool.Close()
		fields = append(fields, f)
	}
	for trial := range b.trials {
		for _, f := range fields {
			b.say("%s: %s, %d of %d", name, f.system.name, trial+1, b.trials)
			if err := take(ctx, f); err != nil {
				return err
			}
		}
	}
	return nil
}

// workParts are the parts of worked jobs.
func (b *bench) workParts(ctx context.Context, nodes int, tuned bool) error {
	name, jobs := fmt.Sprintf("worked_%d_nodes", nodes), b.jobs
	switch {
	case !tuned:
		name, jobs = "worked_default", b.jobs/5
	case nodes == 1:
		name = "worked_1_node"
	}
	return b.turns(ctx, name, append(b.goSystems(), b.others()...), func(ctx context.Context, f *field) error {
		w, err := b.work(ctx, f, nodes, jobs, tuned)
		if err != nil {
			return err
		}
		b.report.addWorked(f.system.name, name, w)
		if name == "worked_1_node" {
			b.report.add(f.system.name, measure{"wal_per_job", bytes}, w.wal)
		}
		return nil
	})
}

// tasks are the parts that a process does with its client.
func (b *bench) tasks(ctx context.Context, name string, tuned bool) error {
	return b.turns(ctx, name, b.goSystems(), func(ctx context.Context, f *field) error {
		figures, err := b.do(ctx, f, name, tuned)
		if err != nil {
			return err
		}
		b.report.addFigures(f.system.name, figures)
		return nil
	})
}

// million is how many scheduled and how many finished rows there are.
const million = 1_000_000

// rows measures what a big table slows down, in turns with an empty one.
func rows(ctx context.Context, b *bench) error {
	return b.withFull(ctx, func(full map[*system]*field) error {
		return b.turns(ctx, "rows", b.goSystems(), func(ctx context.Context, empty *field) error {
			without, err := b.work(ctx, empty, 1, b.jobs, true)
			if err != nil {
				return err
			}
			with, err := b.work(ctx, full[empty.system], 1, b.jobs, true)
			if err != nil {
				return err
			}
			name := empty.system.name
			b.report.add(name, measure{"rows_without", perSecond}, without.perSecond)
			b.report.add(name, measure{"rows_with", perSecond}, with.perSecond)
			b.report.add(name, measure{"rows_slow_down_percent", percent}, 100*(1-with.perSecond/without.perSecond))
			return nil
		})
	})
}

// withFull makes a big table for each system.
func (b *bench) withFull(ctx context.Context, measure func(map[*system]*field) error) error {
	full := map[*system]*field{}
	for _, s := range b.goSystems() {
		b.say("rows: filling %s's table", s.name)
		f, err := b.field(ctx, s)
		if err != nil {
			return err
		}
		defer f.pool.Close()
		if err := f.fill(ctx, int(b.share*million)); err != nil {
			return err
		}
		full[s] = f
	}
	return measure(full)
}

// goSystems are those whose nodes are this program.
func (b *bench) goSystems() []*system {
	if b.peer {
		return []*system{forgeSystem, riverSystem}
	}
	return []*system{forgeSystem}
}

// others work jobs, and are not asked for more.
func (b *bench) others() []*system {
	if b.graphileToo {
		return []*system{graphileSystem}
	}
	return nil
}
