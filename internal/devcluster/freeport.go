package devcluster

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
)

// FindPort returns an address of the host, as host:port, on which nothing listens.
//
// The port was used a moment ago by a connection that the server closed first. It stays in
// TIME_WAIT for a minute (RFC 9293, 3.6.1), and until then the system gives it only to a
// process that requests it by number: neither another call nor an outgoing connection gets it.
func FindPort(host string) (string, error) {
	// A process that started now would have the listener until it executes its program. The lock
	// prevents that, but package os tries a clone without it once, before it first uses a process.
	_, _ = os.FindProcess(os.Getpid())
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	listener, err := net.Listen("tcp", net.JoinHostPort(host, "0")) //nolint:noctx // it does not wait
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	address := listener.Addr().String()
	if err := errors.Join(leaveInTimeWait(listener), listener.Close()); err != nil {
		return "", fmt.Errorf("keep a free port: %w", err)
	}
	return address, nil
}

// leaveInTimeWait accepts a connection from this process and closes it on the server's side
// first.
func leaveInTimeWait(listener net.Listener) error {
	client, err := net.Dial("tcp", listener.Addr().String()) //nolint:noctx // the other end is this process
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	server, err := listener.Accept()
	if err != nil {
		return err
	}
	if err := server.Close(); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, client) // returns once the server's end has arrived
	return err
}
