package assign_test

import (
	"strings"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/explain"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/limitkey"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/scheduler/assign"
)

// placementOf explains a job.
func (c *cluster) placementOf(t *testing.T, id int64) explain.Placement {
	t.Helper()
	p, err := assign.NewExplainer(c.pool, assign.Rules{Strategy: assign.LeastLoaded}).Placement(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// perMinute is a rate of ten units a minute.
func perMinute(scope, name, key string) jobstore.Limit {
	return jobstore.Limit{Scope: scope, Name: name, Most: 10, Per: time.Minute, Key: key}
}

// A job of one unit that the leader leaves waiting for one of several units before it is explained by
// that job, in each of the cases in which the leader does so, and in no other.
func TestExplainNamesHeavyJobAhead(t *testing.T) {
	t.Parallel()
	const ahead = "job 1 is ahead of it and needs 10 units of what "
	for name, test := range map[string]struct {
		limit jobstore.Limit
		queue string // that of the heavy job
		// before changes the jobs: 1 has ten units, 2 is of one unit and comes later.
		before string
		queues string
		want   string
	}{
		"of the queue": {limit: perMinute("queue", "mail", ""), want: ahead + "queue mail may start at its rate_limit of 10 in 1m0s; the start of job 1 is possible at "},
		"of the kind":  {limit: perMinute("job", "k", ""), queue: "other", want: ahead + "kind k may start at "},
		"of the tenant": {
			limit: perMinute("queue", "mail", "args.tenant"), want: ahead + `queue mail may start at its rate_limit of 10 in 1m0s with args.tenant = "t"; the start of `,
		},
		"in turns": {limit: perMinute("job", "k", ""), queues: `"mail": {"fair_by": "args.from"}`, want: ahead},
		"in turns, of another key": {
			limit: perMinute("job", "k", ""), queues: `"mail": {"fair_by": "args.from"}`, want: ahead,
			before: `UPDATE river_job SET args = args || '{"from": "a"}', priority = 3 WHERE id = 1`,
		},
		"not of another tenant":       {limit: perMinute("queue", "mail", "args.tenant"), before: `UPDATE river_job SET args = '{"tenant": "other"}' WHERE id = 1`},
		"not behind":                  {limit: perMinute("queue", "mail", ""), before: `UPDATE river_job SET priority = 2 WHERE id = 1`},
		"not paused":                  {limit: perMinute("queue", "mail", ""), before: `INSERT INTO forge_pauses (queue, kind, key, value, key_source, key_path, paused_at, paused_by, reason) VALUES ('mail', 'heavy', '', '', '', '{}', now(), '', '')`},
		"not without a node":          {limit: perMinute("queue", "mail", ""), before: `UPDATE river_job SET metadata = metadata || '{"forge:capability": "gpu"}' WHERE id = 1`},
		"not due":                     {limit: perMinute("queue", "mail", ""), before: `UPDATE river_job SET scheduled_at = now() + interval '1 hour' WHERE id = 1`},
		"not with more than the rate": {limit: perMinute("queue", "mail", ""), before: `UPDATE river_job SET metadata = '{"forge:weight": 11}' WHERE id = 1`},
		"not in a paused queue":       {limit: perMinute("job", "k", ""), queue: "other", before: `UPDATE river_queue SET paused_at = now() WHERE name = 'other'`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			if test.queue == "" {
				test.queue = "mail"
			}
			c.exec(t, `INSERT INTO river_queue (name, updated_at) VALUES ('mail', now()), ('other', now())`)
			c.exec(t, `INSERT INTO forge_rate_windows
				SELECT scope, name, key, ARRAY[clock_timestamp()], '{1}', '{}', '{}', now() + interval '1 hour'
				FROM (VALUES ('queue_rate', 'mail', ''), ('queue_rate', 'mail', 't'), ('job_rate', 'k', '')) AS w (scope, name, key)`)
			kind := "heavy"
			if test.limit.Scope == jobstore.ScopeJob {
				kind = "k"
			}
			c.exec(t, `INSERT INTO river_job (kind, queue, args, metadata, scheduled_at) VALUES ($1, $2, '{"tenant": "t"}', '{"forge:weight": 10}', now() - interval '1 s'), ('k', 'mail', '{"tenant": "t"}', '{}', now())`, kind, test.queue)
			if test.before != "" {
				c.exec(t, test.before)
			}
			if test.queues != "" {
				c.applyQueues(t, test.queues)
				byFrom := jobstore.FairQueue{Queue: "mail", Key: limitkey.Key{Source: limitkey.Args, Path: []string{"from"}}}
				if err := jobstore.New(c.pool).CreateFairIndex(t.Context(), byFrom); err != nil {
					t.Fatal(err)
				}
			}
			c.limit(t, test.limit)
			node := nodestore.Node{NodeID: "a", Slots: 10, Queues: map[string]int{"mail": 10, "other": 10, "default": 10}, Kinds: []string{"k", "heavy", "a"}}
			n := c.join(t, node)
			if p := c.placementOf(t, 2); !strings.Contains(p.Sentence, test.want) || (p.LimitAhead == 1) != (test.want != "") {
				t.Errorf("explained as %s, ahead is %d", p.Sentence, p.LimitAhead)
			} else if wait := time.Until(p.LimitUntil); test.want != "" && (wait < 20*time.Second || wait > time.Minute) {
				t.Errorf("the start is possible in %s", wait)
			}
			c.lead(t, c.makeLeader(t, 1), assign.LeastLoaded)
			c.insert(t, 1, "a", "default", "")
			c.waitFor(t, "a job without a limit", func() bool { return n.claimed() > 0 })
			if test.want == "" {
				c.waitFor(t, "the job", func() bool { return c.count(t, "id = 2 AND state = 'running'") == 1 })
				return
			}
			time.Sleep(300 * time.Millisecond)
			if c.count(t, "id = 2 AND state = 'running'") != 0 {
				t.Error("the leader offers the job")
			}
		})
	}
}
