package pgtest

import (
	"errors"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"
)

// Link is a TCP proxy before a PostgreSQL server: the network between a client
// and it, to be broken.
type Link struct {
	url      string
	target   string
	listener net.Listener
	running  sync.WaitGroup

	mu       sync.Mutex
	changed  *sync.Cond
	requests bool // flow towards the server
	replies  bool // flow towards the client
	refuse   bool
	closed   bool
	delay    time.Duration
	conns    map[*net.TCPConn]struct{}
}

// Proxy puts a Link before the server at url, which must be of the form
// postgres://...
func Proxy(tb testing.TB, target string) *Link {
	tb.Helper()
	return ProxyAt(tb, "127.0.0.1", target)
}

// ProxyAt puts one where it is reached under another of this machine's addresses.
func ProxyAt(tb testing.TB, address, target string) *Link {
	tb.Helper()
	parsed, err := url.Parse(target)
	if err != nil || parsed.Host == "" {
		tb.Fatalf("a proxy needs an address of the form postgres://host:port/..., not %q", target)
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(address, "0")) //nolint:noctx // it does not wait
	if err != nil {
		tb.Fatalf("listen for the proxy: %v", err)
	}
	link := &Link{target: parsed.Host, listener: listener, requests: true, replies: true, conns: map[*net.TCPConn]struct{}{}}
	link.changed = sync.NewCond(&link.mu)
	parsed.Host = listener.Addr().String()
	link.url = parsed.String()
	link.running.Go(link.accept)
	tb.Cleanup(link.close)
	return link
}

// URL is the address that goes through the link.
func (l *Link) URL() string { return l.url }

// Stall holds everything back, on connections that stay open: both ends take
// the other for alive. New connections are accepted and get no further.
func (l *Link) Stall() { l.set(false, false, false) }

// StallReplies holds back what the server says; requests arrive.
func (l *Link) StallReplies() { l.set(true, false, false) }

// Resume lets everything flow, what was held back first.
func (l *Link) Resume() { l.set(true, true, false) }

// Delay holds up by so much whatever comes by, in either direction, until Resume.
func (l *Link) Delay(by time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = by
}

// Cut resets every connection and refuses new ones until Resume.
func (l *Link) Cut() {
	l.set(true, true, true)
	l.reset()
}

func (l *Link) set(requests, replies, refuse bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests, l.replies, l.refuse, l.delay = requests, replies, refuse, 0
	l.changed.Broadcast()
}

func (l *Link) close() {
	_ = l.listener.Close()
	l.mu.Lock()
	l.closed = true
	l.changed.Broadcast()
	l.mu.Unlock()
	l.reset()
	l.running.Wait()
}

// reset ends the connections as a lost peer does, with RST.
func (l *Link) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for conn := range l.conns {
		_ = conn.SetLinger(0)
		_ = conn.Close()
	}
	clear(l.conns)
}

func (l *Link) accept() {
	for {
		conn, err := l.listener.Accept()
		if err != nil {
			return
		}
		client, ok := conn.(*net.TCPConn)
		if !ok || !l.admit(client) {
			_ = conn.Close()
			continue
		}
		l.running.Go(func() { l.carry(client) })
	}
}

// admit takes a connection into the books, unless the link is cut.
func (l *Link) admit(conn *net.TCPConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuse || l.closed {
		_ = conn.SetLinger(0)
		return false
	}
	l.conns[conn] = struct{}{}
	return true
}

func (l *Link) carry(client *net.TCPConn) {
	defer func() { _ = client.Close() }()
	if !l.await(&l.requests) {
		return
	}
	conn, err := net.Dial("tcp", l.target) //nolint:noctx // the server is on this machine
	if err != nil {
		return
	}
	server, ok := conn.(*net.TCPConn)
	if !ok || !l.admit(server) {
		_ = conn.Close()
		return
	}
	var both sync.WaitGroup
	both.Go(func() { l.pump(server, client, &l.requests) })
	both.Go(func() { l.pump(client, server, &l.replies) })
	both.Wait()
	_ = server.Close()
	l.forget(client, server)
}

// pump copies one direction while its barrier is open.
func (l *Link) pump(to, from *net.TCPConn, barrier *bool) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		time.Sleep(l.delayed())
		if !l.await(barrier) {
			return
		}
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				_ = from.Close()
				return
			}
		}
		if errors.Is(err, io.EOF) {
			_ = to.CloseWrite()
			return
		}
		if err != nil {
			_ = to.Close()
			return
		}
	}
}

// await waits for a barrier to open; false means that the link is gone.
func (l *Link) await(barrier *bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !*barrier && !l.closed {
		l.changed.Wait()
	}
	return !l.closed
}

func (l *Link) delayed() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.delay
}

func (l *Link) forget(conns ...*net.TCPConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, conn := range conns {
		delete(l.conns, conn)
	}
}
