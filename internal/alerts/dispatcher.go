package alerts

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
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
	// claimTimeout is the time that a leader has to send a claimed notification: longer
	// than an attempt to reach a receiver takes.
	claimTimeout = 30 * time.Second
	// pollInterval is the interval of polls without a notification of the database, which
	// may get lost.
	pollInterval = time.Minute

	// The waits between attempts grow from firstWait to maxWait, which also bounds the waits that
	// receivers ask for. They are spread at random (waitAfterAttempt).
	firstWait = time.Second
	maxWait   = 5 * time.Minute
	// maxAttempts are spread over about fifty minutes, unless the receiver asks for longer waits.
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
	news, unsubscribe := c.options.Notifier.Changes(wire.Channel(c.options.Schema, wire.FailureChannel))
	defer unsubscribe()
	var sending sync.WaitGroup
	defer sending.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := &termDispatcher{
		Dispatcher: c, fence: fence, logger: logger, places: newPlaces(), results: make(chan result, maxSends),
		// A send is a part of the term beside the loop, so that the watchdog sees each that hangs.
		start: func(send func(ctx context.Context)) { sending.Go(func() { send(ctx) }) },
	}
	return r.lead(ctx, news)
}

// result is the result of one attempt.
type result struct {
	n   Notification
	err error
}

// termDispatcher is the work of one term. One loop claims notifications and saves results;
// each notification is sent in a goroutine of its own.
type termDispatcher struct {
	*Dispatcher
	fence  leaderstore.Fence
	logger *slog.Logger
	places *places
	// start runs a send in a goroutine, with the context of the term.
	start func(send func(ctx context.Context))
	// results has room for every send.
	results chan result
	// received are the results that have been read from the channel and not been saved.
	received []result
}

func (r *termDispatcher) lead(ctx context.Context, news <-chan struct{}) error {
	ctx, end := watchdog.Begin(ctx, "notifications")
	defer end()
	for ctx.Err() == nil {
		wait, err := r.run(ctx)
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, leaderstore.ErrDeposed):
			return err
		case err != nil:
			r.logger.WarnContext(ctx, "notifications not delivered", "error", err)
		}
		r.await(ctx, wait, news)
	}
	return nil
}

// await waits for news or a result, at most for wait.
func (r *termDispatcher) await(ctx context.Context, wait time.Duration, news <-chan struct{}) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	watchdog.Pause(ctx)
	defer watchdog.Report(ctx)
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-news:
	case first := <-r.results:
		r.receive(first)
	}
}

// receive releases the place of an attempt that has ended.
func (r *termDispatcher) receive(done result) {
	delete(r.places.sends, done.n.ID)
	r.received = append(r.received, done)
}

// run saves the results that have arrived, starts to send due notifications of one receiver, and
// returns the time until there may be more to do. A result may arrive before that.
func (r *termDispatcher) run(ctx context.Context) (time.Duration, error) {
	for len(r.results) > 0 {
		r.receive(<-r.results)
	}
	if len(r.received) > 0 {
		received := r.received
		r.received = nil // if they cannot be saved, the notifications are sent again after claimTimeout
		if err := r.saveResults(ctx, received); err != nil {
			return firstWait, err
		}
	}
	if len(r.places.sends) == maxSends {
		return pollInterval, nil
	}
	unavailable, most := r.places.unavailable(time.Now(), pollInterval)
	receiver, wait, found, err := New(r.options.Pool).nextDue(ctx, unavailable)
	switch {
	case err != nil:
		return firstWait, err
	case !found:
		return most, nil
	case wait > 0:
		return min(wait, most), nil
	}
	return r.sendDue(ctx, receiver)
}

// sendDue claims due notifications of a receiver and starts to send them. When ctx ends meanwhile,
// the next leader sends them again once the claim expires.
func (r *termDispatcher) sendDue(ctx context.Context, receiver string) (time.Duration, error) {
	var claimed []Notification
	err := r.fence.Do(ctx, r.options.Pool, func(tx pgx.Tx, _ time.Time) (err error) {
		claimed, err = New(tx).claim(ctx, receiver, r.places.free(receiver), r.places.ids(), claimTimeout, r.fence.NodeID, r.fence.Term)
		return err
	})
	if err != nil {
		return firstWait, err
	}
	if len(claimed) == 0 { // other transactions have locked them, or they are being sent
		r.places.skipped[receiver] = time.Now().Add(firstWait)
		return 0, nil
	}
	contacts := r.contacts(ctx, claimed)
	for _, n := range claimed {
		r.places.sends[n.ID] = receiver
		m := annotate(r.message(n), contacts)
		r.start(func(ctx context.Context) { r.results <- result{n, r.send(ctx, n.Target, m)} })
	}
	return 0, nil
}

// send sends one message, at most until its claim expires.
func (r *termDispatcher) send(ctx context.Context, target string, m Message) error {
	ctx, end := watchdog.Begin(ctx, "notification")
	defer end()
	watchdog.Extend(ctx, claimTimeout)
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	return r.options.Sender.Send(ctx, target, m)
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
func (r *termDispatcher) saveResults(ctx context.Context, results []result) error {
	return r.fence.Do(ctx, r.options.Pool, func(tx pgx.Tx, _ time.Time) error {
		for _, done := range results {
			if err := r.saveResult(ctx, tx, done); err != nil {
				return err
			}
		}
		return nil
	})
}

func (r *termDispatcher) saveResult(ctx context.Context, tx pgx.Tx, done result) error {
	n := done.n
	if errors.Is(done.err, ErrUnwanted) {
		return New(tx).drop(ctx, n)
	}
	state, text, wait := stateAfterAttempt(n.Attempts, done.err, rand.Float64())
	own, err := New(tx).settle(ctx, n, state, text, wait)
	if err != nil || !own {
		return err
	}
	r.recordResult(ctx, n, state, text)
	return r.appendEvent(ctx, tx, n, state, text)
}

// stateAfterAttempt returns the state, error text and wait after the n-th attempt. spread is a
// random number from 0 to 1.
func stateAfterAttempt(attempts int, failure error, spread float64) (state NotificationState, text string, wait time.Duration) {
	if failure == nil {
		return NotificationDelivered, "", 0
	}
	text = failure.Error()
	text = sanitize(text[:min(len(text), maxError)])
	if errors.Is(failure, ErrRefused) || attempts >= maxAttempts {
		return NotificationFailed, text, 0
	}
	return NotificationPending, text, waitAfterAttempt(attempts, failure, spread)
}

// waitAfterAttempt returns the longer of two waits: the usual one, from half of it to one and a half,
// and the one that the receiver asks for, up to twice as long. Without the spread, notifications
// that a receiver with a rate limit has rejected together would be rejected together each time.
func waitAfterAttempt(attempts int, failure error, spread float64) time.Duration {
	usual := min(maxWait, firstWait<<min(attempts-1, 20))
	var asked time.Duration
	if retry, ok := errors.AsType[*RetryAfterError](failure); ok {
		asked = min(maxWait, retry.After)
	}
	return max(usual/2+scale(usual, spread), asked+scale(asked, spread))
}

func scale(d time.Duration, by float64) time.Duration { return time.Duration(float64(d) * by) }

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
