package dashboardtest

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/explain"
)

func (f Crons) List(context.Context) ([]cronstore.Cron, error) {
	return Read(f.Cluster, func() []cronstore.Cron { return append([]cronstore.Cron(nil), f.Crons...) })
}

func (f Crons) Get(ctx context.Context, name string) (cronstore.Cron, error) {
	crons, err := f.List(ctx)
	for _, c := range crons {
		if c.Name == name {
			return c, nil
		}
	}
	if err == nil {
		err = cronstore.ErrNotFound
	}
	return cronstore.Cron{}, err
}

func (f Crons) Why(ctx context.Context, name string, tick time.Time) (explain.Explanation, error) {
	cron, err := f.Get(ctx, name)
	if err != nil {
		return explain.Explanation{}, err
	}
	return explain.Explain(explain.Facts{Cron: cron, Tick: tick, Now: Epoch})
}

func (f Crons) Notifications(context.Context, string, []time.Time) ([]alerts.Notification, error) {
	return Read(f.Cluster, func() []alerts.Notification { return f.Told })
}

func (f Crons) Definition(_ context.Context, kind string) (*cronstore.Definition, error) {
	return Read(f.Cluster, func() *cronstore.Definition {
		if kind != "dump" && !f.Hostile {
			return nil
		}
		return &cronstore.Definition{Kind: "shell", Command: []string{"pg_dump", "--table", "it's <b>"}, Cwd: "/srv"}
	})
}

func (f Crons) Ticks(_ context.Context, cron string, before time.Time, limit int) ([]cronstore.Tick, error) {
	return Read(f.Cluster, func() []cronstore.Tick {
		var own []cronstore.Tick
		for _, t := range f.Cluster.Ticks[cron] {
			if (before.IsZero() || t.Tick.Before(before)) && len(own) < limit {
				own = append(own, t)
			}
		}
		return own
	})
}

func (f Crons) TicksBetween(ctx context.Context, cron string, from, before time.Time, limit int) ([]cronstore.Tick, error) {
	ticks, err := f.Ticks(ctx, cron, before, limit)
	return slices.DeleteFunc(ticks, func(t cronstore.Tick) bool { return t.Tick.Before(from) }), err
}

func (f Crons) TicksFrom(_ context.Context, cron string, from time.Time, limit int) ([]cronstore.Tick, error) {
	return Read(f.Cluster, func() []cronstore.Tick {
		var own []cronstore.Tick
		for _, t := range slices.Backward(f.Cluster.Ticks[cron]) {
			if !t.Tick.Before(from) && len(own) < limit {
				own = append(own, t)
			}
		}
		return own
	})
}

func (f Crons) Outline(ctx context.Context, _ []cronstore.Outlined) ([]cronstore.Outlined, error) {
	crons, err := f.List(ctx)
	slices.SortFunc(crons, func(a, b cronstore.Cron) int { return strings.Compare(a.Name, b.Name) })
	return OutlinesOf(crons), err
}

func OutlinesOf(crons []cronstore.Cron) []cronstore.Outlined {
	var outlined []cronstore.Outlined
	for _, c := range crons {
		outlined = append(outlined, cronstore.Outlined{Name: c.Name, Job: c.Spec.Job, Paused: c.Paused(), NextTick: c.NextTick, BlockedBy: c.Blocked.By})
	}
	return outlined
}

// Verdicts returns the verdicts of the newest ticks.
func (f Crons) Verdicts(ctx context.Context) (map[string]cronstore.Verdict, error) {
	crons, err := f.List(ctx)
	verdicts := map[string]cronstore.Verdict{}
	for _, c := range crons {
		ticks, err := f.Ticks(ctx, c.Name, time.Time{}, 1)
		if err != nil {
			return nil, err
		}
		if len(ticks) > 0 {
			verdicts[c.Name] = ticks[0].Verdict
		}
	}
	return verdicts, err
}

// Find returns the crons whose names contain the text.
func (f Crons) Find(ctx context.Context, text string, limit int) (found []cronstore.Named, err error) {
	crons, err := f.List(ctx)
	for _, c := range crons {
		if text != "" && strings.Contains(c.Name, text) && len(found) < limit {
			found = append(found, cronstore.Named{Name: c.Name, Job: c.Spec.Job, Paused: c.Paused()})
		}
	}
	return found, err
}

func (f Crons) Some(ctx context.Context, names []string) ([]cronstore.Cron, error) {
	all, err := f.List(ctx)
	all = slices.DeleteFunc(all, func(c cronstore.Cron) bool { return !slices.Contains(names, c.Name) })
	slices.SortFunc(all, func(a, b cronstore.Cron) int { return strings.Compare(a.Name, b.Name) })
	return all, err
}
