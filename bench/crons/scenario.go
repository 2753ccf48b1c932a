package main

import (
	"context"
	"fmt"
	"time"
)

// scenario is one thing to look at. Its length is a share of the duration that
// the bench was given.
type scenario struct {
	name string
	run  func(ctx context.Context, b *bench, name string) error
}

var scenarios = []scenario{
	// On the second, all of them.
	{"500", plain(workload{Crons: 500, Period: 1}, 1, false)},
	// As many, but each at a time of its own within the second.
	{"500_jitter", plain(workload{Crons: 500, Period: 1, Within: true}, 0.25, false)},
	// At one instant, as at the full minute or hour.
	{"10000", plain(workload{Crons: 10_000, Period: 15}, 0.5, false)},
	// Ten due a second, each time others.
	{"100000", plain(workload{Crons: 100_000, Period: 10_000, Spread: true}, 1.0/3, false)},
	{"history", history},
	// Every tick has to run: also those that fell due while nobody led.
	{"kill", plain(workload{Crons: 100, Period: 1, Overlap: "allow"}, 0.4, true)},
}

func scenarioNames() []string {
	names := make([]string, len(scenarios))
	for i, s := range scenarios {
		names[i] = s.name
	}
	return names
}

// plain measures forge and, beside it, River.
func plain(w workload, share float64, kill bool) func(context.Context, *bench, string) error {
	return func(ctx context.Context, b *bench, name string) error {
		systems := []*system{forgeSystem}
		if b.peer {
			systems = append(systems, riverSystem)
		}
		for _, s := range systems {
			b.say("%s: %s", name, s.name)
			f, err := b.field(ctx, s, b.scaled(w))
			if err != nil {
				return err
			}
			out, err := b.measure(ctx, f, b.length(share), kill)
			f.pool.Close()
			if err != nil {
				return err
			}
			b.report.add(name, s.name, out)
		}
		return nil
	}
}

// scaled takes the share of the crons that the options say.
func (b *bench) scaled(w workload) workload {
	w.Crons = max(1, int(b.share*float64(w.Crons)))
	if w.Spread {
		w.Period = max(1, int64(b.share*float64(w.Period)))
	} else if w.Period > 1 {
		w.Period = max(1, min(w.Period, int64(b.duration/time.Second)/4))
	}
	return w
}

func (b *bench) length(share float64) time.Duration {
	return max(2*time.Second, time.Duration(share*float64(b.duration)))
}

const (
	// rounds are how often an empty and a full ledger take turns.
	rounds = 2
	// historyRows is how long the ledger of the full one is.
	historyRows = 1_000_000
)

// Rows as a leader would have written them, up to an hour ago.
const fillSQL = `
INSERT INTO forge_cron_ticks (cron, tick, verdict, term, node_id, recorded_at, lateness_ms, job_id)
SELECT c.name, t.tick, 'fired', 1, 'past', t.tick, 5, 9000000000 + row_number() OVER ()
FROM forge_crons AS c
CROSS JOIN generate_series(1, $1::int) AS g (n)
CROSS JOIN LATERAL (SELECT date_trunc('second', now()) - interval '1 hour' - g.n * interval '1 second' AS tick) AS t`

// history compares a long ledger with an empty one, in turns.
func history(ctx context.Context, b *bench, _ string) error {
	w := b.scaled(workload{Crons: 500, Period: 1})
	var fields [2]*field
	for i, name := range []string{"empty", "history"} {
		f, err := b.field(ctx, forgeSystem, w)
		if err != nil {
			return err
		}
		defer f.pool.Close()
		fields[i] = f
		if name == "history" {
			b.say("history: filling the ledger")
			if err := fill(ctx, f, int(b.share*historyRows)/w.Crons); err != nil {
				return err
			}
		}
	}
	for round := range rounds {
		for i, name := range []string{"empty", "history"} {
			b.say("%s: round %d of %d", name, round+1, rounds)
			out, err := b.measure(ctx, fields[i], b.length(1.0/6), false)
			if err != nil {
				return err
			}
			b.report.add(name, forgeSystem.name, out)
		}
	}
	return nil
}

func fill(ctx context.Context, f *field, rows int) error {
	if _, err := f.pool.Exec(ctx, fillSQL, rows); err != nil {
		return fmt.Errorf("fill the ledger: %w", err)
	}
	if _, err := f.pool.Exec(ctx, "VACUUM ANALYZE forge_cron_ticks"); err != nil {
		return fmt.Errorf("vacuum the ledger: %w", err)
	}
	return nil
}
