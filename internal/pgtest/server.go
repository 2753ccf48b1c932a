package pgtest

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/forge-scheduler/forge/internal/pgembed"
)

// OwnServer is a PostgreSQL of one test, for tests that break it.
type OwnServer struct {
	t       testing.TB
	options pgembed.Options
	running *pgembed.Server // nil while stopped
	url     string
}

// Server starts a PostgreSQL for this test alone, with a migrated database; it
// costs one to two seconds. It goes when the test ends.
func Server(t testing.TB) *OwnServer {
	t.Helper()
	parent, err := os.MkdirTemp("", "forge-pgtest-")
	if err == nil {
		err = os.Chmod(parent, 0o755) //nolint:gosec // under root another user's server has to walk through
	}
	if err != nil {
		t.Fatalf("make a directory for the test's own server: %v", err)
	}
	s := &OwnServer{t: t, options: pgembed.Options{
		DataDir: filepath.Join(parent, "server"), BinDir: BinDir(), Settings: testSettings(),
	}}
	t.Cleanup(func() {
		s.Stop(pgembed.Immediate)
		_ = os.RemoveAll(parent)
	})
	s.Start()
	s.url = s.running.URL()
	s.options.Port = s.running.Port()
	if err := migrate(context.Background(), s.url); err != nil {
		t.Fatalf("migrate the test's own server: %v", err)
	}
	return s
}

// URL is the address of the server's migrated database. It stays the same over
// restarts.
func (s *OwnServer) URL() string { return s.url }

// Start starts the server again, on its port. It accepts connections when
// Start returns.
func (s *OwnServer) Start() {
	s.t.Helper()
	if s.running != nil {
		return
	}
	server, err := pgembed.Start(context.Background(), s.options)
	if err != nil {
		s.t.Fatalf("start the test's own server: %v", err)
	}
	s.running = server
}

// Stop ends the server in the mode: fast, immediate or kill.
func (s *OwnServer) Stop(mode pgembed.Mode) {
	s.t.Helper()
	if s.running == nil {
		return
	}
	err := s.running.Stop(mode)
	s.running = nil
	if err != nil {
		s.t.Errorf("stop the test's own server: %v", err)
	}
}

// Restart stops the server in the mode and starts it again.
func (s *OwnServer) Restart(mode pgembed.Mode) {
	s.t.Helper()
	s.Stop(mode)
	s.Start()
}
