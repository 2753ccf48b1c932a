package devcluster

import (
	"fmt"
	"net"
	"strconv"
	"time"
)

// reservedFor is how long a found port stays reserved.
const reservedFor = time.Minute

// FindPort returns an address of the host, as host:port, on which nothing listens.
//
// For a minute the system gives the port only to a process that requests it by number, with
// SO_REUSEADDR, as servers do: neither another call nor an outgoing connection gets it.
func FindPort(host string) (string, error) {
	address, err := net.ResolveTCPAddr("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	port, release, err := reservePort(address)
	if err != nil {
		return "", fmt.Errorf("find a free port of %s: %w", host, err)
	}
	time.AfterFunc(reservedFor, release)
	return net.JoinHostPort(host, strconv.Itoa(port)), nil
}
