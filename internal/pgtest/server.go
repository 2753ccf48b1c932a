package pgtest

import (
	"context"
	"maps"
	"path/filepath"
	"testing"

	"github.com/forge-scheduler/forge/internal/pgembed"
	"github.com/forge-scheduler/forge/test/nodes"
	"github.com/forge-scheduler/forge/test/parts"
)

// OwnServer is a PostgreSQL of one test, for tests that break it.
type OwnServer struct {
	tb      testing.TB
	options pgembed.Options
	running *pgembed.Server // nil while stopped
	url     string
}

// Server starts a PostgreSQL for this test alone, with a migrated database, that
// the namespaces reach, too; it costs one to two seconds. It goes when the test
// ends.
func Server(tb testing.TB, namespaces ...*parts.Namespace) *OwnServer {
	tb.Helper()
	parent := nodes.OpenDir(tb)
	settings := testSettings()
	if len(namespaces) > 0 {
		reachable, err := parts.Reachable(filepath.Join(parent, "pg_hba.conf"), namespaces...)
		if err != nil {
			tb.Fatal(err)
		}
		maps.Copy(settings, reachable)
	}
	s := &OwnServer{tb: tb, options: pgembed.Options{
		DataDir: filepath.Join(parent, "server"), BinDir: BinDir(), Settings: settings,
	}}
	tb.Cleanup(func() { s.Stop(pgembed.Immediate) })
	s.Start()
	s.url = s.running.URL()
	s.options.Port = s.running.Port()
	if err := migrate(context.Background(), s.url); err != nil {
		tb.Fatalf("migrate the test's own server: %v", err)
	}
	return s
}

// URL is the address of the server's migrated database. It stays the same over
// restarts.
func (s *OwnServer) URL() string { return s.url }

// Start starts the server again, on its port. It accepts connections when
// Start returns.
func (s *OwnServer) Start() {
	s.tb.Helper()
	if s.running != nil {
		return
	}
	server, err := pgembed.Start(context.Background(), s.options)
	if err != nil {
		s.tb.Fatalf("start the test's own server: %v", err)
	}
	s.running = server
}

// Stop ends the server in the mode: fast, immediate or kill.
func (s *OwnServer) Stop(mode pgembed.Mode) {
	s.tb.Helper()
	if s.running == nil {
		return
	}
	err := s.running.Stop(mode)
	s.running = nil
	if err != nil {
		s.tb.Errorf("stop the test's own server: %v", err)
	}
}

// Restart stops the server in the mode and starts it again.
func (s *OwnServer) Restart(mode pgembed.Mode) {
	s.tb.Helper()
	s.Stop(mode)
	s.Start()
}
