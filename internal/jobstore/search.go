package jobstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/filter"
)

// States are the states of jobs, in the order of a job's life.
var States = []string{stateAvailable, "pending", "scheduled", stateRunning, "retryable", stateCompleted, "cancelled", stateDiscarded}

// Keys are the keys of the filters of jobs.
var Keys = []filter.Key{
	{Name: "kind", Example: "send*", About: "the kind"},
	{Name: "state", Type: filter.Choice, Values: States, Example: stateDiscarded, About: "the state"},
	{Name: "queue", Example: "mail", About: "the queue"},
	{Name: "cron", Example: "nightly*", About: "the cron whose run it is"},
	{Name: "node", Example: "node-2", About: "the node of the last attempt"},
	{Name: "took", Type: filter.Duration, Example: ">10s", About: "how long the last attempt took, or has run so far"},
	{Name: "error", Example: "timeout", About: "a part of the last error, in any case"},
	{Name: "tag", Example: "billing", About: "a tag"},
	{Name: "since", Type: filter.Instant, Example: "2h", About: "jobs that ended since then, or have not ended"},
	{Name: "until", Type: filter.Instant, Example: "1h", About: "jobs that ended until then"},
}

// Narrow returns the filter with the terms of another one in addition. Terms that are the
// only ones of their key and match a whole text become fields of the filter.
func (f Filter) Narrow(where *filter.Filter) Filter {
	var rest []filter.Term
	for _, t := range where.Terms() {
		field := map[string]*string{"state": &f.State, "kind": &f.Kind, "queue": &f.Queue, "cron": &f.Cron}[t.Key]
		text, exact := t.Text.Exact()
		if field != nil && exact && text != "" && (*field == "" || *field == text) && len(where.Of(t.Key)) == 1 {
			*field = text
			continue
		}
		rest = append(rest, t)
	}
	f.Where = filter.New(append(f.Where.Terms(), rest...)...)
	return f
}

// Found is a page of a list of jobs.
type Found struct {
	Jobs []Job
	// Next is the BeforeID of the next page; 0: this is the last one.
	Next int64
}

const (
	// fewExact and fewLossy are how many jobs a search reads through the indexes that find
	// single jobs, and through those that find the pages with a kind or a queue.
	fewExact, fewLossy = 100_000, 2_000
	// searchWindow is how many jobs one statement reads if the indexes find too many. A search
	// begins no further statement after searchTime: Next continues it, even if nothing was
	// found.
	searchWindow = 20_000
	searchTime   = 100 * time.Millisecond
)

const estimateSQL = `EXPLAIN (FORMAT JSON) SELECT FROM river_job WHERE %s`

const windowSQL = `
SELECT coalesce(min(id), 0), count(*)
FROM (SELECT id FROM river_job WHERE $1::bigint = 0 OR id < $1 ORDER BY id DESC LIMIT $2) AS examined`

// OFFSET keeps the planner from reading all jobs by descending id, in the hope that the first
// ones match.
const searchSQL = `
       '{}'::jsonb, '{}'::jsonb[]
FROM (SELECT * FROM river_job WHERE %s OFFSET 0) AS river_job
WHERE %s
ORDER BY id DESC
LIMIT %d`

// Search returns a page of the jobs that match a filter, the newest first. It reads the jobs
// that the indexes find if they are few. Otherwise it reads the newest jobs, in parts, for a
// limited time: a page may then hold fewer jobs than the limit although others follow.
func (s *Store) Search(ctx context.Context, f Filter) (found Found, err error) {
	limit := min(cmp.Or(f.Limit, defaultLimit), maxLimit)
	few, err := s.findsFew(ctx, f)
	switch {
	case err != nil:
		return found, err
	case few:
		found.Jobs, err = s.searchAmong(ctx, f, 0, limit)
	case f.Where == nil:
		found.Jobs, err = s.List(ctx, f)
	default:
		return s.searchInParts(ctx, f, limit)
	}
	found.endAt(f, limit)
	return found, err
}

// searchInParts reads the newest jobs in parts until the page is full or the time is up.
func (s *Store) searchInParts(ctx context.Context, f Filter, limit int) (found Found, err error) {
	for began := time.Now(); ; {
		var lowest int64
		var examined int
		if err := s.db.QueryRow(ctx, windowSQL, f.BeforeID, searchWindow).Scan(&lowest, &examined); err != nil {
			return Found{}, fmt.Errorf("search jobs: %w", err)
		}
		jobs, err := s.searchAmong(ctx, f, lowest, limit-len(found.Jobs))
		if err != nil {
			return Found{}, err
		}
		found.Jobs, f.BeforeID = append(found.Jobs, jobs...), lowest
		if found.endAt(f, limit); found.Next != 0 || examined < searchWindow {
			return found, nil
		}
		if time.Since(began) > searchTime {
			found.Next = lowest
			return found, nil
		}
	}
}

// endAt sets Next if the page is full.
func (p *Found) endAt(f Filter, limit int) {
	if n := len(p.Jobs); n > 0 && (n >= limit || f.EndsEarly(p.Jobs)) {
		p.Next = p.Jobs[n-1].ID
	}
}

// findsFew reports whether the indexes find few jobs for a filter, as the planner estimates.
func (s *Store) findsFew(ctx context.Context, f Filter) (bool, error) {
	exact, lossy := &conditions{}, &conditions{}
	exact.addExact(f)
	lossy.addLossy(f)
	for c, few := range map[*conditions]float64{exact: fewExact, lossy: fewLossy} {
		if len(c.sql) == 0 {
			continue
		}
		var plan []struct {
			Plan struct {
				Rows float64 `json:"Plan Rows"`
			}
		}
		err := s.db.QueryRow(ctx, fmt.Sprintf(estimateSQL, c), append([]any{pgx.QueryExecModeExec}, c.args...)...).Scan(&plan)
		if err != nil {
			return false, fmt.Errorf("plan a search for jobs: %w", err)
		}
		if len(plan) == 1 && plan[0].Plan.Rows <= few {
			return true, nil
		}
	}
	return false, nil
}

// searchAmong returns the jobs from an id on that match the filter, at most limit.
func (s *Store) searchAmong(ctx context.Context, f Filter, lowest int64, limit int) ([]Job, error) {
	indexed := &conditions{}
	if lowest != 0 {
		indexed.add("id >= $$", lowest)
	}
	if f.BeforeID != 0 {
		indexed.add("id < $$", f.BeforeID)
	}
	indexed.addExact(f)
	indexed.addLossy(f)
	others := &conditions{before: len(indexed.args)}
	others.addOthers(f.Where)
	sql := beforeArgsSQL + argsSQL[f.Args] + fmt.Sprintf(afterArgsSQL+searchSQL, maxListedError, indexed, others, limit)
	rows, err := s.db.Query(ctx, sql, slices.Concat([]any{pgx.QueryExecModeExec}, indexed.args, others.args)...)
	if err != nil {
		return nil, fmt.Errorf("search jobs: %w", err)
	}
	jobs, err := collectJobs(rows, f.MaxArgs)
	if err != nil {
		return nil, fmt.Errorf("search jobs: %w", err)
	}
	return jobs, nil
}

// conditions are SQL conditions with their arguments.
type conditions struct {
	sql  []string
	args []any
	// before is the number of arguments that come before these.
	before int
}

// add adds a condition with $$ for each argument.
func (c *conditions) add(sql string, args ...any) {
	for _, arg := range args {
		c.args = append(c.args, arg)
		sql = strings.Replace(sql, "$$", "$"+strconv.Itoa(c.before+len(c.args)), 1)
	}
	c.sql = append(c.sql, sql)
}

// addAny adds a condition that is true if one of these is.
func (c *conditions) addAny(either []string, args ...any) {
	if len(either) > 0 {
		c.add("("+strings.Join(either, " OR ")+")", args...)
	}
}

// String returns the condition that all of them are true.
func (c *conditions) String() string {
	return strings.Join(append([]string{"true"}, c.sql...), "\n  AND ")
}

// addTerms adds the conditions of a filter's terms.
func (c *conditions) addTerms(where *filter.Filter) {
	c.addExact(Filter{Where: where})
	c.addOthers(where)
}

// addExact adds the conditions whose indexes find single jobs.
func (c *conditions) addExact(f Filter) {
	if f.State != "" {
		c.add(amongStates([]string{f.State}))
	}
	if states := statesIn(f.Where); len(states) > 0 {
		c.add(amongStates(states))
	}
	if f.Cron != "" {
		c.add(ofCron+" = $$)", f.Cron)
	}
	for _, t := range f.Where.Of("since") {
		c.addInstant(t, endedSince)
	}
	for _, t := range f.Where.Of("until") {
		c.addInstant(t, "finalized_at <= $$")
	}
}

// addLossy adds the conditions whose indexes find the pages with some matching jobs.
func (c *conditions) addLossy(f Filter) {
	if f.Kind != "" {
		c.add("kind = $$", f.Kind)
	}
	if f.Queue != "" {
		c.add("queue = $$", f.Queue)
	}
}

// statesIn returns the states that the terms name.
func statesIn(where *filter.Filter) (states []string) {
	for _, t := range where.Of("state") {
		state, _ := t.Text.Exact()
		states = append(states, state)
	}
	return states
}

const ofCron = "(metadata ? 'forge:cron' AND metadata ->> 'forge:cron'"

// endedSince names the states in the words of their indexes.
const endedSince = `(finalized_at >= $$ AND forge_state IS NULL OR finalized_at >= $$ AND forge_state IN ('cancelled', 'discarded')
       OR ` + isOpen + ` OR ` + isDue + ` OR forge_state = 'pending')`

// addInstant adds a condition on an instant, which may occur several times.
func (c *conditions) addInstant(t filter.Term, sql string) {
	instant, arg := "$$::timestamptz", any(t.At)
	if t.At.IsZero() {
		instant, arg = "now() - make_interval(secs => $$::float8)", t.Span.Seconds()
	}
	args := slices.Repeat([]any{arg}, strings.Count(sql, "$$"))
	c.add(strings.ReplaceAll(sql, "$$", instant), args...)
}

// lastNode is the node of the last attempt, as in nodeOf.
const lastNode = `regexp_replace(coalesce(attempted_by[array_upper(attempted_by, 1)], ''), '-[^-]*$', '')`

// matchers are the conditions that a column matches a pattern.
var matchers = map[string]string{
	"kind":  "kind LIKE $$",
	"queue": "queue LIKE $$",
	"cron":  ofCron + " LIKE $$)",
	"node":  lastNode + " LIKE $$",
	"tag":   "EXISTS (SELECT FROM unnest(tags) AS tag WHERE tag LIKE $$)",
	"error": "lower(" + lastErrorSQL + ") LIKE '%' || lower($$) || '%'",
}

// addOthers adds the conditions that no index serves.
func (c *conditions) addOthers(where *filter.Filter) {
	for _, key := range Keys {
		var either []string
		var args []any
		for _, t := range where.Of(key.Name) {
			switch matcher := matchers[key.Name]; {
			case matcher != "":
				either, args = append(either, matcher), append(args, t.Text.Like())
			case t.Longer:
				c.add(lastAttemptTook+" > make_interval(secs => $$::float8)", t.Span.Seconds())
			case key.Type == filter.Duration:
				c.add(lastAttemptTook+" < make_interval(secs => $$::float8)", t.Span.Seconds())
			}
		}
		c.addAny(either, args...)
	}
}

// lastAttemptTook is null for jobs that wait: their last attempt has its end in the metadata.
const lastAttemptTook = `CASE WHEN finalized_at IS NOT NULL OR state = 'running' THEN coalesce(finalized_at, now()) - attempted_at END`
