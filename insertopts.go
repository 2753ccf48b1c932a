package forge

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

// InsertOpts are River's options for an insert by a node's client, the units of a rate, and what
// becomes of a duplicate: a job with the same Key, or else with the same UniqueOpts. Without both,
// all jobs of the kind are duplicates. Of Replace, Debounce and Throttle, at most one is set;
// UniqueOpts then has no ByPeriod and no ByState. With none of them, a duplicate is not inserted,
// and all jobs are accepted without Key and UniqueOpts.
//
//	opts, err := forge.InsertOpts{Key: "document-7", Debounce: 5 * time.Second}.River()
//	...
//	result, err := node.Client().InsertTx(ctx, tx, args, opts)
//	...
//	verdict := forge.VerdictOf(result)
type InsertOpts struct {
	river.InsertOpts
	// Weight is how many units of a rate the job needs, at most 1000000; 0: those of its kind. A
	// job with more units than a rate ever has at once never starts.
	Weight int
	// Key is a unique key of the program's own, within the kind.
	Key string
	// Replace gives the waiting job the new arguments, and the ScheduledAt, Priority,
	// MaxAttempts and Tags that are set.
	Replace bool
	// Debounce, from 1s to 30 days, does so too, and makes the job due after this time.
	// MaxWait is the maximum wait since the first insert, at least Debounce.
	// Default: ten times Debounce.
	Debounce, MaxWait time.Duration
	// Throttle, from 1s to 366 days, drops the job if an equal one was inserted less than this
	// time ago.
	Throttle time.Duration
}

// River returns the options for River's Insert, InsertTx, InsertMany and InsertManyTx.
// InsertManyFast refuses them.
func (o InsertOpts) River() (*river.InsertOpts, error) {
	d := config.Duplicates{
		Replace: o.Replace, Debounce: config.Duration(o.Debounce), MaxWait: config.Duration(o.MaxWait), Throttle: config.Duration(o.Throttle),
	}
	opts := o.InsertOpts
	if err := jobstore.CheckYear(opts.ScheduledAt); err != nil {
		return nil, fmt.Errorf("insert options: ScheduledAt %w", err)
	}
	by := opts.UniqueOpts
	switch {
	case o.Weight < 0 || o.Weight > config.MaxWeight:
		return nil, fmt.Errorf("insert options: Weight out of range (got %d); want 1 to %d, or 0 for that of the kind", o.Weight, config.MaxWeight)
	case !d.Set() && o.Key == "" && o.Weight == 0:
		return &opts, nil
	case d.Set() && (by.ByPeriod != 0 || len(by.ByState) > 0):
		return nil, fmt.Errorf("insert options: ByPeriod or ByState with Replace, Debounce or Throttle; want ByArgs, ByQueue or Key")
	}
	metadata := map[string]json.RawMessage{}
	if len(opts.Metadata) > 0 {
		if err := json.Unmarshal(opts.Metadata, &metadata); err != nil {
			return nil, fmt.Errorf("insert options: read the metadata: %w", err)
		}
	}
	if o.Weight > 0 {
		metadata[jobstore.KeyWeight] = strconv.AppendInt(nil, int64(o.Weight), 10)
	}
	var err error
	if d.Set() || o.Key != "" {
		rule := jobstore.NewRule(d, given(opts))
		rule.Key = o.Key
		if metadata[jobstore.KeyUnique], err = json.Marshal(rule); err != nil {
			return nil, fmt.Errorf("insert options: %w", err)
		}
	}
	if opts.Metadata, err = json.Marshal(metadata); err != nil {
		return nil, fmt.Errorf("insert options: write the metadata: %w", err)
	}
	if _, err := jobstore.RuleOf(opts.Metadata); err != nil {
		return nil, fmt.Errorf("insert options: %w", err)
	}
	return &opts, nil
}

// given returns the names of the options that replace those of the waiting job.
func given(opts river.InsertOpts) (names []string) {
	if !opts.ScheduledAt.IsZero() {
		names = append(names, jobstore.GivenAt)
	}
	if opts.Priority != 0 {
		names = append(names, jobstore.GivenPriority)
	}
	if opts.MaxAttempts != 0 {
		names = append(names, jobstore.GivenMaxAttempts)
	}
	if len(opts.Tags) > 0 {
		names = append(names, jobstore.GivenTags)
	}
	return names
}

// Verdict is what became of an insert: added, duplicate (an equal job exists, and was not
// changed), replaced, debounced or throttled.
type Verdict = jobstore.EnqueueVerdict

// The verdicts.
const (
	Added     = jobstore.Added
	Duplicate = jobstore.Duplicate
	Replaced  = jobstore.Replaced
	Debounced = jobstore.Debounced
	Throttled = jobstore.Throttled
)

// VerdictOf returns what became of an insert by a node's client. The result's Job is the
// existing job, except for added.
func VerdictOf(result *rivertype.JobInsertResult) Verdict {
	return jobstore.AnswerOf(result.Job.Metadata, result.UniqueSkippedAsDuplicate).Verdict
}
