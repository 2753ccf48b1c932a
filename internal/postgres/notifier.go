package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/watchdog"
)

const (
	reconnectDelay = 200 * time.Millisecond
	// answerTimeout bounds every request to the server.
	answerTimeout = 5 * time.Second
	// pingInterval is the time after which a silent connection is checked.
	pingInterval = 5 * time.Second
)

// Notifier sends notifications, and receives them on one connection or, where LISTEN does
// not work, by polling. It is safe for concurrent use.
type Notifier struct {
	pool   *pgxpool.Pool
	logger *slog.Logger
	// receive delivers notifications until the connection breaks or ctx ends. It reports
	// whether it had connected.
	receive      func(ctx context.Context) (connected bool, err error)
	statements   statements
	pollInterval time.Duration // 0 if LISTEN works
	// pingInterval and answerTimeout are the constants of the same names except in
	// tests.
	pingInterval, answerTimeout time.Duration

	mu          sync.Mutex
	subscribers []*subscriber
	cancelWait  context.CancelFunc // ends the wait for notifications; nil before it begins
	stop        context.CancelFunc // ends the goroutine that serves the subscribers
	stopped     chan struct{}
}

type subscriber struct {
	channels       []string
	onNotification func(*pgconn.Notification)
	// listening is whether the subscriber has been notified that its channels are
	// active.
	listening bool
}

// NewNotifier returns a Notifier that takes its connection from the pool and does
// not return it.
func NewNotifier(pool *pgxpool.Pool, logger *slog.Logger) *Notifier {
	n := &Notifier{
		pool: pool, logger: logger, statements: notifyStatements,
		pingInterval: pingInterval, answerTimeout: answerTimeout,
	}
	n.receive = n.listen
	return n
}

// NewPollingNotifier returns a Notifier for a database behind a pooler in transaction
// mode. It polls at the interval, but at least every maxInterval.
func NewPollingNotifier(pool *pgxpool.Pool, interval time.Duration, logger *slog.Logger) *Notifier {
	n := NewNotifier(pool, logger)
	n.receive, n.statements, n.pollInterval = n.poll, messageStatements, min(interval, maxInterval)
	return n
}

// Subscribe calls onNotification for each notification of the channels. It calls it
// with nil when notifications may have been missed: soon after Subscribe, and after
// each break of the connection. A notification without payload means that something
// may have happened; where LISTEN does not work, every channel gets one at each
// interval. The calls are sequential and must not block. There are no calls after stop
// has returned.
func (h *Notifier) Subscribe(channels []string, onNotification func(*pgconn.Notification)) (stop func()) {
	s := &subscriber{channels: channels, onNotification: onNotification}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.subscribers = append(h.subscribers, s)
	if len(h.subscribers) == 1 {
		h.start()
	}
	h.interruptWait()
	return func() { h.unsubscribe(s) }
}

// start starts the goroutine that serves all subscribers. It takes no context: the
// goroutine outlives the subscriber that started it.
//
//nolint:contextcheck,nolintlint // contextcheck heeds this itself, unseen by nolintlint
func (h *Notifier) start() {
	previous := h.stopped
	ctx, cancel := context.WithCancel(context.Background())
	h.stop, h.stopped = cancel, make(chan struct{})
	go func(stopped chan struct{}) {
		defer close(stopped)
		if previous != nil {
			<-previous
		}
		h.run(ctx)
	}(h.stopped)
}

// unsubscribe removes s. After the last subscriber it ends the goroutine and waits
// for it.
func (h *Notifier) unsubscribe(s *subscriber) {
	h.mu.Lock()
	h.subscribers = slices.DeleteFunc(h.subscribers, func(other *subscriber) bool { return other == s })
	var stopped chan struct{}
	if len(h.subscribers) == 0 {
		h.stop()
		stopped = h.stopped
	}
	h.interruptWait()
	h.mu.Unlock()
	if stopped != nil {
		<-stopped
	}
}

// interruptWait makes the connection update its channels.
func (h *Notifier) interruptWait() {
	if h.cancelWait != nil {
		h.cancelWait()
	}
}

// run keeps a connection open until ctx ends.
func (h *Notifier) run(ctx context.Context) {
	for lost := false; ctx.Err() == nil; {
		connected, err := h.receive(ctx)
		if ctx.Err() != nil {
			return
		}
		if !lost || connected {
			h.logger.WarnContext(ctx, "connection for notifications lost", "error", err)
		}
		lost = true
		watchdog.Sleep(ctx, reconnectDelay)
	}
}

// listen returns when its connection ends, and reports whether it had connected.
func (h *Notifier) listen(ctx context.Context) (connected bool, err error) {
	conn, err := h.connect(ctx)
	if err != nil {
		return false, err
	}
	defer CloseNow(conn)
	h.resetListening()
	var listening []string
	for ctx.Err() == nil {
		waiting, done := h.interruptible(ctx)
		listening, err = h.updateChannels(ctx, conn, listening)
		if err == nil {
			err = h.waitOnce(ctx, waiting, conn)
		}
		done()
		if err != nil {
			return true, err
		}
	}
	return true, ctx.Err()
}

func (h *Notifier) connect(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, h.answerTimeout)
	defer cancel()
	lent, err := h.pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect for notifications: %w", err)
	}
	return lent.Hijack(), nil
}

// interruptible returns a context that ends with ctx or on interruptWait.
func (h *Notifier) interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	waiting, cancel := context.WithCancel(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cancelWait = cancel
	return waiting, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.cancelWait = nil
		cancel()
	}
}

// updateChannels listens to the wanted channels, notifies subscribers that are new
// on this connection, and returns the channels that it listens to.
func (h *Notifier) updateChannels(ctx context.Context, conn *pgx.Conn, listening []string) ([]string, error) {
	wanted, added := h.wanted()
	var sql []string
	for _, channel := range wanted {
		if !slices.Contains(listening, channel) {
			sql = append(sql, "LISTEN "+pgx.Identifier{channel}.Sanitize())
		}
	}
	for _, channel := range listening {
		if !slices.Contains(wanted, channel) {
			sql = append(sql, "UNLISTEN "+pgx.Identifier{channel}.Sanitize())
		}
	}
	if len(sql) > 0 {
		ctx, cancel := context.WithTimeout(ctx, h.answerTimeout)
		defer cancel()
		if _, err := conn.Exec(ctx, strings.Join(sql, "; ")); err != nil {
			return listening, fmt.Errorf("listen: %w", err)
		}
	}
	h.signalListening(added)
	return wanted, nil
}

func (h *Notifier) wanted() (channels []string, added []*subscriber) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.subscribers {
		channels = append(channels, s.channels...)
		if !s.listening {
			added = append(added, s)
		}
	}
	slices.Sort(channels)
	return slices.Compact(channels), added
}

func (h *Notifier) signalListening(subscribers []*subscriber) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range subscribers {
		if s.listening = slices.Contains(h.subscribers, s); s.listening {
			s.onNotification(nil)
		}
	}
}

// resetListening marks all subscribers as new.
func (h *Notifier) resetListening() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.subscribers {
		s.listening = false
	}
}

// waitOnce delivers one notification. It returns without one when it is
// interrupted, and after a long silence if the connection still answers.
func (h *Notifier) waitOnce(ctx, waiting context.Context, conn *pgx.Conn) error {
	waiting, cancel := context.WithTimeout(waiting, h.pingInterval)
	defer cancel()
	note, err := conn.WaitForNotification(waiting)
	switch {
	case err == nil:
		h.deliver(note)
		return nil
	case ctx.Err() != nil || waiting.Err() == nil || conn.IsClosed():
		return err
	case !errors.Is(waiting.Err(), context.DeadlineExceeded):
		return nil
	}
	pinging, stop := context.WithTimeout(ctx, h.answerTimeout)
	defer stop()
	return conn.Ping(pinging)
}

func (h *Notifier) deliver(note *pgconn.Notification) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.subscribers {
		if s.listening && slices.Contains(s.channels, note.Channel) {
			s.onNotification(note)
		}
	}
}
