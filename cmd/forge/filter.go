package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/pflag"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/filter"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

// whereFlag is the flag --filter of commands on a list with these keys.
type whereFlag struct {
	*filter.Filter

	keys []filter.Key
}

// Set implements pflag.Value.
func (w *whereFlag) Set(text string) (err error) {
	w.Filter, err = filter.Parse(text, w.keys)
	return err
}

// Type implements pflag.Value.
func (*whereFlag) Type() string { return "filter" }

// addTo adds the flag. rows names what is filtered, page the page that describes the terms.
func (w *whereFlag) addTo(flags *pflag.FlagSet, keys []filter.Key, rows, example, page string) {
	w.keys = keys
	flags.Var(w, "filter", "only "+rows+" that match terms such as '"+example+"'; see docs/"+page)
}

func (w *whereFlag) addJobs(flags *pflag.FlagSet) {
	w.addTo(flags, jobstore.Keys, "jobs", "kind:send* node:node-2 took:>10s error:timeout since:2h", "jobs.md")
}

// sortFlag is the flag --sort of commands on a list with these orders.
type sortFlag struct {
	name   string
	orders []string
}

// String implements pflag.Value.
func (s *sortFlag) String() string { return s.name }

// Set implements pflag.Value.
func (s *sortFlag) Set(text string) error {
	if !slices.Contains(s.orders, text) {
		return fmt.Errorf("want one of %s", strings.Join(s.orders, ", "))
	}
	s.name = text
	return nil
}

// Type implements pflag.Value.
func (*sortFlag) Type() string { return "order" }

func (s *sortFlag) addTo(flags *pflag.FlagSet, orders []string) {
	s.orders = orders
	flags.Var(s, "sort", "order: "+strings.Join(orders, ", "))
}

// selected returns the rows of a list that match a filter, in an order.
func selected[T any](ctx context.Context, where *whereFlag, sort *sortFlag, table filter.Table[T], orders filter.Orders[T], read func(context.Context) ([]T, error)) ([]T, error) {
	rows, err := read(ctx)
	return orders.Sort(sort.name, table.Select(where.Filter, time.Now(), rows)), err
}

// patterns returns patterns that match these names.
func patterns(names []string) []filter.Pattern {
	all := make([]filter.Pattern, len(names))
	for i, name := range names {
		all[i] = filter.Pattern{name}
	}
	return all
}

// searchJobs returns the newest jobs that match a filter, at most its limit.
func searchJobs(ctx context.Context, store *jobstore.Store, f jobstore.Filter) (jobs []jobstore.Job, err error) {
	for limit := f.Limit; ; {
		found, err := store.Search(ctx, f)
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, found.Jobs...)
		if found.Next == 0 || len(jobs) >= limit {
			return jobs, nil
		}
		f.BeforeID, f.Limit = found.Next, limit-len(jobs)
	}
}

// hintFilter notes the kind, queue and cron that were probably meant by a filter that matches nothing.
func (a *app) hintFilter(ctx context.Context, pool *pgxpool.Pool, f jobstore.Filter) error {
	for _, part := range []struct {
		what, name string
		read       func(context.Context, *pgxpool.Pool) ([]string, error)
	}{{"kind", f.Kind, kindNames}, {"queue", f.Queue, queueNames}, {"cron", f.Cron, cronNames}} {
		if part.name == "" {
			continue
		}
		known, err := part.read(ctx, pool)
		if err != nil {
			return err
		}
		if near := config.Nearest(part.name, known); near != "" && !slices.Contains(known, part.name) {
			a.note(fmt.Sprintf("there is no %s %q (did you mean %s?)", part.what, part.name, near))
		}
	}
	return nil
}
