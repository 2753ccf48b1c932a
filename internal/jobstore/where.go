package jobstore

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

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

// DeadKeys are the keys of the filters of dead letters.
var DeadKeys = deadKeys()

func deadKeys() (keys []filter.Key) {
	about := map[string]string{"since": "jobs that died since then", "until": "jobs that died until then", "took": "how long the last attempt took"}
	for _, key := range Keys {
		if key.Name == "state" {
			continue
		}
		key.About = cmp.Or(about[key.Name], key.About)
		keys = append(keys, key)
	}
	return keys
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

// in returns a statement with these conditions in place of @matches, and a number in place
// of @limit.
func (c *conditions) in(sql string, limit int) string {
	return strings.NewReplacer("@matches", c.String(), "@limit", strconv.Itoa(limit)).Replace(sql)
}

// planned returns the arguments of a statement that is planned for them: a plan for other
// conditions may read all jobs.
func (c *conditions) planned() []any {
	return append([]any{pgx.QueryExecModeExec}, c.args...)
}

// addExact adds the conditions whose indexes find single jobs.
func (c *conditions) addExact(f Filter) {
	c.addStates(f)
	if f.Cron != "" {
		c.add(ofCron+" = $$)", f.Cron)
	}
	c.addTimes(f.Where, endedSince)
}

// addStates adds the conditions on the state.
func (c *conditions) addStates(f Filter) {
	if f.State != "" {
		c.add(amongStates([]string{f.State}))
	}
	if states := statesIn(f.Where); len(states) > 0 {
		c.add(amongStates(states))
	}
}

// addTimes adds the conditions on the end of jobs, with one for since.
func (c *conditions) addTimes(where *filter.Filter, since string) {
	for _, t := range where.Of("since") {
		c.addInstant(t, since)
	}
	for _, t := range where.Of("until") {
		c.addInstant(t, endedUntil)
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

// endedUntil does so too.
const endedUntil = `(finalized_at <= $$ AND forge_state IS NULL OR finalized_at <= $$ AND forge_state IN ('cancelled', 'discarded'))`

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
const (
	lastNode      = `left(` + lastAttemptBy + `, length(` + lastAttemptBy + `) - strpos(reverse(` + lastAttemptBy + `), '-'))`
	lastAttemptBy = `coalesce(attempted_by[array_upper(attempted_by, 1)], '')`
)

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
const lastAttemptTook = `CASE WHEN finalized_at IS NOT NULL OR state = 'running' THEN coalesce(` + finalizedAtSQL + `, now()) - ` + attemptedAtSQL + ` END`
