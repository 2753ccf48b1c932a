package forge

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/time/rate"
)

const (
	// maxOverLimit is how many connections are accepted beyond the limits, so that probes
	// are answered while all other connections are in use.
	maxOverLimit = 32
	// closedPerSecond limits how many connections a full listener closes or rejects. The
	// others wait in the kernel's queue. Otherwise clients that reconnect at once could
	// make the node close every connection before it has read a request.
	closedPerSecond = 1000
	closedAtOnce    = 10
	// maxPeeks is how many idle connections are checked to find one to close.
	maxPeeks = 16
)

// connections is a listener that limits the open connections, in total and for each
// address. At a limit, a new connection replaces the oldest idle connection without unread
// data. If all connections are busy, a few more are accepted, on which only probes are
// answered.
type connections struct {
	net.Listener
	maxTotal, maxPerAddress int
	closeLimiter            *rate.Limiter

	mu    sync.Mutex
	peers map[string]*peer
	// overLimit are the connections beyond the limits.
	overLimit []*connection
	total     int // without overLimit
}

// peer is an address and its connections.
type peer struct {
	open int
	// idle are the connections that wait for a request, the longest waiting first.
	idle []*connection
}

// connection is an open connection.
type connection struct {
	net.Conn
	owner   *connections
	address string
	// overLimit is set on connections beyond the limits.
	overLimit bool
	// idle and removed are guarded by owner.mu.
	idle, removed bool
}

func newConnections(listener net.Listener, maxTotal, maxPerAddress int) *connections {
	return &connections{
		Listener: listener, maxTotal: maxTotal, maxPerAddress: maxPerAddress,
		closeLimiter: rate.NewLimiter(closedPerSecond, closedAtOnce), peers: map[string]*peer{},
	}
}

// Accept implements net.Listener.
func (l *connections) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		admitted, displaced := l.admit(raw)
		switch {
		case admitted == nil:
			_ = raw.Close()
		case displaced != nil:
			_ = displaced.Conn.Close() // already removed from its owner
		default:
			return admitted, nil
		}
		time.Sleep(l.closeLimiter.Reserve().Delay())
		if admitted != nil {
			return admitted, nil
		}
	}
}

// admit adds a connection. It returns nil if there is no room, and the connection to close
// in exchange, if any.
func (l *connections) admit(raw net.Conn) (admitted, displaced *connection) {
	c := &connection{Conn: raw, owner: l, address: hostOf(raw.RemoteAddr()), idle: true}
	l.mu.Lock()
	defer l.mu.Unlock()
	own := l.peers[c.address]
	switch {
	case own != nil && own.open >= l.maxPerAddress:
		displaced = own.oldestSilent()
	case l.total >= l.maxTotal:
		displaced = l.busiestPeer().oldestSilent()
	default:
		l.add(c)
		return c, nil
	}
	if displaced != nil {
		l.remove(displaced)
		l.add(c)
		return c, displaced
	}
	c.overLimit = true
	if len(l.overLimit) >= maxOverLimit {
		at := slices.IndexFunc(l.overLimit, func(c *connection) bool { return c.idle && !c.hasUnread() })
		if at < 0 {
			return nil, nil
		}
		displaced = l.overLimit[at]
		l.remove(displaced)
	}
	l.overLimit = append(l.overLimit, c)
	return c, displaced
}

// busiestPeer returns the address with the most connections among those with an idle one.
func (l *connections) busiestPeer() (busiest *peer) {
	for _, p := range l.peers {
		if len(p.idle) > 0 && (busiest == nil || p.open > busiest.open) {
			busiest = p
		}
	}
	return busiest
}

// oldestSilent returns the longest idle connection without unread data, or nil. On a busy
// machine, requests wait to be read: connections with unread data move to the end of the
// list.
func (p *peer) oldestSilent() *connection {
	if p == nil {
		return nil
	}
	for range min(maxPeeks, len(p.idle)) {
		oldest := p.idle[0]
		if !oldest.hasUnread() {
			return oldest
		}
		p.idle = append(p.idle[1:], oldest)
	}
	return nil
}

// hasUnread reports, without blocking, whether the client has sent data that was not read.
func (c *connection) hasUnread() (unread bool) {
	socket, ok := c.Conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) { unread = canRead(fd) })
	return unread && err == nil
}

func (l *connections) add(c *connection) {
	p := l.peers[c.address]
	if p == nil {
		p = &peer{}
		l.peers[c.address] = p
	}
	p.open++
	p.idle = append(p.idle, c)
	l.total++
}

// remove removes a connection. Later calls do nothing.
func (l *connections) remove(c *connection) {
	if c.removed {
		return
	}
	c.removed = true
	if c.overLimit {
		l.overLimit = without(l.overLimit, c)
		return
	}
	p := l.peers[c.address]
	p.idle = without(p.idle, c)
	l.total--
	if p.open--; p.open == 0 {
		delete(l.peers, c.address)
	}
}

func without(list []*connection, c *connection) []*connection {
	if at := slices.Index(list, c); at >= 0 {
		return slices.Delete(list, at, at+1)
	}
	return list
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.owner.mu.Lock()
	c.owner.remove(c)
	c.owner.mu.Unlock()
	return c.Conn.Close()
}

// connectionChanged is the http.Server's ConnState. A connection is idle until the header
// of a request was read, and again after the response.
func connectionChanged(conn net.Conn, state http.ConnState) {
	c := connectionOf(conn)
	if c == nil || state != http.StateActive && state != http.StateIdle {
		return
	}
	l := c.owner
	l.mu.Lock()
	defer l.mu.Unlock()
	if idle := state == http.StateIdle; idle != c.idle && !c.removed {
		c.idle = idle
		if c.overLimit {
			return
		}
		p := l.peers[c.address]
		p.idle = without(p.idle, c)
		if idle {
			p.idle = append(p.idle, c)
		}
	}
}

func connectionOf(conn net.Conn) *connection {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	c, _ := conn.(*connection)
	return c
}

type connectionKey struct{}

// withConnection is the http.Server's ConnContext.
func withConnection(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, connectionOf(conn))
}

// isOverLimit reports whether a request arrived on a connection beyond the limits.
func isOverLimit(ctx context.Context) bool {
	c, _ := ctx.Value(connectionKey{}).(*connection)
	return c != nil && c.overLimit
}

func hostOf(address net.Addr) string {
	host, _, err := net.SplitHostPort(address.String())
	if err != nil {
		return address.String()
	}
	return host
}
