package crons

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

// overlapInputs are the queued ticks and the runs that the overlap policies depend on.
type overlapInputs struct {
	queried map[overlapQuery]bool
	queues  map[string]cronstore.Queue
	runs    map[string]runs
}

// overlapQuery is a query for the queue of a cron, or for its runs.
type overlapQuery struct {
	cron  string
	queue bool
	floor int64 // for runs only
}

// runs summarizes the runs of a cron from its floor on.
type runs struct {
	newest, oldest int64 // the newest of all, and the oldest active one
	active         run   // the newest active one; ID 0 if there is none
	all            []int64
	more           bool // older runs than all may be active
}

func newOverlapInputs() *overlapInputs {
	return &overlapInputs{queried: map[overlapQuery]bool{}, queues: map[string]cronstore.Queue{}, runs: map[string]runs{}}
}

// queue adds queries to a batch, except those that have already run.
func (s *overlapInputs) queue(batch *pgx.Batch, queries []overlapQuery) {
	var (
		queues, names []string
		floors        []int64
	)
	for _, q := range queries {
		switch {
		case s.queried[q]:
		case q.queue:
			queues = append(queues, q.cron)
		default:
			names, floors = append(names, q.cron), append(floors, q.floor)
		}
		s.queried[q] = true
	}
	if len(queues) > 0 {
		cronstore.QueueWaiting(batch, queues, queueBatch, s.queues)
	}
	if len(names) > 0 {
		jobstore.BatchCronRuns(batch, names, floors, func(r jobstore.CronRuns) {
			s.runs[r.Cron] = runs{r.Newest, r.Oldest, run(r.Active), r.All, r.More}
		})
	}
}

// expectedQueries returns the queries that the policies will need, as far as the
// definitions are cached.
func (l *ledger) expectedQueries(names []string) []overlapQuery {
	var queries []overlapQuery
	for _, name := range names {
		if timeline, ok := l.timelines[name]; ok && timeline.Readable() {
			queries = append(queries, l.overlapQueries(name, timeline.Spec().Overlap)...)
		} else {
			queries = append(queries, overlapQuery{cron: name}) // most crons need it
		}
	}
	return queries
}

// overlapQueries returns the queries that the policies of a definition need. A cron may
// have queued ticks because of its policy, or because of an earlier policy.
func (l *ledger) overlapQueries(name, overlap string) []overlapQuery {
	var queries []overlapQuery
	if overlap == overlapQueue || overlap == overlapQueueAll || l.queued[name] {
		queries = append(queries, overlapQuery{cron: name, queue: true})
	}
	if overlap != overlapAllow {
		queries = append(queries, overlapQuery{cron: name, floor: l.floors[name]})
	}
	return queries
}

// readOverlapInputs sets the inputs of the overlap policies. It runs the queries that
// were not expected.
func (l *ledger) readOverlapInputs(ctx context.Context, tx pgx.Tx, updates []*cronUpdate, inputs *overlapInputs) error {
	var (
		batch   pgx.Batch
		queries []overlapQuery
	)
	for _, u := range updates {
		queries = append(queries, l.overlapQueries(u.cron.Name, u.overlap())...)
	}
	inputs.queue(&batch, queries)
	if batch.Len() > 0 {
		if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
			return fmt.Errorf("read queues and active runs: %w", err)
		}
	}
	for _, u := range updates {
		u.queue = inputs.queues[u.cron.Name]
		if len(u.due)+len(u.queue.Oldest) > 0 && u.overlap() != overlapAllow {
			u.setActiveRuns(inputs.runs[u.cron.Name])
			l.floors[u.cron.Name] = u.floor
		}
	}
	return nil
}

// lockUnstarted locks waiting runs that may be replaced, so that no node claims them
// before the transaction ends. It sets unstarted on the updates all of whose active runs
// are locked. It ignores updates that are decided again when their newest tick is due.
func lockUnstarted(ctx context.Context, tx pgx.Tx, updates []*cronUpdate, now time.Time) error {
	var ids []int64
	for _, u := range updates {
		if u.mayReplaceWaiting(now) {
			ids = append(ids, u.active...)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	locked, err := jobstore.New(tx).LockUnstarted(ctx, ids)
	if err != nil {
		return err
	}
	isLocked := make(map[int64]bool, len(locked))
	for _, id := range locked {
		isLocked[id] = true
	}
	for _, u := range updates {
		if u.mayReplaceWaiting(now) {
			u.unstarted = !slices.ContainsFunc(u.active, func(id int64) bool { return !isLocked[id] })
		}
	}
	return nil
}

func (u *cronUpdate) mayReplaceWaiting(now time.Time) bool {
	return len(u.active) > 0 && !u.moreActive && u.overlap() == overlapReplaceWaiting && !u.dependsOnRun(now)
}

// replaces reports whether a tick that fires replaces the active runs.
func (u *cronUpdate) replaces() bool {
	return len(u.active) > 0 && (u.unstarted || u.overlap() == overlapReplace)
}

// blockedBy returns the run that blocks the cron: the run that its newest tick was
// skipped for. Without a new tick, the result does not change.
func (u *cronUpdate) blockedBy(decisions []cronstore.Tick) cronstore.Blocked {
	if len(decisions) == 0 && len(u.dequeued) == 0 {
		return u.cron.Blocked
	}
	first := len(decisions) // index of the first tick in the final sequence of skipped ones
	for first > 0 && decisions[first-1].Verdict == cronstore.SkippedOverlap {
		first--
	}
	switch {
	case u.earlier == nil || first == len(decisions):
		return cronstore.Blocked{}
	case u.cron.Blocked.By != 0:
		return cronstore.Blocked{By: u.earlier.ID, Since: u.cron.Blocked.Since}
	default:
		return cronstore.Blocked{By: u.earlier.ID, Since: decisions[first].Tick}
	}
}

// replace cancels the runs that a newer run replaces.
func (l *ledger) replace(ctx context.Context, tx pgx.Tx, updates []*cronUpdate, fired []cronstore.Tick) error {
	newer := map[string]cronstore.Tick{}
	for _, row := range fired {
		if row.Verdict.Fires() {
			newer[row.Cron] = row
		}
	}
	for _, u := range updates {
		row, ok := newer[u.cron.Name]
		if !ok || !u.replaces() {
			continue
		}
		for _, id := range u.active {
			if err := l.options.Inserter.Cancel(ctx, tx, id); err != nil {
				return err
			}
		}
		reason := fmt.Sprintf("Its run was cancelled: job %d of tick %s replaced it.", row.JobID, row.Tick.UTC().Format(time.RFC3339))
		if err := cronstore.New(tx).MarkReplaced(ctx, u.active, reason); err != nil {
			return err
		}
	}
	return nil
}
