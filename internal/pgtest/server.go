package pgtest

import (
	"context"
	"maps"
	"path/filepath"
	"testing"

	"github.com/forge-scheduler/forge/internal/devcluster"
	"github.com/forge-scheduler/forge/test/nodes"
	"github.com/forge-scheduler/forge/test/parts"
)

// OwnServer is a PostgreSQL of one test, for tests that break it.
type OwnServer struct {
	tb      testing.TB
	options devcluster.ServerOptions
	running *devcluster.Server // nil while stopped
	url     string
	within  func(func()) // where it has to be started; nil: anywhere
}

// Server starts a PostgreSQL for this test alone, with a migrated database, that
// the namespaces reach, too; it costs one to two seconds. It goes when the test
// ends.
func Server(tb testing.TB, namespaces ...*parts.Namespace) *OwnServer {
	tb.Helper()
	parent := nodes.OpenDir(tb)
	s := newServer(tb, parent)
	if len(namespaces) > 0 {
		reachable, err := parts.Reachable(filepath.Join(parent, "pg_hba.conf"), namespaces...)
		if err != nil {
			tb.Fatal(err)
		}
		maps.Copy(s.options.Settings, reachable)
	}
	return s.begin()
}

// ServerWith starts one with further settings.
func ServerWith(tb testing.TB, settings map[string]string) *OwnServer {
	tb.Helper()
	s := newServer(tb, nodes.OpenDir(tb))
	maps.Copy(s.options.Settings, settings)
	return s.begin()
}

// ServerOnDisk starts one on a disk of so many megabytes, to be filled.
func ServerOnDisk(tb testing.TB, megabytes int) (*OwnServer, *parts.Disk) {
	tb.Helper()
	dir := nodes.OpenDir(tb)
	disk, err := parts.NewDisk(context.Background(), dir, megabytes)
	if err != nil {
		notRunIfMissing(tb, err)
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = disk.Close() })
	s := newServer(tb, dir)
	s.within = disk.Within
	// What it keeps for later would be room, too.
	maps.Copy(s.options.Settings, map[string]string{"min_wal_size": "32MB", "max_wal_size": "64MB"})
	return s.begin(), disk
}

// ServerWithClock starts one whose clock can be set.
func ServerWithClock(tb testing.TB) (*OwnServer, *parts.Clock) {
	tb.Helper()
	parent := nodes.OpenDir(tb)
	s := newServer(tb, parent).begin()
	clock, err := parts.NewClock(s.running.BinDir(), parent)
	if err != nil {
		notRunIfMissing(tb, err)
		tb.Fatal(err)
	}
	s.Stop(devcluster.StopFast)
	s.options.BinDir = parent
	s.Start()
	return s, clock
}

// newServer is one that is yet to be started.
func newServer(tb testing.TB, dir string) *OwnServer {
	tb.Helper()
	return &OwnServer{tb: tb, options: devcluster.ServerOptions{
		DataDir: filepath.Join(dir, "server"), BinDir: BinDir(), Settings: testSettings(),
	}}
}

// begin starts it for the first time, and migrates.
func (s *OwnServer) begin() *OwnServer {
	s.tb.Helper()
	s.tb.Cleanup(func() { s.Stop(devcluster.StopImmediate) })
	s.Start()
	s.url = s.running.URL()
	s.options.Port = s.running.Port()
	if err := migrate(context.Background(), s.url); err != nil {
		s.tb.Fatalf("migrate the test's own server: %v", err)
	}
	return s
}

// ReplicaWaits is a statement that is true while a commit waits for a synchronous replica.
const ReplicaWaits = `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep')`

// MissReplica lets every commit wait for a synchronous replica that does not exist.
func (s *OwnServer) MissReplica() {
	s.tb.Helper()
	s.awaitReplica("missing")
}

// RestoreReplica lets commits succeed again after MissReplica.
func (s *OwnServer) RestoreReplica() {
	s.tb.Helper()
	s.awaitReplica("")
}

func (s *OwnServer) awaitReplica(name string) {
	s.tb.Helper()
	exec(s.tb, s.url, `ALTER SYSTEM SET synchronous_standby_names = '`+name+`'`)
	exec(s.tb, s.url, `SELECT pg_reload_conf()`)
	pool := Connect(s.tb, s.url)
	for commit := "unknown"; commit != name; {
		if err := pool.QueryRow(context.Background(), `SHOW synchronous_standby_names`).Scan(&commit); err != nil {
			s.tb.Fatalf("let commits wait for replica %q: %v", name, err)
		}
	}
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
	var server *devcluster.Server
	var err error
	start := func() { server, err = devcluster.StartServer(context.Background(), s.options) }
	if s.within == nil {
		start()
	} else {
		s.within(start)
	}
	if err != nil {
		s.tb.Fatalf("start the test's own server: %v", err)
	}
	s.running = server
}

// Revive starts the server if it has ended by itself.
func (s *OwnServer) Revive() {
	s.tb.Helper()
	if s.running != nil {
		select {
		case <-s.running.Done():
			s.running = nil
		default:
		}
	}
	s.Start()
}

// Stop ends the server in the mode: fast, immediate or kill.
func (s *OwnServer) Stop(mode devcluster.StopMode) {
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
func (s *OwnServer) Restart(mode devcluster.StopMode) {
	s.tb.Helper()
	s.Stop(mode)
	s.Start()
}
