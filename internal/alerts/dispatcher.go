package alerts

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/internal/watchdog"
	"github.com/forge-scheduler/forge/internal/wire"
	"github.com/forge-scheduler/forge/leaderstore"
)

const (
	// batch is the most notifications sent at the same time.
	batch = 8
	// claimTimeout is the time that a leader has to send claimed notifications: longer
	// than the attempts to reach one receiver take.
	claimTimeout = 30 * time.Second
	// pollInterval is the interval of polls without a notification of the database, which
	// may get lost.
	pollInterval = time.Minute

	firstWait = time.Second
	maxWait   = 5 * time.Minute
	// maxAttempts are spread over about fifty minutes.
	maxAttempts = 17
	// maxError bounds the stored text of an error, in bytes.
	maxError = 1000
)

// Contact says who owns a cron, and where to read what to do about it.
type Contact struct{ Cron, Owner, Runbook string }

// DispatcherOptions are the settings of a Dispatcher. PageURL, Contacts and Notifier are optional,
// all others required.
type DispatcherOptions struct {
	Pool   *pgxpool.Pool
	Sender Sender
	// Schema is the schema of forge's tables.
	Schema string
	// PageURL returns the address of the page about a notification.
	PageURL func(n Notification) string
	// Contacts returns the owners and runbooks of crons that have them.
	Contacts func(ctx context.Context, crons []string) ([]Contact, error)
	Logger   *slog.Logger
	// Notifier receives the database's notifications.
	Notifier *postgres.Notifier
}

// Dispatcher delivers notifications while this node leads the metrics aggregator.
type Dispatcher struct{ options DispatcherOptions }

// NewDispatcher returns a dispatcher that does nothing until it leads.
func NewDispatcher(options DispatcherOptions) *Dispatcher {
	if options.PageURL == nil {
		options.PageURL = func(Notification) string { return "" }
	}
	return &Dispatcher{options}
}

// Lead delivers notifications under a term until ctx ends, which is no error, or until
// the term is over: then the error is leaderstore.ErrDeposed.
func (c *Dispatcher) Lead(ctx context.Context, fence leaderstore.Fence) error {
	logger := c.options.Logger.With("role", fence.Role, "node", fence.NodeID, "term", fence.Term)
	ctx, end := watchdog.Begin(ctx, "notifications")
	defer end()
	news, unsubscribe := c.options.Notifier.Changes(wire.Channel(c.options.Schema, wire.FailureChannel))
	defer unsubscribe()
	r := &termDispatcher{Dispatcher: c, fence: fence, logger: logger}
	for ctx.Err() == nil {
		wait, err := r.run(ctx)
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, leaderstore.ErrDeposed):
			return err
		case err != nil:
			logger.WarnContext(ctx, "notifications not delivered", "error", err)
		}
		awaitNews(ctx, wait, news)
	}
	return nil
}

// awaitNews waits for news, at most for wait.
func awaitNews(ctx context.Context, wait time.Duration, news <-chan struct{}) {
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	watchdog.Await(waiting, news)
	watchdog.Report(ctx)
}

// termDispatcher is the work of one term.
type termDispatcher struct {
	*Dispatcher
	fence  leaderstore.Fence
	logger *slog.Logger
}

// run sends the due notifications and returns the time until the next one is due.
func (r *termDispatcher) run(ctx context.Context) (time.Duration, error) {
	wait, waiting, err := New(r.options.Pool).dueIn(ctx)
	switch {
	case err != nil:
		return firstWait, err
	case !waiting:
		return pollInterval, nil
	case wait > 0:
		return min(wait, pollInterval), nil
	}
	var claimed []Notification
	err = r.fence.Do(ctx, r.options.Pool, func(tx pgx.Tx, _ time.Time) (err error) {
		claimed, err = New(tx).claim(ctx, batch, claimTimeout, r.fence.NodeID, r.fence.Term)
		return err
	})
	if err != nil || len(claimed) == 0 { // none: the previous leader has claimed them
		return firstWait, err
	}
	return 0, r.deliver(ctx, claimed)
}

// deliver sends the claimed notifications at the same time. When ctx ends meanwhile, the
// next leader tries again once the claim expires.
func (r *termDispatcher) deliver(ctx context.Context, claimed []Notification) error {
	watchdog.Extend(ctx, claimTimeout)
	contacts := r.contacts(ctx, claimed)
	failures := make([]error, len(claimed))
	var sending sync.WaitGroup
	for i, n := range claimed {
		sending.Go(func() { failures[i] = r.options.Sender.Send(ctx, n.Target, annotate(r.message(n), contacts)) })
	}
	sending.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return r.saveResults(ctx, claimed, failures)
}

// contacts returns the annotations of the crons that notifications are about. Without them, the
// notifications are sent nevertheless.
func (r *termDispatcher) contacts(ctx context.Context, claimed []Notification) map[string]map[string]string {
	names := cronsOf(claimed)
	if r.options.Contacts == nil || len(names) == 0 {
		return nil
	}
	contacts, err := r.options.Contacts(ctx, names)
	if err != nil {
		r.logger.WarnContext(ctx, "notifications have no owners and runbooks", "error", err)
	}
	found := make(map[string]map[string]string, len(contacts))
	for _, c := range contacts {
		about := map[string]string{}
		if c.Owner != "" {
			about[ownerAnnotation] = c.Owner
		}
		if c.Runbook != "" {
			about[runbookAnnotation] = c.Runbook
		}
		found[c.Cron] = about
	}
	return found
}

func (r *termDispatcher) message(n Notification) Message {
	m := describe(n)
	m.URL = r.options.PageURL(n)
	return m
}

// saveResults records the results of the attempts, and adds an event for each
// notification that finally failed.
func (r *termDispatcher) saveResults(ctx context.Context, tried []Notification, failures []error) error {
	return r.fence.Do(ctx, r.options.Pool, func(tx pgx.Tx, _ time.Time) error {
		for i, n := range tried {
			if errors.Is(failures[i], ErrUnwanted) {
				if err := New(tx).drop(ctx, n); err != nil {
					return err
				}
				continue
			}
			state, text, wait := stateAfterAttempt(n.Attempts, failures[i])
			own, err := New(tx).settle(ctx, n, state, text, wait)
			if err != nil {
				return err
			}
			if !own {
				continue
			}
			r.recordResult(ctx, n, state, text)
			if err := r.appendEvent(ctx, tx, n, state, text); err != nil {
				return err
			}
		}
		return nil
	})
}

// stateAfterAttempt returns the state, error text and wait after the n-th attempt.
func stateAfterAttempt(attempts int, failure error) (state NotificationState, text string, wait time.Duration) {
	if failure == nil {
		return NotificationDelivered, "", 0
	}
	text = failure.Error()
	text = sanitize(text[:min(len(text), maxError)])
	if errors.Is(failure, ErrRefused) || attempts >= maxAttempts {
		return NotificationFailed, text, 0
	}
	return NotificationPending, text, min(maxWait, firstWait<<min(attempts-1, 20))
}

func (r *termDispatcher) recordResult(ctx context.Context, n Notification, state NotificationState, text string) {
	attrs := []any{"target", n.Target, "attempt", n.Attempts, "cron", n.Cron, "tick", n.Tick.UTC()}
	if n.Alert != "" {
		attrs = []any{"target", n.Target, "attempt", n.Attempts, "alert", n.Alert}
	}
	switch state {
	case NotificationDelivered:
		r.logger.InfoContext(ctx, "receiver told", attrs...)
	case NotificationFailed:
		r.logger.ErrorContext(ctx, "receiver could not be told", append(attrs, "error", text)...)
	case NotificationPending, NotificationSuperseded:
		level := slog.LevelDebug
		if n.Attempts == 1 {
			level = slog.LevelWarn
		}
		r.logger.Log(ctx, level, "receiver not told yet", append(attrs, "error", text)...)
	}
}

func (r *termDispatcher) appendEvent(ctx context.Context, tx pgx.Tx, n Notification, state NotificationState, text string) error {
	event := eventstore.Event{NodeID: r.fence.NodeID, Role: r.fence.Role, Term: r.fence.Term}
	facts := map[string]any{"target": n.Target, "attempts": n.Attempts}
	if n.Alert != "" {
		facts["alert"] = n.Alert
	} else {
		facts["cron"], facts["tick"] = n.Cron, n.Tick.UTC()
	}
	switch state {
	case NotificationDelivered:
		event.Type = eventstore.NotificationDelivered
	case NotificationFailed:
		event.Type, facts["error"] = eventstore.NotificationFailed, text
	case NotificationPending, NotificationSuperseded:
		return nil
	}
	return eventstore.New(tx).Append(ctx, event, facts)
}
