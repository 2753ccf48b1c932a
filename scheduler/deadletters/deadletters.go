package deadletters

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/failpoint"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/internal/watchdog"
	"github.com/forge-scheduler/forge/leaderstore"
)

const (
	// batch is the maximum number of jobs that one transaction changes.
	batch = 500
	// checkInterval is the maximum time between two checks. It exceeds the interval of the
	// checks that piggyback on the node monitor's. A dead letter is recorded, and a
	// second round is given, after at limit this time, and usually within a second.
	checkInterval = 1500 * time.Millisecond
	// batchTarget is the target duration of a transaction. Slower transactions get fewer
	// jobs.
	batchTarget = 500 * time.Millisecond
	// stepTimeout is the time limit of a check and of a transaction, so that a dead
	// connection is noticed.
	stepTimeout = 10 * time.Second
	// retryDelay is the pause after a failed step.
	retryDelay = 250 * time.Millisecond
	// maxEventIDs is the maximum number of ids in one entry of the event log.
	maxEventIDs = 20
)

// Options are the dependencies of a Processor. All are required.
type Options struct {
	Pool    *pgxpool.Pool
	Metrics *metrics.Metrics
	Logger  *slog.Logger
}

// Processor records dead letters and gives second rounds while this node leads the
// scheduler.
type Processor struct {
	options Options
	logger  *slog.Logger
	found   chan jobstore.PendingDead // results of piggybacked checks
	leads   atomic.Bool
}

// New returns a Processor.
func New(options Options) *Processor {
	return &Processor{
		options: options, logger: options.Logger.With("part", "deadletters"),
		found: make(chan jobstore.PendingDead, 1),
	}
}

// Lead processes dead letters until ctx ends or the term is over. It returns nil if ctx
// ended, and leaderstore.ErrDeposed if the database reports that the term is over. It
// retries after other failures, and logs only the first of consecutive ones.
func (p *Processor) Lead(ctx context.Context, fence leaderstore.Fence) error {
	ctx, end := watchdog.Begin(ctx, "dead letters")
	defer end()
	processor := &termProcessor{Processor: p, fence: fence, size: postgres.NewBatchSize(batch, batchTarget)}
	p.leads.Store(true)
	defer p.leads.Store(false)
	var pending *jobstore.PendingDead
	for failing := false; ; {
		watchdog.Report(ctx)
		wait, err := processor.step(ctx, pending)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, leaderstore.ErrDeposed):
			return err
		case err != nil && !failing:
			p.logger.WarnContext(ctx, "dead-letter processing failed, retrying", "error", err)
		case err == nil && failing:
			p.logger.InfoContext(ctx, "dead-letter processing works again")
		}
		if failing = err != nil; failing {
			wait = retryDelay
		}
		if pending, err = p.awaitFound(ctx, wait); err != nil {
			return nil
		}
	}
}

// Piggyback adds the check for dead letters to a batch. It does nothing unless Lead runs.
func (p *Processor) Piggyback(batch *pgx.Batch) {
	if !p.leads.Load() {
		return
	}
	jobstore.BatchPendingDead(batch, func(pending jobstore.PendingDead) {
		select {
		case p.found <- pending:
		default: // the previous result was not read yet
		}
	})
}

// awaitFound waits for the result of a piggybacked check. It returns nil after wait.
func (p *Processor) awaitFound(ctx context.Context, wait time.Duration) (*jobstore.PendingDead, error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	watchdog.Pause(ctx)
	defer watchdog.Report(ctx)
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-timer.C:
		return nil, nil
	case pending := <-p.found:
		return &pending, nil
	}
}

// termProcessor processes dead letters during one term. Only one goroutine uses it.
type termProcessor struct {
	*Processor

	fence  leaderstore.Fence
	size   *postgres.BatchSize
	rounds rounds
	// hash is the hash of the configuration that rounds comes from.
	hash string
}

// step processes the given work, or runs a check of its own if given is nil. It returns
// the time until the next step.
func (t *termProcessor) step(ctx context.Context, given *jobstore.PendingDead) (time.Duration, error) {
	pending, err := t.findWork(ctx, given)
	if err != nil {
		return 0, err
	}
	more := false
	for _, work := range []struct {
		wanted bool
		do     func(ctx context.Context, limit int) (int, error)
	}{{pending.Unrecorded, t.record}, {pending.RoundIsDue(), t.grantRounds}} {
		if !work.wanted {
			continue
		}
		limit := t.size.Next()
		found, err := t.size.Do(ctx, stepTimeout, work.do)
		if err != nil {
			return 0, err
		}
		more = more || found >= limit
	}
	switch {
	case more:
		return 0, nil
	case pending.Next.After(pending.Now):
		return min(checkInterval, pending.Next.Sub(pending.Now)), nil
	default:
		return checkInterval, nil
	}
}

// findWork checks for work, and reads the configuration if there is any.
func (t *termProcessor) findWork(ctx context.Context, given *jobstore.PendingDead) (jobstore.PendingDead, error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	pending, err := t.check(ctx, given)
	if err == nil && (pending.Unrecorded || pending.RoundIsDue()) {
		err = t.refresh(ctx)
	}
	return pending, err
}

func (t *termProcessor) check(ctx context.Context, given *jobstore.PendingDead) (jobstore.PendingDead, error) {
	if given != nil {
		return *given, nil
	}
	return jobstore.New(t.options.Pool).PendingDead(ctx)
}

// refresh reads the configuration in force if it has changed.
func (t *termProcessor) refresh(ctx context.Context) error {
	inForce, err := cronstore.New(t.options.Pool).SettingsUnless(ctx, t.hash)
	if err != nil || inForce.Hash == t.hash {
		return err
	}
	if t.rounds, err = config.SecondRounds(inForce.Body); err != nil {
		return err
	}
	t.hash = inForce.Hash
	return nil
}

// record records one batch of new dead letters.
func (t *termProcessor) record(ctx context.Context, limit int) (found int, err error) {
	var deadLetters []jobstore.NewDead
	err = t.fence.Do(ctx, t.options.Pool, func(tx pgx.Tx, _ time.Time) error {
		if deadLetters, err = jobstore.New(tx).LockNewDead(ctx, limit); err != nil || len(deadLetters) == 0 {
			return err
		}
		marks := make(map[int64]jobstore.DeadMark, len(deadLetters))
		for _, l := range deadLetters {
			marks[l.ID] = t.rounds.mark(l)
		}
		return jobstore.New(tx).MarkDead(ctx, marks)
	})
	if err != nil {
		return 0, err
	}
	for _, l := range deadLetters {
		t.options.Metrics.JobDeadLetters.WithLabelValues(l.Kind).Inc()
	}
	return len(deadLetters), nil
}

// grantRounds gives one batch of second rounds.
func (t *termProcessor) grantRounds(ctx context.Context, limit int) (found int, err error) {
	var granted []jobstore.GrantedRound
	err = t.fence.Do(ctx, t.options.Pool, func(tx pgx.Tx, now time.Time) error {
		store := jobstore.New(tx)
		candidates, err := store.LockDueRounds(ctx, now, limit)
		if err != nil {
			return err
		}
		found = len(candidates)
		var forgone []int64
		granted, forgone = t.rounds.decide(candidates, t.fence, now)
		if err := store.ForgoRounds(ctx, forgone); err != nil || len(granted) == 0 {
			return err
		}
		if err := store.GrantRounds(ctx, now, granted); err != nil {
			return err
		}
		if err := t.appendEvent(ctx, tx, granted); err != nil {
			return err
		}
		failpoint.Hit("deadletters/before-commit")
		return nil
	})
	if err != nil {
		return 0, err
	}
	failpoint.Hit("deadletters/after-commit")
	for _, g := range granted {
		t.options.Metrics.JobSecondRounds.WithLabelValues(g.Kind).Inc()
	}
	if len(granted) > 0 {
		t.logger.InfoContext(ctx, "second rounds given", "term", t.fence.Term, "jobs", len(granted))
	}
	return found, nil
}

// appendEvent adds an entry to the event log.
func (t *termProcessor) appendEvent(ctx context.Context, tx pgx.Tx, granted []jobstore.GrantedRound) error {
	kinds, ids := map[string]int{}, []int64{}
	for _, g := range granted {
		kinds[g.Kind]++
		if len(ids) < maxEventIDs {
			ids = append(ids, g.ID)
		}
	}
	return eventstore.New(tx).Append(ctx, eventstore.Event{
		Type: eventstore.SecondRoundsGiven, NodeID: t.fence.NodeID, Role: t.fence.Role, Term: t.fence.Term,
	}, map[string]any{"jobs": len(granted), "kinds": kinds, "ids": ids})
}
