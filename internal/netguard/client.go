package netguard

import (
	"context"
	"errors"
	"net"
	"net/http"
)

// maxConn is how many bytes are read from a connection, which carries one answer: the body, the
// headers, and what TLS adds to them.
const maxConn = 64 << 10

// ErrTooLong is the error of reading more from a connection than is allowed.
var ErrTooLong = errors.New("the answer is too long")

// DialContext connects to an address that the Guard allows. Reading from the
// connection fails with ErrTooLong after 64 KiB, so that whatever reads an
// answer, and however it does, uses little memory. The connection is good for one
// request: the client must not keep it alive.
func (g Guard) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := g.Dialer().DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &boundedConn{Conn: conn, left: maxConn}, nil
}

// boundedConn returns at most a number of bytes.
type boundedConn struct {
	net.Conn
	left int
}

// Read is called by one goroutine at a time.
func (c *boundedConn) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, ErrTooLong
	}
	n, err := c.Conn.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

// CloseWrite ends the sending half, where the connection has halves.
func (c *boundedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// Client returns a client for short requests to allowed addresses. It ignores
// proxies of the environment and redirects, and keeps no connections.
func (g Guard) Client() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext:         g.DialContext,
			DisableKeepAlives:   true,
			DisableCompression:  true,
			TLSHandshakeTimeout: dialTimeout,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
