package postgres_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/test/nodes"
)

// silentServer accepts connections and never says anything, as a frozen one.
type silentServer struct {
	address     string
	connections atomic.Int32 // that were accepted
}

func startSilentServer(t *testing.T) *silentServer {
	t.Helper()
	s := &silentServer{}
	s.address = serve(t, func(client net.Conn) {
		s.connections.Add(1)
		_, _ = io.Copy(io.Discard, client) // until the client gives up
	})
	return s
}

// serve calls handle for each connection to the address, and closes it then.
func serve(t *testing.T, handle func(client net.Conn)) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { handle(client); _ = client.Close() }()
		}
	}()
	return listener.Addr().String()
}

// forward connects a client to a server, until one of them ends.
func forward(client net.Conn, address string) {
	server, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	go func() { _, _ = io.Copy(server, client); _ = server.Close() }()
	_, _ = io.Copy(client, server)
}

// serverOf returns host and port of an address with one server.
func serverOf(t *testing.T, address string) string {
	t.Helper()
	parsed, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return parsed.Host
}

// before puts more servers before the one of an address.
func before(address string, hosts ...string) string {
	return strings.Replace(address, "@", "@"+strings.Join(append(hosts, ""), ","), 1)
}

// patient returns the configuration of an address whose connections do not give up.
func patient(t *testing.T, address string) *pgx.ConnConfig {
	t.Helper()
	config, err := pgx.ParseConfig(address)
	if err != nil {
		t.Fatal(err)
	}
	config.ConnectTimeout = time.Hour
	return config
}

// A frozen server is not waited for, one that refuses is not either.
func TestConnectDoesNotWaitForASilentServer(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), nodes.WaitTimeout)
	defer cancel()
	conn, err := postgres.Connect(ctx, patient(t, before(pgtest.URL(t), startSilentServer(t).address, "127.0.0.1:1", startSilentServer(t).address)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	var one int
	if err := conn.QueryRow(ctx, "SELECT 1").Scan(&one); err != nil || one != 1 {
		t.Errorf("the connection does not work: %v", err)
	}
}

// A replica refuses until it is promoted, while the old primary is frozen.
func TestConnectTriesAgainBesideASilentServer(t *testing.T) {
	t.Parallel()
	address := pgtest.URL(t)
	primary := serverOf(t, address)
	var refused atomic.Int32
	promoted := serve(t, func(client net.Conn) {
		if refused.Add(1) > 3 {
			forward(client, primary)
		}
	})
	config := patient(t, before(strings.Replace(address, primary, promoted, 1), startSilentServer(t).address))
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
	config := patient(t, before("postgres://u@127.0.0.1:2/d?sslmode=prefer", "127.0.0.1:1"))
	_, err := postgres.Connect(t.Context(), config)
	if err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") || !strings.Contains(err.Error(), "127.0.0.1:2") {
		t.Errorf("Connect = %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := postgres.Connect(ctx, patient(t, before("postgres://u@"+startSilentServer(t).address+"/d?sslmode=disable", startSilentServer(t).address))); err == nil {
		t.Error("no error though the context has ended")
	}
}

// encrypting is a server that demands TLS and forwards to an address. It counts the connections
// that show a certificate.
func encrypting(t *testing.T, certFile, keyFile, address string, certified *atomic.Int32) string {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	return serve(t, func(client net.Conn) {
		if _, err := io.ReadFull(client, make([]byte, 8)); err != nil { // SSLRequest
			return
		}
		if _, err := client.Write([]byte("S")); err != nil {
			return
		}
		encrypted := tls.Server(client, config)
		if err := encrypted.HandshakeContext(t.Context()); err != nil {
			return
		}
		certified.Add(int32(len(encrypted.ConnectionState().PeerCertificates)))
		forward(encrypted, address)
	})
}

// Each connection shows the certificate of the address, to the second server of it too.
func TestConnectionsShowTheClientCertificate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "client.pem"), filepath.Join(dir, "client.key")
	nodes.WriteCertificate(t, certFile, keyFile, 1)
	address := pgtest.URL(t)
	primary := serverOf(t, address)
	var certified atomic.Int32
	server := encrypting(t, certFile, keyFile, primary, &certified)
	address = strings.NewReplacer(primary, "127.0.0.1:1,"+server, "sslmode=disable", "sslmode=require").Replace(address) +
		"&sslcert=" + url.QueryEscape(certFile) + "&sslkey=" + url.QueryEscape(keyFile)
	conn, err := postgres.Connect(t.Context(), patient(t, address))
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close(t.Context())
	if got := certified.Swap(0); got != 1 {
		t.Errorf("%d of 1 connections showed a certificate", got)
	}
	pool, err := postgres.NewPool(t.Context(), postgres.PoolOptions{URL: address, Schema: "public"})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for _, conn := range acquire(t, pool, 3) {
		conn.Release()
	}
	nodes.Eventually(t, nodes.WaitTimeout, "no connection is being opened", func() bool { return pool.Stat().ConstructingConns() == 0 })
	if got := certified.Load(); got != pool.Stat().TotalConns() {
		t.Errorf("%d of %d connections of a pool showed a certificate", got, pool.Stat().TotalConns())
	}
}
