package crons

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/cronstore"
)

// The runs of each cron from its floor on, the newest hundred. The ORDER BY is
// the index's, forge_river_job_cron, so that the planner takes no other, however
// old its statistics are.
const earlierRunsSQL = `
SELECT c.name, coalesce(max(j.id), 0), coalesce(min(j.id) FILTER (WHERE j.active), 0),
       coalesce(max(j.id) FILTER (WHERE j.active), 0),
       coalesce((array_agg(j.state ORDER BY j.id DESC) FILTER (WHERE j.active))[1], ''),
       coalesce((array_agg(j.since ORDER BY j.id DESC) FILTER (WHERE j.active))[1], 'epoch'),
       coalesce((array_agg(j.started ORDER BY j.id DESC) FILTER (WHERE j.active))[1], false),
       coalesce(array_agg(j.id) FILTER (WHERE j.active), '{}')
FROM unnest($1::text[], $2::bigint[]) AS c (name, floor)
CROSS JOIN LATERAL (
    SELECT id, state::text AS state, state IN ('available', 'running', 'retryable', 'scheduled', 'pending') AS active,
           CASE WHEN state = 'running' THEN coalesce(attempted_at, scheduled_at) ELSE scheduled_at END AS since,
           attempted_at IS NOT NULL AS started
    FROM river_job
    WHERE metadata ? 'forge:cron' AND metadata ->> 'forge:cron' = c.name AND id >= c.floor
    ORDER BY metadata ->> 'forge:cron' DESC, id DESC
    LIMIT 100
) AS j
GROUP BY c.name`

// A row that is locked is being claimed or changed: it counts as started.
const lockUnstartedSQL = `
SELECT id FROM river_job
WHERE id = ANY ($1) AND state IN ('available', 'scheduled', 'pending') AND attempted_at IS NULL
FOR UPDATE SKIP LOCKED`

// surroundings are what the overlap policies of crons look at: ticks that wait for their
// turn, and runs.
type surroundings struct {
	asked  map[question]bool
	queues map[string]cronstore.Queue
	runs   map[string]runs
}

// question is for the queue of a cron, or for its runs.
type question struct {
	cron  string
	queue bool
	floor int64 // of the runs
}

// runs are those of a cron from its floor on.
type runs struct {
	newest, oldest int64 // of all, and of those that are active
	active         run   // the newest of them; ID 0: none
	all            []int64
}

func newSurroundings() *surroundings {
	return &surroundings{asked: map[question]bool{}, queues: map[string]cronstore.Queue{}, runs: map[string]runs{}}
}

// queue adds to a batch what answers those of the questions that were not asked before.
func (s *surroundings) queue(batch *pgx.Batch, questions []question) {
	var (
		queues, names []string
		floors        []int64
	)
	for _, q := range questions {
		switch {
		case s.asked[q]:
		case q.queue:
			queues = append(queues, q.cron)
		default:
			names, floors = append(names, q.cron), append(floors, q.floor)
		}
		s.asked[q] = true
	}
	if len(queues) > 0 {
		cronstore.QueueWaiting(batch, queues, queueBatch, s.queues)
	}
	if len(names) > 0 {
		batch.Queue(earlierRunsSQL, names, floors).Query(s.readRuns)
	}
}

func (s *surroundings) readRuns(rows pgx.Rows) error {
	var (
		name  string
		found runs
	)
	active := &found.active
	targets := []any{&name, &found.newest, &found.oldest, &active.ID, &active.State, &active.Since, &active.Started, &found.all}
	_, err := pgx.ForEachRow(rows, targets, func() error {
		s.runs[name] = found
		found.all = nil // that of the next is another
		return nil
	})
	if err != nil {
		return fmt.Errorf("look for earlier runs: %w", err)
	}
	return nil
}

// expect returns what the crons' policies will have to look at, as far as the leader
// remembers the definitions.
func (l *ledger) expect(names []string) []question {
	var questions []question
	for _, name := range names {
		if d, ok := l.known[name]; ok {
			questions = append(questions, l.questions(name, d)...)
		} else {
			questions = append(questions, question{cron: name}) // most do
		}
	}
	return questions
}

// questions are what the policies of a definition have to look at. A cron may have a
// queue by its policy, or by one that it had.
func (l *ledger) questions(name string, d *definition) []question {
	var questions []question
	if d.spec.Overlap == overlapQueue || d.spec.Overlap == overlapQueueAll || l.queued[name] {
		questions = append(questions, question{cron: name, queue: true})
	}
	if d.spec.Overlap != overlapAllow {
		questions = append(questions, question{cron: name, floor: d.floor})
	}
	return questions
}

// surround fills in what the overlap policies look at, and asks for what was not
// expected.
func (l *ledger) surround(ctx context.Context, tx pgx.Tx, plans []*plan, found *surroundings) error {
	var (
		batch     pgx.Batch
		questions []question
	)
	for _, p := range plans {
		questions = append(questions, l.questions(p.cron.Name, p.definition)...)
	}
	found.queue(&batch, questions)
	if batch.Len() > 0 {
		if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
			return fmt.Errorf("read what crons wait for: %w", err)
		}
	}
	for _, p := range plans {
		p.queue = found.queues[p.cron.Name]
		if len(p.due)+len(p.queue.Oldest) > 0 && p.definition.spec.Overlap != overlapAllow {
			p.see(found.runs[p.cron.Name])
		}
	}
	return nil
}

// see fills in the runs that the cron must not overlap.
func (p *plan) see(found runs) {
	p.active = found.all
	p.definition.floor = max(p.definition.floor, found.newest)
	if found.active.ID != 0 {
		p.earlier, p.definition.floor = &found.active, found.oldest
	}
}

// lockUnstarted keeps runs that may be replaced only while they wait from being
// claimed until the transaction ends, and marks the plans all of whose active runs
// it has locked. Plans that are made again when their newest tick is due are left
// alone.
func lockUnstarted(ctx context.Context, tx pgx.Tx, plans []*plan, now time.Time) error {
	var ids []int64
	for _, p := range plans {
		if p.mayReplaceWaiting(now) {
			ids = append(ids, p.active...)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	rows, err := tx.Query(ctx, lockUnstartedSQL, ids)
	if err != nil {
		return fmt.Errorf("lock runs that have not started: %w", err)
	}
	locked, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return fmt.Errorf("lock runs that have not started: %w", err)
	}
	isLocked := make(map[int64]bool, len(locked))
	for _, id := range locked {
		isLocked[id] = true
	}
	for _, p := range plans {
		if p.mayReplaceWaiting(now) {
			p.unstarted = !slices.ContainsFunc(p.active, func(id int64) bool { return !isLocked[id] })
		}
	}
	return nil
}

func (p *plan) mayReplaceWaiting(now time.Time) bool {
	return len(p.active) > 0 && p.definition.spec.Overlap == overlapReplaceWaiting && !p.waits(now)
}

// replaces says whether the active runs give way to a tick that fires.
func (p *plan) replaces() bool {
	return len(p.active) > 0 && (p.unstarted || p.definition.spec.Overlap == overlapReplace)
}

// blockedBy says which run keeps the cron from firing: the one for which its newest
// tick was skipped. Without a new tick it is as it was.
func (p *plan) blockedBy(decisions []decision) cronstore.Blocked {
	if len(decisions) == 0 && len(p.called) == 0 {
		return p.cron.Blocked
	}
	first := len(decisions) // of the newest ticks that were skipped
	for first > 0 && decisions[first-1].verdict == cronstore.SkippedOverlap {
		first--
	}
	switch {
	case p.earlier == nil || first == len(decisions):
		return cronstore.Blocked{}
	case p.cron.Blocked.By != 0:
		return cronstore.Blocked{By: p.earlier.ID, Since: p.cron.Blocked.Since}
	default:
		return cronstore.Blocked{By: p.earlier.ID, Since: decisions[first].at}
	}
}

// replace cancels the runs whose place a newer one has taken.
func (l *ledger) replace(ctx context.Context, tx pgx.Tx, plans []*plan, fired []cronstore.Tick) error {
	newer := map[string]cronstore.Tick{}
	for _, row := range fired {
		if row.Verdict.Fires() {
			newer[row.Cron] = row
		}
	}
	for _, p := range plans {
		row, ok := newer[p.cron.Name]
		if !ok || !p.replaces() {
			continue
		}
		for _, id := range p.active {
			if err := l.options.Inserter.Cancel(ctx, tx, id); err != nil {
				return err
			}
		}
		reason := fmt.Sprintf("Its run was cancelled: job %d of the tick %s took its place.", row.JobID, row.Tick.UTC().Format(time.RFC3339))
		if err := cronstore.MarkReplaced(ctx, tx, p.active, reason); err != nil {
			return err
		}
	}
	return nil
}
