package crons

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/progress"
	"github.com/forge-scheduler/forge/leaderstore"
)

const (
	// batch is the most crons of one transaction.
	batch = 2000
	// probeEvery is how often an idle leader asks for the database's time.
	probeEvery = 10 * time.Second

	minBackoff = 50 * time.Millisecond
	maxBackoff = 2 * time.Second
)

// desk is what the loop of a term needs of the database.
type desk interface {
	// Now reads the database's clock.
	Now(ctx context.Context) (time.Time, error)
	// Upcoming returns every cron and when it is due next.
	Upcoming(ctx context.Context) ([]cronstore.Upcoming, error)
	// Fire records what is due of these crons.
	Fire(ctx context.Context, names []string) (fired, error)
}

// fired is what a transaction came to.
type fired struct {
	// Now is the database's time that decided what was due.
	Now time.Time
	// Next is when to look at each cron again; one that is missing does not
	// exist any more.
	Next map[string]time.Time
}

// term is the loop of one lead.
type term struct {
	desk    desk
	meter   *meter
	logger  *slog.Logger
	clock   clock
	agenda  *agenda
	probed  time.Time
	backoff time.Duration
}

func newTerm(d desk, m *meter, logger *slog.Logger) *term {
	return &term{desk: d, meter: m, logger: logger, agenda: newAgenda(nil)}
}

// run loads the crons, and again at each change, and fires what is due, until
// ctx ends or the term is over.
func (t *term) run(ctx context.Context, changes <-chan struct{}) error {
	for reload := true; ; {
		progress.Report(ctx)
		err := t.step(ctx, reload)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, leaderstore.ErrDeposed):
			return err
		case err != nil:
			t.logger.WarnContext(ctx, "firing crons failed and will be tried again", "error", err)
			t.backoff = min(max(2*t.backoff, minBackoff), maxBackoff)
		default:
			reload, t.backoff = false, 0
		}
		progress.Report(ctx)
		timer := time.NewTimer(min(t.pause(time.Now()), progress.Interval(ctx)))
		select {
		case <-ctx.Done():
		case <-changes:
			reload = true
		case <-timer.C:
		}
		timer.Stop()
	}
}

// step does what there is to do now.
func (t *term) step(ctx context.Context, reload bool) error {
	if time.Since(t.probed) >= probeEvery {
		if err := t.probe(ctx); err != nil {
			return err
		}
	}
	if reload {
		if err := t.load(ctx); err != nil {
			return err
		}
	}
	return t.fire(ctx)
}

func (t *term) probe(ctx context.Context) error {
	sent := time.Now()
	now, err := t.desk.Now(ctx)
	if err != nil {
		return err
	}
	t.probed = time.Now()
	t.clock.observe(sent, t.probed, now)
	return nil
}

func (t *term) load(ctx context.Context) error {
	upcoming, err := t.desk.Upcoming(ctx)
	if err != nil {
		return err
	}
	t.agenda = newAgenda(upcoming)
	t.meter.know(upcoming)
	return nil
}

// fire records the crons that are due by the estimate, one batch.
func (t *term) fire(ctx context.Context) error {
	taken := t.agenda.take(t.clock.now(time.Now()), batch)
	if len(taken) == 0 {
		return nil
	}
	names := make([]string, len(taken))
	for i, e := range taken {
		names[i] = e.name
	}
	sent := time.Now()
	done, err := t.desk.Fire(ctx, names)
	if err != nil {
		t.agenda.add(taken...)
		return err
	}
	t.clock.observe(sent, time.Now(), done.Now)
	for name, at := range done.Next {
		t.agenda.add(entry{name, at})
	}
	return nil
}

// pause returns how long to wait for the next step.
func (t *term) pause(local time.Time) time.Duration {
	idle := max(t.probed.Add(probeEvery).Sub(local), 0)
	if t.backoff > 0 {
		return t.backoff
	}
	next, ok := t.agenda.next()
	if !ok {
		return idle
	}
	return min(idle, max(next.Sub(t.clock.now(local)), 0))
}
