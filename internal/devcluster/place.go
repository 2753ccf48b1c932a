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

	"github.com/forge-scheduler/forge/internal/pgembed"
)

// DefaultDataDir is .forge under the working directory. Under root that is
// often a closed home, which the user that PostgreSQL then runs as cannot
// enter; the data is then in /var/lib/forge, in a directory that is named
// after the working directory.
func DefaultDataDir() (string, error) {
	here, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the working directory: %w", err)
	}
	if err := pgembed.MayEnter(filepath.Join(here, ".forge", "postgres")); err == nil {
		return filepath.Join(here, ".forge"), nil
	}
	sum := sha256.Sum256([]byte(here))
	return filepath.Join("/var/lib/forge", filepath.Base(here)+"-"+hex.EncodeToString(sum[:4])), nil
}

// chooseAddresses gives n nodes an address each: from listen upwards, past the
// ports that are taken.
func chooseAddresses(listen string, n int) ([]string, error) {
	host, portText, err := net.SplitHostPort(listen)
	if err != nil {
		return nil, fmt.Errorf("listen address %s: %w", strconv.Quote(listen), err)
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("listen address %s: want host:port with a port from 0 to 65535", strconv.Quote(listen))
	}
	addresses := make([]string, 0, n)
	for next := int(port); len(addresses) < n; next++ {
		if next > 65535 {
			return nil, fmt.Errorf("no %d free ports from %s on", n, listen)
		}
		ask := next
		if port == 0 {
			ask = 0
		}
		// The probe stays open until all are chosen: port 0 must not give one twice.
		probe, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(ask))) //nolint:noctx // it does not wait
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("listen on %s: %w", listen, err)
		}
		defer func() { _ = probe.Close() }()
		_, chosen, err := net.SplitHostPort(probe.Addr().String())
		if err != nil {
			return nil, fmt.Errorf("listen on %s: %w", listen, err)
		}
		addresses = append(addresses, net.JoinHostPort(host, chosen))
	}
	return addresses, nil
}
