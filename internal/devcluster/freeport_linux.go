package devcluster

import (
	"fmt"
	"net"
	"os"
	"syscall"
)

// reservePort binds a port of the address without listening on it. Servers may bind it too,
// because SO_REUSEADDR is set on both sockets.
//
// A process that starts meanwhile has a copy of the socket until it executes its program. Of a
// listener that would keep the port in use, and syscall.ForkLock does not prevent it: before the
// first process, the runtime tries a clone without that lock.
func reservePort(address *net.TCPAddr) (port int, release func(), err error) {
	family, local := syscall.AF_INET, syscall.Sockaddr(&syscall.SockaddrInet4{}) // every address of the host
	if ip := address.IP.To4(); ip != nil {
		local = &syscall.SockaddrInet4{Addr: [4]byte(ip)}
	} else if address.IP != nil {
		family, local = syscall.AF_INET6, &syscall.SockaddrInet6{Addr: [16]byte(address.IP)}
	}
	socket, err := syscall.Socket(family, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, nil, os.NewSyscallError("socket", err)
	}
	release = func() { _ = syscall.Close(socket) }
	if port, err = bindAnyPort(socket, local); err != nil {
		release()
		return 0, nil, err
	}
	return port, release, nil
}

// bindAnyPort binds the socket to a port that the system chooses.
func bindAnyPort(socket int, local syscall.Sockaddr) (int, error) {
	if err := syscall.SetsockoptInt(socket, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return 0, os.NewSyscallError("setsockopt", err)
	}
	if err := syscall.Bind(socket, local); err != nil {
		return 0, os.NewSyscallError("bind", err)
	}
	bound, err := syscall.Getsockname(socket)
	if err != nil {
		return 0, os.NewSyscallError("getsockname", err)
	}
	switch bound := bound.(type) {
	case *syscall.SockaddrInet4:
		return bound.Port, nil
	case *syscall.SockaddrInet6:
		return bound.Port, nil
	default:
		return 0, fmt.Errorf("the socket is bound to %T", bound)
	}
}
