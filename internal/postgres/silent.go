package postgres

import (
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// pingAfter is how long a connection is idle before it is checked, as by default in pgxpool.
	pingAfter = time.Second
	// pingedAt is the key of the time of a check in the data of a connection.
	pingedAt = "forge.pinged_at"
)

// newResetPool returns a pool that drops all idle connections when the check of one got no answer.
// They lead to the same server, and the next callers would wait for each of them in turn.
func newResetPool(ctx context.Context, config *pgxpool.Config) (*pgxpool.Pool, error) {
	var pool atomic.Pointer[pgxpool.Pool]
	config.ShouldPing = func(_ context.Context, params pgxpool.ShouldPingParams) bool {
		if params.IdleDuration <= pingAfter {
			return false
		}
		params.Conn.PgConn().CustomData()[pingedAt] = time.Now()
		return true
	}
	config.PrepareConn = func(_ context.Context, conn *pgx.Conn) (bool, error) { // after an answer
		delete(conn.PgConn().CustomData(), pingedAt)
		return true, nil
	}
	config.BeforeClose = func(conn *pgx.Conn) {
		at, pinged := conn.PgConn().CustomData()[pingedAt].(time.Time)
		if pinged && conn.IsClosed() && time.Since(at) >= answerTime {
			pool.Load().Reset()
		}
	}
	opened, err := pgxpool.NewWithConfig(ctx, config)
	pool.Store(opened)
	return opened, err
}

// dialer dials for one connection of a pool. pgx waits 15 seconds for a server that does not answer
// before it closes a connection, which occupies its place in the pool for as long: first for the
// answer to a request to cancel the statement, then for the end of the connection. dialer limits
// both to closeTimeout.
type dialer struct {
	dial         pgconn.DialFunc
	closeTimeout time.Duration
	connected    atomic.Bool // later dials are for requests to cancel
}

// Dial is a pgconn.DialFunc.
func (d *dialer) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	if !d.connected.Load() {
		conn, err := d.dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &link{Conn: conn, dialer: d}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, d.closeTimeout)
	defer cancel()
	conn, err := d.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return conn, conn.SetDeadline(time.Now().Add(d.closeTimeout))
}

// link is a connection of a pool to its server.
type link struct {
	net.Conn

	dialer *dialer
}

// SetDeadline sets no later deadline than closeTimeout from now. pgx sets later ones only to close.
func (l *link) SetDeadline(deadline time.Time) error {
	if latest := time.Now().Add(l.dialer.closeTimeout); deadline.After(latest) {
		deadline = latest
	}
	return l.Conn.SetDeadline(deadline)
}

// linkOf returns nil if the connection is not one of a pool.
func linkOf(conn *pgx.Conn) *link {
	under := conn.PgConn().Conn()
	if encrypted, ok := under.(*tls.Conn); ok {
		under = encrypted.NetConn()
	}
	l, _ := under.(*link)
	return l
}
