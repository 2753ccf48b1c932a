package main

import (
	"context"

	"github.com/spf13/pflag"

	"github.com/forge-scheduler/forge/internal/filter"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

// jobWhere is the flag --filter of commands on jobs.
type jobWhere struct{ *filter.Filter }

// Set implements pflag.Value.
func (w *jobWhere) Set(text string) (err error) {
	w.Filter, err = filter.Parse(text, jobstore.Keys)
	return err
}

// Type implements pflag.Value.
func (*jobWhere) Type() string { return "filter" }

func (w *jobWhere) addTo(flags *pflag.FlagSet) {
	flags.Var(w, "filter", "only jobs that match terms such as 'kind:send* node:node-2 took:>10s error:timeout since:2h'; see docs/jobs.md")
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
