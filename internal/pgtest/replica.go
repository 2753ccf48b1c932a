package pgtest

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/devcluster"
	"github.com/forge-scheduler/forge/test/parts"
)

// promotionTimeout bounds the wait for a replica.
const promotionTimeout = 5 * time.Minute

// Replica makes a streaming replica of the server with pg_basebackup. From then
// on the server waits for it at each commit, so that a promotion loses nothing.
func (s *OwnServer) Replica() *OwnServer {
	s.tb.Helper()
	dir := filepath.Join(filepath.Dir(s.options.DataDir), "replica")
	running, launch, err := parts.Replicate(context.Background(), s.running, s.options, dir)
	if err != nil {
		notRunIfMissing(s.tb, err)
		s.tb.Fatalf("replicate the test's own server: %v", err)
	}
	replica := &OwnServer{tb: s.tb, options: launch, running: running, url: running.URL()}
	s.tb.Cleanup(func() { replica.Stop(devcluster.StopImmediate) })
	if err := parts.Synchronous(context.Background(), s.url); err != nil {
		s.tb.Fatalf("wait for the replica: %v", err)
	}
	return replica
}

// Promote makes the replica a primary and returns when it takes writes.
func (s *OwnServer) Promote() time.Time {
	s.tb.Helper()
	asked := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), promotionTimeout)
	defer cancel()
	writable, err := parts.Promote(ctx, s.url)
	if err != nil {
		s.tb.Fatalf("promote the replica: %v", err)
	}
	s.tb.Logf("the replica took writes after %s", writable.Sub(asked))
	return writable
}

// Namespace makes a network for one process, to be broken.
func Namespace(tb testing.TB) *parts.Namespace {
	tb.Helper()
	namespace, err := parts.NewNamespace(context.Background())
	if err != nil {
		notRunIfMissing(tb, err)
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = namespace.Close() })
	return namespace
}

// Program finds an installed program that a test needs.
func Program(tb testing.TB, name, install string) string {
	tb.Helper()
	path, err := parts.Program(name, install)
	if err != nil {
		notRunIfMissing(tb, err)
		tb.Fatal(err)
	}
	return path
}

func notRunIfMissing(tb testing.TB, err error) {
	tb.Helper()
	if missing, ok := errors.AsType[*parts.MissingError](err); ok {
		NotRun(tb, missing.Part, missing.Install)
	}
}
