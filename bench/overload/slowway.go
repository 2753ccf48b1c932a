package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	neturl "net/url"
	"sync"
	"sync/atomic"
	"time"
)

// slowWay is a proxy before PostgreSQL that holds up each statement.
type slowWay struct {
	listener net.Listener
	target   string
	url      string
	delay    atomic.Int64 // in nanoseconds
	running  sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]struct{} // nil once it is closed
}

func newSlowWay(server string) (*slowWay, error) {
	address, err := neturl.Parse(server)
	if err != nil {
		return nil, fmt.Errorf("parse the server's address: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // returns at once
	if err != nil {
		return nil, fmt.Errorf("listen for the proxy: %w", err)
	}
	w := &slowWay{listener: listener, target: address.Host, conns: map[net.Conn]struct{}{}}
	address.Host = listener.Addr().String()
	w.url = address.String()
	w.running.Go(w.accept)
	return w, nil
}

// set says how much longer each statement takes from now on.
func (w *slowWay) set(delay time.Duration) { w.delay.Store(int64(delay)) }

func (w *slowWay) close() {
	_ = w.listener.Close()
	w.mu.Lock()
	for conn := range w.conns {
		_ = conn.Close()
	}
	w.conns = nil
	w.mu.Unlock()
	w.running.Wait()
}

func (w *slowWay) accept() {
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return
		}
		w.running.Go(func() { w.carry(client) })
	}
}

// enter has close end a connection, too; false if that has been called.
func (w *slowWay) enter(conn net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.conns == nil {
		return false
	}
	w.conns[conn] = struct{}{}
	return true
}

func (w *slowWay) carry(client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := net.Dial("tcp", w.target) //nolint:noctx // the server is on this machine
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	if !w.enter(client) || !w.enter(server) {
		return
	}
	var both sync.WaitGroup
	both.Go(func() {
		_ = w.requests(server, client)
		_ = server.Close()
	})
	both.Go(func() {
		_, _ = io.Copy(client, server)
		_ = client.Close()
	})
	both.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.conns, client)
	delete(w.conns, server)
}

// Codes of messages without a type, of which a start-up message is the last, and types
// of those that have the server carry out a statement.
const (
	sslRequest    = 80877103
	gssRequest    = 80877104
	execute       = 'E'
	simpleQuery   = 'Q'
	largestHeader = 5
)

// requests copies what the client sends, message by message.
func (w *slowWay) requests(to io.Writer, from io.Reader) error {
	for typed := false; ; {
		header := make([]byte, largestHeader)
		if !typed {
			header = header[1:]
		}
		if _, err := io.ReadFull(from, header); err != nil {
			return err
		}
		length := binary.BigEndian.Uint32(header[len(header)-4:])
		if length < 4 {
			return fmt.Errorf("a message of %d bytes", length)
		}
		if typed && (header[0] == execute || header[0] == simpleQuery) {
			time.Sleep(time.Duration(w.delay.Load()))
		}
		if !typed {
			code := make([]byte, 4)
			if _, err := io.ReadFull(from, code); err != nil {
				return err
			}
			asks := binary.BigEndian.Uint32(code)
			typed = asks != sslRequest && asks != gssRequest
			header, length = append(header, code...), length-4
		}
		if _, err := to.Write(header); err != nil {
			return err
		}
		if _, err := io.CopyN(to, from, int64(length)-4); err != nil {
			return err
		}
	}
}
