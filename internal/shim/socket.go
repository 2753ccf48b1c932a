//go:build unix

package shim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxRights is the number of descriptors that a message carries: the two outputs of a
// command.
const maxRights = 2

// socket carries JSON messages and descriptors between a node and a shim.
type socket struct {
	file    *os.File
	raw     syscall.RawConn
	decoder *json.Decoder
	// received are the descriptors that came with the bytes read.
	received []int
}

// newSocket takes ownership of a descriptor.
func newSocket(fd int) (*socket, error) {
	unix.CloseOnExec(fd)
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("prepare the socket: %w", err)
	}
	s := &socket{file: os.NewFile(uintptr(fd), "shim")}
	var err error
	if s.raw, err = s.file.SyscallConn(); err != nil {
		return nil, fmt.Errorf("prepare the socket: %w", err)
	}
	s.decoder = json.NewDecoder(s)
	return s, nil
}

// socketPair returns the node's end and the end to pass to a shim.
func socketPair() (*socket, *os.File, error) {
	syscall.ForkLock.RLock()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(fds[0])
		unix.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, fmt.Errorf("open a pair of sockets: %w", err)
	}
	remote := os.NewFile(uintptr(fds[1]), "shim")
	own, err := newSocket(fds[0])
	if err != nil {
		return nil, nil, errors.Join(err, remote.Close())
	}
	return own, remote, nil
}

// send writes a message within a time limit, with descriptors attached to its first byte.
func (s *socket) send(message any, within time.Duration, files ...*os.File) error {
	data, err := json.Marshal(message)
	if err != nil {
		return err
	}
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, file := range files {
			fds[i] = int(file.Fd())
		}
		rights = unix.UnixRights(fds...)
	}
	if err := s.file.SetWriteDeadline(time.Now().Add(within)); err != nil {
		return err
	}
	var failed error
	err = s.raw.Write(func(fd uintptr) bool {
		for len(data) > 0 {
			n, err := unix.SendmsgN(int(fd), data, rights, nil, 0)
			switch {
			case errors.Is(err, unix.EINTR):
			case errors.Is(err, unix.EAGAIN):
				return false
			case err != nil:
				failed = err
				return true
			default:
				data, rights = data[n:], nil
			}
		}
		return true
	})
	return errors.Join(err, failed)
}

// receive reads the next message.
func (s *socket) receive(message any) error { return s.decoder.Decode(message) }

// Read implements io.Reader for the decoder.
func (s *socket) Read(p []byte) (n int, err error) {
	oob := make([]byte, unix.CmsgSpace(4*maxRights))
	var oobn int
	waitErr := s.raw.Read(func(fd uintptr) bool {
		for {
			n, oobn, _, _, err = unix.Recvmsg(int(fd), p, oob, receiveFlags)
			if !errors.Is(err, unix.EINTR) {
				return !errors.Is(err, unix.EAGAIN)
			}
		}
	})
	switch {
	case waitErr != nil:
		return 0, waitErr
	case err != nil:
		return 0, err
	case oobn > 0:
		s.takeRights(oob[:oobn])
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (s *socket) takeRights(oob []byte) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
		}
		s.received = append(s.received, fds...)
	}
}

// outputs returns the descriptors that came with the last received message.
func (s *socket) outputs() (fds []int) {
	fds, s.received = s.received, nil
	return fds
}

// finish signals that no more messages follow.
func (s *socket) finish() {
	_ = s.raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_WR) })
}

func (s *socket) close() { _ = s.file.Close() }
