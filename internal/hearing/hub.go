package hearing

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

	"github.com/forge-scheduler/forge/internal/progress"
)

const (
	reconnectDelay = 200 * time.Millisecond
	// answerTimeout bounds everything that the server has to answer.
	answerTimeout = 5 * time.Second
	// pingInterval is how soon a connection that died in silence is found.
	pingInterval = 5 * time.Second
)

// Hub hears notifications on one connection. It is safe for concurrent use.
type Hub struct {
	pool   *pgxpool.Pool
	logger *slog.Logger
	// ping and answer are pingInterval and answerTimeout but in tests.
	ping, answer time.Duration

	mu          sync.Mutex
	subscribers []*subscriber
	interrupt   context.CancelFunc // of the wait for notifications; nil: it has not begun
	stop        context.CancelFunc // of what runs for the subscribers
	stopped     chan struct{}
}

type subscriber struct {
	channels []string
	heard    func(*pgconn.Notification)
	// greeted: it was told that it hears from now on.
	greeted bool
}

// New returns a Hub whose connection comes from the pool and does not go back.
func New(pool *pgxpool.Pool, logger *slog.Logger) *Hub {
	return &Hub{pool: pool, logger: logger, ping: pingInterval, answer: answerTimeout}
}

// Subscribe has heard called for each notification of the channels, and with nil
// when some may have passed unheard: soon after the call, and after each break of
// the connection. The calls come one after the other and must not block. Once stop
// has returned there are no more.
func (h *Hub) Subscribe(channels []string, heard func(*pgconn.Notification)) (stop func()) {
	s := &subscriber{channels: channels, heard: heard}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.subscribers = append(h.subscribers, s)
	if len(h.subscribers) == 1 {
		h.begin()
	}
	h.poke()
	return func() { h.unsubscribe(s) }
}

// begin takes no context: what runs for one subscriber runs on for the next.
//
//nolint:contextcheck,nolintlint // contextcheck heeds this itself, unseen by nolintlint
func (h *Hub) begin() {
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

// unsubscribe waits for what ran for the last one.
func (h *Hub) unsubscribe(s *subscriber) {
	h.mu.Lock()
	h.subscribers = slices.DeleteFunc(h.subscribers, func(other *subscriber) bool { return other == s })
	var stopped chan struct{}
	if len(h.subscribers) == 0 {
		h.stop()
		stopped = h.stopped
	}
	h.poke()
	h.mu.Unlock()
	if stopped != nil {
		<-stopped
	}
}

// poke has the connection listen to what is wanted now.
func (h *Hub) poke() {
	if h.interrupt != nil {
		h.interrupt()
	}
}

// run keeps a connection until ctx ends.
func (h *Hub) run(ctx context.Context) {
	for lost := false; ctx.Err() == nil; {
		connected, err := h.hear(ctx)
		if ctx.Err() != nil {
			return
		}
		if !lost || connected {
			h.logger.WarnContext(ctx, "connection for notifications lost", "error", err)
		}
		lost = true
		progress.Sleep(ctx, reconnectDelay)
	}
}

// hear returns when its connection ends, and whether there was one.
func (h *Hub) hear(ctx context.Context) (connected bool, err error) {
	conn, err := h.connect(ctx)
	if err != nil {
		return false, err
	}
	defer closeNow(ctx, conn)
	h.forget()
	var listening []string
	for ctx.Err() == nil {
		waiting, done := h.waiting(ctx)
		listening, err = h.settle(ctx, conn, listening)
		if err == nil {
			err = h.await(ctx, waiting, conn)
		}
		done()
		if err != nil {
			return true, err
		}
	}
	return true, ctx.Err()
}

func (h *Hub) connect(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, h.answer)
	defer cancel()
	lent, err := h.pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect for notifications: %w", err)
	}
	return lent.Hijack(), nil
}

func closeNow(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = conn.Close(ctx) // it may be dead
}

// waiting returns a context that ends with ctx, at a poke, or when it is time to
// find out whether the connection lives.
func (h *Hub) waiting(ctx context.Context) (context.Context, context.CancelFunc) {
	waiting, cancel := context.WithTimeout(ctx, h.ping)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.interrupt = cancel
	return waiting, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.interrupt = nil
		cancel()
	}
}

// settle listens to what is wanted, tells those that hear for the first time on this
// connection, and returns what it listens to.
func (h *Hub) settle(ctx context.Context, conn *pgx.Conn, listening []string) ([]string, error) {
	wanted, ungreeted := h.wanted()
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
		ctx, cancel := context.WithTimeout(ctx, h.answer)
		defer cancel()
		if _, err := conn.Exec(ctx, strings.Join(sql, "; ")); err != nil {
			return listening, fmt.Errorf("listen: %w", err)
		}
	}
	h.greet(ungreeted)
	return wanted, nil
}

func (h *Hub) wanted() (channels []string, ungreeted []*subscriber) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.subscribers {
		channels = append(channels, s.channels...)
		if !s.greeted {
			ungreeted = append(ungreeted, s)
		}
	}
	slices.Sort(channels)
	return slices.Compact(channels), ungreeted
}

func (h *Hub) greet(subscribers []*subscriber) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range subscribers {
		if s.greeted = slices.Contains(h.subscribers, s); s.greeted {
			s.heard(nil)
		}
	}
}

// forget makes everybody a newcomer.
func (h *Hub) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.subscribers {
		s.greeted = false
	}
}

// await hands on one notification. After a poke it returns without; after a long
// silence too, if the connection still answers.
func (h *Hub) await(ctx, waiting context.Context, conn *pgx.Conn) error {
	note, err := conn.WaitForNotification(waiting)
	switch {
	case err == nil:
		h.tell(note)
		return nil
	case ctx.Err() != nil || waiting.Err() == nil || conn.IsClosed():
		return err
	case !errors.Is(waiting.Err(), context.DeadlineExceeded):
		return nil
	}
	pinging, cancel := context.WithTimeout(ctx, h.answer)
	defer cancel()
	return conn.Ping(pinging)
}

func (h *Hub) tell(note *pgconn.Notification) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.subscribers {
		if s.greeted && slices.Contains(s.channels, note.Channel) {
			s.heard(note)
		}
	}
}
