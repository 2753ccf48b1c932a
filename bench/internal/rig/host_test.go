package rig

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/migrations"
)

// A bench on a server at an address leaves nothing there.
func TestDatabasesOnAServerAtAnAddressAreDropped(t *testing.T) {
	server, err := New(t.Context(), "rig-test", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() }) // the test is over
	t.Setenv(HostEnv, server.Server.URL())
	if _, err := New(t.Context(), "rig-test", nil); err == nil || !strings.Contains(err.Error(), "leave HOST out") {
		t.Errorf("a bench that needs a server of its own: %v", err)
	}
	r, err := NewAnywhere(t.Context(), "rig-test", map[string]string{"max_connections": "7"})
	if err != nil {
		t.Fatal(err)
	}
	_, pool, err := r.Database(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if err := r.Checkpoint(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := r.ServerCPU(); !errors.Is(err, ErrRemote) {
		t.Errorf("the server's processor time: %v", err)
	}
	settings := map[string]any{}
	if err := r.Describe(t.Context(), settings); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"server", "server_clock_ahead", "server_cpu", "postgresql", "machine"} {
		if settings[key] == nil {
			t.Errorf("no %s in %v", key, settings)
		}
	}
	if text, _ := settings["server"].(string); strings.Contains(text, "max_connections 7") {
		t.Errorf("%q does not have the server's own settings", text)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	var left int
	if err := server.admin.QueryRow(t.Context(), `SELECT count(*) FROM pg_database WHERE datname LIKE 'forge\_bench%'`).Scan(&left); err != nil || left != 0 {
		t.Errorf("%d databases are left: %v", left, err)
	}
}

func TestDatabaseOfAClusterIsRefused(t *testing.T) {
	server, err := New(t.Context(), "rig-test", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() }) // the test is over
	url, pool, err := server.Database(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if err := migrations.New(pool, slog.New(slog.DiscardHandler)).Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Setenv(HostEnv, url)
	if _, err := NewAnywhere(t.Context(), "rig-test", nil); err == nil || !strings.Contains(err.Error(), "holds a forge cluster") {
		t.Errorf("the database of a cluster: %v", err)
	}
	t.Setenv(HostEnv, "localhost:5432")
	if _, err := NewAnywhere(t.Context(), "rig-test", nil); err == nil || !strings.Contains(err.Error(), "want the address") {
		t.Errorf("no address: %v", err)
	}
}
