package devcluster

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// DefaultDataDir returns .forge under the working directory. Under root that is often
// inside a closed home, which the user that PostgreSQL then runs as cannot enter; the
// data is then in /var/lib/forge, in a directory named after the working directory.
func DefaultDataDir() (string, error) {
	here, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the working directory: %w", err)
	}
	if err := MayEnter(filepath.Join(here, ".forge", "postgres")); err == nil {
		return filepath.Join(here, ".forge"), nil
	}
	sum := sha256.Sum256([]byte(here))
	return filepath.Join("/var/lib/forge", filepath.Base(here)+"-"+hex.EncodeToString(sum[:4])), nil
}

// chooseAddresses returns n addresses: from listen upwards, without the ports in use.
func chooseAddresses(listen string, n int) ([]string, error) {
	host, portText, err := net.SplitHostPort(listen)
	if err != nil {
		return nil, fmt.Errorf("listen address %s: %w", strconv.Quote(listen), err)
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("listen address %s: want host:port with a port from 0 to 65535", strconv.Quote(listen))
	}
	if port == 0 {
		return anyAddresses(host, n)
	}
	addresses := make([]string, 0, n)
	for next := int(port); len(addresses) < n; next++ {
		if next > 65535 {
			return nil, fmt.Errorf("no %d free ports from %s on", n, listen)
		}
		address := net.JoinHostPort(host, strconv.Itoa(next))
		probe, err := net.Listen("tcp", address) //nolint:noctx // it does not wait
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("listen on %s: %w", listen, err)
		}
		_ = probe.Close()
		addresses = append(addresses, address)
	}
	return addresses, nil
}

// anyAddresses returns n addresses on free ports. PostgreSQL starts before the nodes
// listen, so a port has to stay free for some time.
func anyAddresses(host string, n int) ([]string, error) {
	addresses := make([]string, n)
	for i := range addresses {
		address, err := FindPort(host)
		if err != nil {
			return nil, err
		}
		addresses[i] = address
	}
	return addresses, nil
}
