//go:build !linux

package devcluster

import (
	"errors"
	"io"
	"net"
	"syscall"
)

// reservePort leaves a connection of the port, closed by the server first, in TIME_WAIT for a
// minute (RFC 9293, 3.6.1).
func reservePort(address *net.TCPAddr) (port int, release func(), err error) {
	// A process that started now would have the listener until it executes its program.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	listener, err := net.ListenTCP("tcp", address)
	if err != nil {
		return 0, nil, err
	}
	if err := errors.Join(leaveInTimeWait(listener), listener.Close()); err != nil {
		return 0, nil, err
	}
	return listener.Addr().(*net.TCPAddr).Port, func() {}, nil //nolint:forcetypeassert // of a TCP listener
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
