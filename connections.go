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

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"
)

const (
	// spareConnections are accepted beyond the limits, so that probes are answered while
	// others hold all connections that they may.
	spareConnections = 32
	// closedPerSecond is how many connections a full listener closes for new ones, or
	// refuses. The others wait in the kernel's queue: clients that connect again at once
	// would close everybody's connection before the node has read a request from it.
	closedPerSecond = 1000
	closedAtOnce    = 10
	// maxPeeks is how many idle connections are examined for one to close.
	maxPeeks = 16
)

// connections is a listener that bounds how many connections are open, in all and for
// each address. It refuses nobody as long as another connection is silent: of those whose
// client has sent nothing that is still to be read, the oldest gives way to a new one. When
// all of them are at work a few more are accepted, over which only probes are answered.
type connections struct {
	net.Listener
	most, mostOfOne int
	closed          *rate.Limiter

	mu sync.Mutex
	of map[string]*peer
	// spare are the connections beyond the limits.
	spare []*connection
	all   int // without those
}

// peer is an address with its connections.
type peer struct {
	open int
	// idle are those whose next request has not been read, the one that has waited
	// longest first.
	idle []*connection
}

// connection is one of those that are open.
type connection struct {
	net.Conn
	owner   *connections
	address string
	// beyond the limits.
	beyond bool
	// idle and gone are guarded by the owner's lock.
	idle, gone bool
}

func newConnections(listener net.Listener, most, mostOfOne int) *connections {
	return &connections{
		Listener: listener, most: most, mostOfOne: mostOfOne,
		closed: rate.NewLimiter(closedPerSecond, closedAtOnce), of: map[string]*peer{},
	}
}

// Accept is part of net.Listener.
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
			_ = displaced.Conn.Close() // its owner has forgotten it
		default:
			return admitted, nil
		}
		time.Sleep(l.closed.Reserve().Delay())
		if admitted != nil {
			return admitted, nil
		}
	}
}

// admit returns nil where there is no place, and which connection to close for the new
// one.
func (l *connections) admit(raw net.Conn) (admitted, displaced *connection) {
	c := &connection{Conn: raw, owner: l, address: hostOf(raw.RemoteAddr()), idle: true}
	l.mu.Lock()
	defer l.mu.Unlock()
	own := l.of[c.address]
	switch {
	case own != nil && own.open >= l.mostOfOne:
		displaced = own.silent()
	case l.all >= l.most:
		displaced = l.busiest().silent()
	default:
		l.add(c)
		return c, nil
	}
	if displaced != nil {
		l.remove(displaced)
		l.add(c)
		return c, displaced
	}
	c.beyond = true
	if len(l.spare) >= spareConnections {
		at := slices.IndexFunc(l.spare, func(c *connection) bool { return c.idle && !c.hasUnread() })
		if at < 0 {
			return nil, nil
		}
		displaced = l.spare[at]
		l.remove(displaced)
	}
	l.spare = append(l.spare, c)
	return c, displaced
}

// busiest is the address with the most connections among those that have an idle one.
func (l *connections) busiest() (most *peer) {
	for _, p := range l.of {
		if len(p.idle) > 0 && (most == nil || p.open > most.open) {
			most = p
		}
	}
	return most
}

// silent returns the idle connection that has waited longest and whose client has sent
// nothing that is still to be read, or nil. On a busy machine requests wait until they are
// read; their connections go to the end of the list.
func (p *peer) silent() *connection {
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

// hasUnread reports, without waiting, whether the client has sent something that has not
// been read.
func (c *connection) hasUnread() (unread bool) {
	socket, ok := c.Conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) {
		n, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		unread = err == nil && n > 0
	})
	return unread && err == nil
}

func (l *connections) add(c *connection) {
	p := l.of[c.address]
	if p == nil {
		p = &peer{}
		l.of[c.address] = p
	}
	p.open++
	p.idle = append(p.idle, c)
	l.all++
}

// remove forgets a connection, once.
func (l *connections) remove(c *connection) {
	if c.gone {
		return
	}
	c.gone = true
	if c.beyond {
		l.spare = without(l.spare, c)
		return
	}
	p := l.of[c.address]
	p.idle = without(p.idle, c)
	l.all--
	if p.open--; p.open == 0 {
		delete(l.of, c.address)
	}
}

func without(list []*connection, c *connection) []*connection {
	if at := slices.Index(list, c); at >= 0 {
		return slices.Delete(list, at, at+1)
	}
	return list
}

// Close is part of net.Conn.
func (c *connection) Close() error {
	c.owner.mu.Lock()
	c.owner.remove(c)
	c.owner.mu.Unlock()
	return c.Conn.Close()
}

// connectionChanged is the http.Server's ConnState: a connection is idle until the head
// of a request is there, and again when the request was answered.
func connectionChanged(conn net.Conn, state http.ConnState) {
	c := connectionOf(conn)
	if c == nil || state != http.StateActive && state != http.StateIdle {
		return
	}
	l := c.owner
	l.mu.Lock()
	defer l.mu.Unlock()
	if idle := state == http.StateIdle; idle != c.idle && !c.gone {
		c.idle = idle
		if c.beyond {
			return
		}
		p := l.of[c.address]
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

// beyondLimits says whether a request came over a connection beyond the limits.
func beyondLimits(ctx context.Context) bool {
	c, _ := ctx.Value(connectionKey{}).(*connection)
	return c != nil && c.beyond
}

func hostOf(address net.Addr) string {
	host, _, err := net.SplitHostPort(address.String())
	if err != nil {
		return address.String()
	}
	return host
}
