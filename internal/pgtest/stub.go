package pgtest

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
)

// Fault is a feature that a Stub lacks.
type Fault int

const (
	// GrantsEveryLock lets pg_try_advisory_lock and pg_try_advisory_xact_lock succeed in every session.
	GrantsEveryLock Fault = 1 << iota
	// DropsNotifications delivers no notification.
	DropsNotifications
	// RefusesTriggers makes CREATE TRIGGER fail.
	RefusesTriggers
	// KeepsSilentSessions lets an idle_session_timeout have no effect.
	KeepsSilentSessions
)

// Codes of the requests that begin a connection.
const (
	sslRequest    = 80877103
	gssRequest    = 80877104
	cancelRequest = 80877102
)

// maxMessage bounds a message, in bytes.
const maxMessage = 1 << 28

// Stub is a server that speaks PostgreSQL's protocol and lacks features without saying so:
// a proxy that rewrites statements and drops messages.
type Stub struct {
	target   string
	fault    Fault
	listener net.Listener
	running  sync.WaitGroup

	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]struct{}
}

// StubURL returns the address of a Stub before the server at target, which must be of the
// form postgres://... and use no TLS. It ends with the test.
func StubURL(tb testing.TB, target string, fault Fault) string {
	tb.Helper()
	parsed, err := url.Parse(target)
	if err != nil || parsed.Port() == "" {
		tb.Fatalf("a stub needs an address of the form postgres://host:port/..., not %q", target)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it does not wait
	if err != nil {
		tb.Fatalf("listen for the stub: %v", err)
	}
	s := &Stub{target: parsed.Host, fault: fault, listener: listener, conns: map[net.Conn]struct{}{}}
	parsed.Host = listener.Addr().String()
	s.running.Go(s.accept)
	tb.Cleanup(s.close)
	return parsed.String()
}

func (s *Stub) close() {
	_ = s.listener.Close()
	s.mu.Lock()
	s.closed = true
	for conn := range s.conns {
		_ = conn.Close()
	}
	s.mu.Unlock()
	s.running.Wait()
}

func (s *Stub) accept() {
	for {
		client, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.running.Go(func() { s.carry(client) })
	}
}

// keep closes the connection with the stub; false: the stub is closed.
func (s *Stub) keep(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.conns[conn] = struct{}{}
	return true
}

func (s *Stub) drop(conn net.Conn) {
	s.mu.Lock()
	delete(s.conns, conn)
	s.mu.Unlock()
	_ = conn.Close()
}

func (s *Stub) carry(client net.Conn) {
	defer s.drop(client)
	if !s.keep(client) {
		return
	}
	server, err := net.Dial("tcp", s.target) //nolint:noctx // the server is on this machine
	if err != nil {
		return
	}
	defer s.drop(server)
	if !s.keep(server) {
		return
	}
	requests := bufio.NewReader(client)
	if err := start(client, server, requests); err != nil {
		return
	}
	var both sync.WaitGroup
	both.Go(func() {
		pump(server, requests, s.request)
		_ = server.Close()
	})
	both.Go(func() {
		pump(client, bufio.NewReader(server), s.reply)
		_ = client.Close()
	})
	both.Wait()
}

// start forwards the first message and declines encryption.
func start(client, server net.Conn, requests *bufio.Reader) error {
	for {
		body, err := readBody(requests)
		if err != nil || len(body) < 4 {
			return errors.Join(err, io.ErrUnexpectedEOF)
		}
		switch binary.BigEndian.Uint32(body) {
		case sslRequest, gssRequest:
			if _, err := client.Write([]byte{'N'}); err != nil {
				return err
			}
			continue
		case cancelRequest:
		}
		_, err = server.Write(frame(nil, body))
		return err
	}
}

// pump forwards messages as change returns them; nil drops a message.
func pump(to io.Writer, from *bufio.Reader, change func(kind byte, body []byte) []byte) {
	out := bufio.NewWriter(to)
	for {
		kind, err := from.ReadByte()
		if err != nil {
			return
		}
		body, err := readBody(from)
		if err != nil {
			return
		}
		if body = change(kind, body); body != nil {
			if _, err := out.Write(frame([]byte{kind}, body)); err != nil {
				return
			}
		}
		if from.Buffered() == 0 && out.Flush() != nil {
			return
		}
	}
}

// frame returns a message: its kind, its length and its body.
func frame(kind, body []byte) []byte {
	return append(binary.BigEndian.AppendUint32(kind, uint32(len(body)+4)), body...)
}

func readBody(from io.Reader) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(from, length[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(length[:])
	if size < 4 || size > maxMessage {
		return nil, fmt.Errorf("a message of %d bytes", size)
	}
	body := make([]byte, size-4)
	_, err := io.ReadFull(from, body)
	return body, err
}

// request rewrites the statements of Query and Parse messages, and the names of settings,
// which are values of Bind messages: the other name has the same length. Shared locks exclude
// only exclusive ones, which nobody takes through a stub.
func (s *Stub) request(kind byte, body []byte) []byte {
	if kind == 'B' && s.fault&KeepsSilentSessions != 0 {
		return bytes.ReplaceAll(body, []byte("idle_session_timeout"), []byte("effective_cache_size"))
	}
	if kind != 'Q' && kind != 'P' {
		return body
	}
	if s.fault&GrantsEveryLock != 0 {
		body = bytes.ReplaceAll(body, []byte("pg_try_advisory_lock("), []byte("pg_try_advisory_lock_shared("))
		body = bytes.ReplaceAll(body, []byte("pg_try_advisory_xact_lock("), []byte("pg_try_advisory_xact_lock_shared("))
		body = bytes.ReplaceAll(body, []byte("pg_advisory_unlock("), []byte("pg_advisory_unlock_shared("))
	}
	if s.fault&RefusesTriggers != 0 {
		body = bytes.ReplaceAll(body, []byte("CREATE TRIGGER"), []byte("CREATE NO TRIGGER"))
	}
	return body
}

func (s *Stub) reply(kind byte, body []byte) []byte {
	if kind == 'A' && s.fault&DropsNotifications != 0 {
		return nil
	}
	return body
}
