package cluster

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/filter"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

// JobID parses the id of a job.
func JobID(text string) (int64, error) {
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || id <= 0 {
		return 0, jobstore.ErrNotFound
	}
	return id, nil
}

// The greatest numbers of attempts and chunks that the columns of the database can hold.
const (
	MaxAttempt = math.MaxInt16
	MaxChunk   = math.MaxInt32
)

// Where parses the parameter filter of a list with these keys.
func Where(q *web.Query, keys []filter.Key) *filter.Filter {
	where, err := filter.Parse(q.Values.Get("filter"), keys)
	if err != nil {
		q.Errs = append(q.Errs, err)
	}
	return where
}

// SortOf parses the parameter sort of a list with these orders.
func SortOf(q *web.Query, orders []string) string {
	sort := q.Values.Get("sort")
	if sort != "" && !slices.Contains(orders, sort) {
		q.Errs = append(q.Errs, fmt.Errorf("sort: found %.60q, want one of %s", sort, strings.Join(orders, ", ")))
	}
	return sort
}

// JobFilter returns the filter of a list of jobs. The parameter filter narrows the others.
func JobFilter(q *web.Query) jobstore.Filter {
	return jobstore.Filter{
		State: q.Values.Get("state"), Kind: q.Values.Get("kind"), Queue: q.Values.Get("queue"), Cron: q.Values.Get("cron"),
		Sort: jobstore.Sort(SortOf(q, jobstore.Sorts)), BeforeID: q.Number("before"), Limit: q.Limit(),
	}.Narrow(Where(q, jobstore.Keys))
}

// MaxBulk is the maximum number of jobs that one request changes. It bounds the duration of
// the request.
const MaxBulk = 20_000

// CheckBulk rejects filters that no bulk action may have.
func CheckBulk(action jobstore.Action, filter jobstore.Filter) error {
	switch {
	case filter == jobstore.Filter{Sort: filter.Sort}:
		return web.WrongFields(web.WrongBody("a filter is required: one or more of state, kind, queue, cron and filter"))
	case filter.State == "":
		return nil
	case !slices.Contains(JobStates, filter.State):
		return web.WrongFields(web.WrongField("state", "must be one of "+strings.Join(JobStates, ", ")))
	case action.Refuses(filter.State) != "":
		return web.WrongFields(web.WrongField("state", fmt.Sprintf("is of jobs that cannot be %s: %s", PastTense[action], action.Refuses(filter.State))))
	}
	return nil
}

// CanChangeAny reports whether a bulk action changes any of the jobs that match its filter.
// A retry without a state is for discarded jobs only.
func CanChangeAny(action jobstore.Action, filter jobstore.Filter, jobs []jobstore.Job) bool {
	return slices.ContainsFunc(jobs, func(j jobstore.Job) bool {
		return action.Refuses(j.State) == "" && (action != jobstore.Retry || filter.State != "" || j.State == "discarded")
	})
}

const (
	// keepCounts is how long pages share a count of all jobs. countTimeout is how long a
	// page waits for the count: counting a million jobs takes a good part of a second.
	keepCounts   = 2 * time.Second
	countTimeout = 50 * time.Millisecond
	// OldCount is the age from which pages show how old a count is.
	OldCount = 5 * time.Second
)

func (s *Cluster) newCounts() *Cache[[]jobstore.Count] {
	return &Cache[[]jobstore.Count]{
		keep: keepCounts, timeout: cmp.Or(s.CountTimeout, countTimeout), lifetime: s.Lifetime, read: s.Source.Counts.CountsByQueueAndState,
		failed: func(ctx context.Context, err error) { s.Logger.WarnContext(ctx, "count jobs", "error", err) },
	}
}

// JobOps changes jobs on behalf of an operator.
type JobOps interface {
	// Act returns the result for each job, in the order of the ids.
	Act(ctx context.Context, order jobstore.Order, ids []int64) ([]jobstore.Change, error)
	// CountMatching counts the jobs that match a filter and that the action can change, among
	// those that were counted before. ActOnAll changes them and returns how many it changed.
	CountMatching(ctx context.Context, action jobstore.Action, filter jobstore.Filter, before jobstore.Matching) (jobstore.Matching, error)
	ActOnAll(ctx context.Context, order jobstore.Order, filter jobstore.Filter, counted jobstore.Matching) (int, error)
}

// PastTense is the past tense of each action.
var PastTense = map[jobstore.Action]string{jobstore.Cancel: "cancelled", jobstore.Retry: "retried", jobstore.Discard: "discarded"}

// Act applies an action to one job.
func (s *Cluster) Act(ctx context.Context, order jobstore.Order, text string) (jobstore.Change, error) {
	id, err := JobID(text)
	if err != nil {
		return jobstore.Change{}, err
	}
	changes, err := s.JobOps.Act(ctx, order, []int64{id})
	switch {
	case err != nil:
		return jobstore.Change{}, err
	case changes[0].Missing:
		return changes[0], jobstore.ErrNotFound
	case changes[0].Refused != "":
		return changes[0], web.Refuse(http.StatusConflict, fmt.Sprintf("The job cannot be %s: %s.", PastTense[order.Action], changes[0].Refused))
	}
	return changes[0], nil
}

// BulkDocument is the result of an action on many jobs.
type BulkDocument struct {
	Action  jobstore.Action `json:"action"`
	Jobs    int64           `json:"jobs"`
	Changed int             `json:"changed"`
	// UpTo is the highest id that was counted. A request with this value changes no later
	// jobs.
	UpTo   int64 `json:"up_to,omitempty"`
	DryRun bool  `json:"dry_run"`
}

// ActOnAll applies an action to the jobs that match a filter. It leaves those alone that were
// added or ended after they were counted: by an earlier request or, without one, by this one.
func (s *Cluster) ActOnAll(ctx context.Context, order jobstore.Order, filter jobstore.Filter, before jobstore.Matching, dryRun bool) (BulkDocument, error) {
	count := s.CountBulk
	if dryRun {
		count = s.JobOps.CountMatching
	}
	counted, err := count(ctx, order.Action, filter, before)
	done := BulkDocument{Action: order.Action, Jobs: counted.Jobs, UpTo: counted.UpTo, DryRun: dryRun}
	if err != nil || dryRun || counted.Jobs == 0 {
		return done, err
	}
	if err := CheckBulkCount(order.Action, counted); err != nil {
		return done, err
	}
	counted = counted.Among(before)
	done.UpTo = counted.UpTo
	done.Changed, err = s.JobOps.ActOnAll(ctx, order, filter, counted)
	auth.NoteAction(ctx, fmt.Sprintf("%s, changed %d", describeFilter(filter), done.Changed))
	if err != nil && done.Changed > 0 {
		err = web.Refuse(http.StatusServiceUnavailable, fmt.Sprintf("The action stopped after %d jobs. Repeat the request to continue.", done.Changed))
	}
	return done, err
}

// describeFilter returns the filter for the audit log.
func describeFilter(filter jobstore.Filter) string {
	text := fmt.Sprintf("state=%s kind=%s queue=%s cron=%s", filter.State, filter.Kind, filter.Queue, filter.Cron)
	if filter.Where != nil {
		text += " filter=" + filter.Where.String()
	}
	return text
}

// CountBulk counts at most one job more than one request may change.
func (s *Cluster) CountBulk(ctx context.Context, action jobstore.Action, filter jobstore.Filter, before jobstore.Matching) (jobstore.Matching, error) {
	filter.Limit = MaxBulk + 1
	return s.JobOps.CountMatching(ctx, action, filter, before)
}

// CheckBulkCount rejects filters that match no job, or more than one request may change.
func CheckBulkCount(action jobstore.Action, counted jobstore.Matching) error {
	switch {
	case counted.Jobs == 0:
		return web.Refuse(http.StatusConflict, "The filter matches no job that can be "+PastTense[action]+".")
	case counted.Jobs > MaxBulk:
		return web.Refuse(http.StatusUnprocessableEntity, fmt.Sprintf(
			"The filter matches more than %d jobs, the maximum of one request. Narrow the filter, or use forge job %s.", MaxBulk, action))

	default:
		return nil
	}
}

// JobStates are the states of jobs.
var JobStates = jobstore.States
