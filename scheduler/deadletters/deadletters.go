package deadletters

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/batchsize"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/failpoint"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/progress"
	"github.com/forge-scheduler/forge/leaderstore"
)

const (
	// batch is the most jobs that one transaction changes.
	batch = 500
	// pause is the longest between two looks. It is longer than it takes until one
	// rides along with another's (Ride): a letter is recorded, and a second round
	// given, that late at most, and mostly within a second.
	pause = 1500 * time.Millisecond
	// batchTarget is how long such a transaction should take; each may change fewer
	// where they take longer.
	batchTarget = 500 * time.Millisecond
	// stepTimeout bounds a look and a transaction, so that a dead connection is
	// noticed.
	stepTimeout = 10 * time.Second
	// retryDelay is the pause after a step that failed.
	retryDelay = 250 * time.Millisecond
	// shownIDs bounds the ids in one entry of the diary.
	shownIDs = 20
)

// Options is what a Keeper needs; all are required.
type Options struct {
	Pool    *pgxpool.Pool
	Metrics *metrics.Metrics
	Logger  *slog.Logger
}

// Keeper looks after dead letters while its node leads the scheduler.
type Keeper struct {
	options Options
	logger  *slog.Logger
	seen    chan outlook // of a look that rode along
	leads   atomic.Bool
}

// New returns a Keeper.
func New(options Options) *Keeper {
	return &Keeper{
		options: options, logger: options.Logger.With("part", "deadletters"),
		seen: make(chan outlook, 1),
	}
}

// Lead records dead letters and gives second rounds until ctx ends, and then
// returns nil, or until the database says that the term is over:
// leaderstore.ErrDeposed. Other failures are logged once and the work tried again.
func (k *Keeper) Lead(ctx context.Context, fence leaderstore.Fence) error {
	ctx, end := progress.Begin(ctx, "dead letters")
	defer end()
	duty := &duty{Keeper: k, fence: fence, size: batchsize.New(batch, batchTarget)}
	k.leads.Store(true)
	defer k.leads.Store(false)
	var seen *outlook
	for failing := false; ; {
		progress.Report(ctx)
		wait, err := duty.step(ctx, seen)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, leaderstore.ErrDeposed):
			return err
		case err != nil && !failing:
			k.logger.WarnContext(ctx, "dead letters failed, retrying", "error", err)
		case err == nil && failing:
			k.logger.InfoContext(ctx, "dead letters are back")
		}
		if failing = err != nil; failing {
			wait = retryDelay
		}
		if seen, err = k.rest(ctx, wait); err != nil {
			return nil
		}
	}
}

// Ride adds the look for dead letters to a batch that is sent anyway.
func (k *Keeper) Ride(batch *pgx.Batch) {
	if !k.leads.Load() {
		return
	}
	batch.Queue(lookSQL).QueryRow(func(row pgx.Row) error {
		seen, err := scanOutlook(row)
		if err != nil {
			return err
		}
		select {
		case k.seen <- seen:
		default: // the last one was not taken yet: work is under way
		}
		return nil
	})
}

// rest waits for what a look that rode along has seen; none when the time is over.
func (k *Keeper) rest(ctx context.Context, wait time.Duration) (*outlook, error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	progress.Park(ctx)
	defer progress.Report(ctx)
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-timer.C:
		return nil, nil
	case seen := <-k.seen:
		return &seen, nil
	}
}

// duty is the work of one term. Only one goroutine uses it.
type duty struct {
	*Keeper

	fence  leaderstore.Fence
	size   *batchsize.Size
	rounds rounds
	// hash is of the configuration that rounds are from.
	hash string
}

// step does what there is to do by an outlook, or by a look of its own, and returns
// how long until the next.
func (d *duty) step(ctx context.Context, given *outlook) (time.Duration, error) {
	seen, err := d.prepare(ctx, given)
	if err != nil {
		return 0, err
	}
	more := false
	for _, work := range []struct {
		wanted bool
		do     func(ctx context.Context, most int) (int, error)
	}{{seen.unrecorded, d.record}, {seen.isDue(), d.give}} {
		if !work.wanted {
			continue
		}
		most := d.size.Next()
		found, err := d.size.Do(ctx, stepTimeout, work.do)
		if err != nil {
			return 0, err
		}
		more = more || found >= most
	}
	switch {
	case more:
		return 0, nil
	case seen.next.After(seen.now):
		return min(pause, seen.next.Sub(seen.now)), nil
	default:
		return pause, nil
	}
}

// prepare looks what there is to do, and reads what that takes.
func (d *duty) prepare(ctx context.Context, given *outlook) (outlook, error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	seen, err := d.look(ctx, given)
	if err == nil && (seen.unrecorded || seen.isDue()) {
		err = d.refresh(ctx)
	}
	return seen, err
}

func (d *duty) look(ctx context.Context, given *outlook) (outlook, error) {
	if given != nil {
		return *given, nil
	}
	return scanOutlook(d.options.Pool.QueryRow(ctx, lookSQL))
}

// refresh reads the configuration in force, if it is another.
func (d *duty) refresh(ctx context.Context) error {
	inForce, err := cronstore.ConfigInForceUnless(ctx, d.options.Pool, d.hash)
	if err != nil || inForce.Hash == d.hash {
		return err
	}
	if d.rounds, err = config.SecondRounds(inForce.Body); err != nil {
		return err
	}
	d.hash = inForce.Hash
	return nil
}

// record takes one batch of new dead letters in.
func (d *duty) record(ctx context.Context, most int) (found int, err error) {
	var letters []letter
	err = d.fence.Do(ctx, d.options.Pool, func(tx pgx.Tx, _ time.Time) error {
		if letters, err = unrecorded(ctx, tx, most); err != nil || len(letters) == 0 {
			return err
		}
		marks := make([]jobstore.DeadMark, len(letters))
		for i, l := range letters {
			marks[i] = d.rounds.mark(l)
		}
		return record(ctx, tx, letters, marks)
	})
	if err != nil {
		return 0, err
	}
	for _, l := range letters {
		d.options.Metrics.JobDeadLetters.WithLabelValues(l.kind).Inc()
	}
	return len(letters), nil
}

// give gives one batch of second rounds.
func (d *duty) give(ctx context.Context, most int) (found int, err error) {
	var granted []grant
	err = d.fence.Do(ctx, d.options.Pool, func(tx pgx.Tx, now time.Time) error {
		candidates, err := due(ctx, tx, now, most)
		if err != nil {
			return err
		}
		found = len(candidates)
		var forgone []int64
		granted, forgone = d.rounds.decide(candidates, d.fence, now)
		if err := forgo(ctx, tx, forgone); err != nil || len(granted) == 0 {
			return err
		}
		if err := give(ctx, tx, now, granted); err != nil {
			return err
		}
		if err := notifyQueues(ctx, tx, queuesOf(granted)); err != nil {
			return err
		}
		if err := d.tell(ctx, tx, granted); err != nil {
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
		d.options.Metrics.JobSecondRounds.WithLabelValues(g.kind).Inc()
	}
	if len(granted) > 0 {
		d.logger.InfoContext(ctx, "second rounds given", "term", d.fence.Term, "jobs", len(granted))
	}
	return found, nil
}

// tell writes the diary.
func (d *duty) tell(ctx context.Context, tx pgx.Tx, granted []grant) error {
	kinds, ids := map[string]int{}, []int64{}
	for _, g := range granted {
		kinds[g.kind]++
		if len(ids) < shownIDs {
			ids = append(ids, g.id)
		}
	}
	return eventstore.Append(ctx, tx, eventstore.Event{
		Type: eventstore.SecondRoundsGiven, NodeID: d.fence.NodeID, Role: d.fence.Role, Term: d.fence.Term,
	}, map[string]any{"jobs": len(granted), "kinds": kinds, "ids": ids})
}
