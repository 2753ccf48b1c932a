package outbox

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/hearing"
	"github.com/forge-scheduler/forge/internal/notify"
	"github.com/forge-scheduler/forge/internal/progress"
	"github.com/forge-scheduler/forge/leaderstore"
)

const (
	// batch is how many are sent side by side, at most.
	batch = 8
	// claimFor is how long a leader has to send what it claimed: longer than
	// the tries to reach one receiver take.
	claimFor = 30 * time.Second
	// lookEvery is how often a leader looks without being told to: a
	// notification of the database may get lost.
	lookEvery = time.Minute

	firstWait = time.Second
	maxWait   = 5 * time.Minute
	// maxAttempts are spread over some fifty minutes.
	maxAttempts = 17
	// maxError bounds what is kept of an error, in bytes.
	maxError = 1000
)

// Sender tells a target something, once. After notify.ErrRefused it is not tried
// again.
type Sender interface {
	Send(ctx context.Context, target string, m notify.Message) error
}

// Options are what a Courier works with. All but PageURL, Poll and Hub are
// required.
type Options struct {
	Pool   *pgxpool.Pool
	Sender Sender
	// Schema is where forge's tables are.
	Schema string
	// PageURL returns the address of the page about a notification.
	PageURL func(n Notification) string
	Logger  *slog.Logger
	// Poll is how often to look for news where notifications are not heard: behind a
	// pooler in transaction mode. 0: they are.
	Poll time.Duration
	// Hub hears notifications. Default: one of the Courier's own.
	Hub *hearing.Hub
}

// Courier delivers notifications while this node leads the metrics aggregator.
type Courier struct{ options Options }

// New returns a Courier that rests until it leads.
func New(options Options) *Courier {
	if options.PageURL == nil {
		options.PageURL = func(Notification) string { return "" }
	}
	if options.Hub == nil {
		options.Hub = hearing.New(options.Pool, options.Logger)
	}
	return &Courier{options}
}

// Lead delivers in the name of a term until ctx ends, which is no error, or
// until the term is over: then the error is leaderstore.ErrDeposed.
func (c *Courier) Lead(ctx context.Context, fence leaderstore.Fence) error {
	logger := c.options.Logger.With("role", fence.Role, "node", fence.NodeID, "term", fence.Term)
	ctx, end := progress.Begin(ctx, "notifications")
	defer end()
	news := make(chan struct{}, 1)
	listening, stop := context.WithCancel(ctx)
	var listener sync.WaitGroup
	listener.Go(func() { c.listen(progress.Detach(listening), news) })
	defer func() {
		stop()
		listener.Wait()
	}()
	r := &round{Courier: c, fence: fence, logger: logger}
	for ctx.Err() == nil {
		wait, err := r.run(ctx)
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, leaderstore.ErrDeposed):
			return err
		case err != nil:
			logger.WarnContext(ctx, "notifications not delivered", "error", err)
		}
		rest(ctx, wait, news)
	}
	return nil
}

// rest waits until there is news, or for as long as it may.
func rest(ctx context.Context, wait time.Duration, news <-chan struct{}) {
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	progress.Await(waiting, news)
	progress.Report(ctx)
}

// round is the work of one term.
type round struct {
	*Courier
	fence  leaderstore.Fence
	logger *slog.Logger
}

// run sends what is due and returns how long nothing will be, unless there is
// news.
func (r *round) run(ctx context.Context) (time.Duration, error) {
	wait, waiting, err := dueIn(ctx, r.options.Pool)
	switch {
	case err != nil:
		return firstWait, err
	case !waiting:
		return lookEvery, nil
	case wait > 0:
		return min(wait, lookEvery), nil
	}
	var claimed []Notification
	err = r.fence.Do(ctx, r.options.Pool, func(tx pgx.Tx, _ time.Time) (err error) {
		claimed, err = claim(ctx, tx, batch, claimFor, r.fence.NodeID, r.fence.Term)
		return err
	})
	if err != nil || len(claimed) == 0 { // none: a leader that is going has them
		return firstWait, err
	}
	return 0, r.deliver(ctx, claimed)
}

// deliver sends what was claimed, side by side. When ctx ends in the midst of it
// whoever leads next tries again, once the claim is over.
func (r *round) deliver(ctx context.Context, claimed []Notification) error {
	progress.Allow(ctx, claimFor)
	failures := make([]error, len(claimed))
	var sending sync.WaitGroup
	for i, n := range claimed {
		sending.Go(func() { failures[i] = r.options.Sender.Send(ctx, n.Target, r.message(n)) })
	}
	sending.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return r.settle(ctx, claimed, failures)
}

func (r *round) message(n Notification) notify.Message {
	m := describe(n)
	m.URL = r.options.PageURL(n)
	return m
}

// settle writes down what the tries came to, and tells the diary of those that
// were the last.
func (r *round) settle(ctx context.Context, tried []Notification, failures []error) error {
	return r.fence.Do(ctx, r.options.Pool, func(tx pgx.Tx, _ time.Time) error {
		for i, n := range tried {
			state, text, wait := outcome(n.Attempts, failures[i])
			own, err := settle(ctx, tx, n, state, text, wait)
			if err != nil {
				return err
			}
			if !own {
				continue
			}
			r.tell(ctx, n, state, text)
			if err := r.record(ctx, tx, n, state, text); err != nil {
				return err
			}
		}
		return nil
	})
}

// outcome is what follows the n-th try.
func outcome(attempts int, failure error) (state State, text string, wait time.Duration) {
	if failure == nil {
		return Delivered, "", 0
	}
	text = failure.Error()
	text = clean(text[:min(len(text), maxError)])
	if errors.Is(failure, notify.ErrRefused) || attempts >= maxAttempts {
		return Failed, text, 0
	}
	return Pending, text, min(maxWait, firstWait<<min(attempts-1, 20))
}

func (r *round) tell(ctx context.Context, n Notification, state State, text string) {
	attrs := []any{"target", n.Target, "attempt", n.Attempts, "cron", n.Cron, "tick", n.Tick.UTC()}
	if n.Alert != "" {
		attrs = []any{"target", n.Target, "attempt", n.Attempts, "alert", n.Alert}
	}
	switch state {
	case Delivered:
		r.logger.InfoContext(ctx, "receiver told", attrs...)
	case Failed:
		r.logger.ErrorContext(ctx, "receiver could not be told", append(attrs, "error", text)...)
	case Pending, Superseded:
		level := slog.LevelDebug
		if n.Attempts == 1 {
			level = slog.LevelWarn
		}
		r.logger.Log(ctx, level, "receiver not told yet", append(attrs, "error", text)...)
	}
}

func (r *round) record(ctx context.Context, tx pgx.Tx, n Notification, state State, text string) error {
	event := eventstore.Event{NodeID: r.fence.NodeID, Role: r.fence.Role, Term: r.fence.Term}
	facts := map[string]any{"target": n.Target, "attempts": n.Attempts}
	if n.Alert != "" {
		facts["alert"] = n.Alert
	} else {
		facts["cron"], facts["tick"] = n.Cron, n.Tick.UTC()
	}
	switch state {
	case Delivered:
		event.Type = eventstore.NotificationDelivered
	case Failed:
		event.Type, facts["error"] = eventstore.NotificationFailed, text
	case Pending, Superseded:
		return nil
	}
	return eventstore.Append(ctx, tx, event, facts)
}
