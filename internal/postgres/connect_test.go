package postgres_test

import (
	"context"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/test/nodes"
)

// silentServer accepts connections and never says anything, as a frozen one.
func silentServer(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener.Addr().String()
}

// withHosts puts more servers before the one of an address.
func withHosts(t *testing.T, address string, hosts ...string) *pgx.ConnConfig {
	t.Helper()
	before, rest, found := strings.Cut(address, "@")
	if !found {
		t.Fatalf("%s has no user", address)
	}
	config, err := pgx.ParseConfig(before + "@" + strings.Join(append(hosts, rest), ","))
	if err != nil {
		t.Fatal(err)
	}
	config.ConnectTimeout = time.Hour
	return config
}

// A frozen server is not waited for, one that refuses is not either.
func TestConnectDoesNotWaitForASilentServer(t *testing.T) {
	t.Parallel()
	address := pgtest.URL(t)
	ctx, cancel := context.WithTimeout(t.Context(), nodes.WaitTimeout)
	defer cancel()
	conn, err := postgres.Connect(ctx, withHosts(t, address, silentServer(t), "127.0.0.1:1", silentServer(t)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	var one int
	if err := conn.QueryRow(ctx, "SELECT 1").Scan(&one); err != nil || one != 1 {
		t.Errorf("the connection does not work: %v", err)
	}
}

// refusingAtFirst is a server that ends a number of connections, and forwards all others to an
// address.
func refusingAtFirst(t *testing.T, refuses int, address string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for n := 0; ; n++ {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			if n < refuses {
				_ = client.Close()
				continue
			}
			server, err := net.Dial("tcp", address)
			if err != nil {
				_ = client.Close()
				continue
			}
			go func() { _, _ = io.Copy(server, client); _ = server.Close() }()
			go func() { _, _ = io.Copy(client, server); _ = client.Close() }()
		}
	}()
	return listener.Addr().String()
}

// A replica refuses until it is promoted, while the old primary is frozen.
func TestConnectTriesAgainBesideASilentServer(t *testing.T) {
	t.Parallel()
	config := withHosts(t, pgtest.URL(t), silentServer(t))
	address := config.Fallbacks[len(config.Fallbacks)-1]
	promoted := refusingAtFirst(t, 3, net.JoinHostPort(address.Host, strconv.Itoa(int(address.Port))))
	host, port, err := net.SplitHostPort(promoted)
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	address.Host, address.Port = host, uint16(number)
	ctx, cancel := context.WithTimeout(t.Context(), nodes.WaitTimeout)
	defer cancel()
	conn, err := postgres.Connect(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	if err := conn.Ping(ctx); err != nil {
		t.Errorf("the connection does not work: %v", err)
	}
}

// The errors of all servers are there, so that the caller can tell read-only ones.
func TestConnectReturnsTheErrorsOfAllServers(t *testing.T) {
	t.Parallel()
	config := withHosts(t, "postgres://u@127.0.0.1:2/d?sslmode=prefer", "127.0.0.1:1")
	_, err := postgres.Connect(t.Context(), config)
	if err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") || !strings.Contains(err.Error(), "127.0.0.1:2") {
		t.Errorf("Connect = %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := postgres.Connect(ctx, withHosts(t, "postgres://u@"+silentServer(t)+"/d?sslmode=disable", silentServer(t))); err == nil {
		t.Error("no error though the context has ended")
	}
}
