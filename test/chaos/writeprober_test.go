//go:build patroni

package chaos

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/test/parts"
)

const (
	probeSQL      = `CREATE TABLE chaos_probe AS SELECT now() AS at`
	probeWriteSQL = `UPDATE chaos_probe SET at = now()`
	// probeEvery is the pause between two writes to a server that took the last one, and
	// probeAgain to one that did not.
	probeEvery   = 100 * time.Millisecond
	probeAgain   = 20 * time.Millisecond
	probeTimeout = time.Second
)

// writeProber writes to each server under Patroni all the time.
type writeProber struct {
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	last    map[string]time.Time // a member's last write
	current string               // that took writes last
	outages []primaryOutage
}

func startWriteProber(t *testing.T, patroni *parts.Patroni) *writeProber {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), patroni.Hosts())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), probeSQL); err != nil {
		t.Fatal(err)
	}
	_ = conn.Close(t.Context())
	ctx, cancel := context.WithCancel(t.Context())
	w := &writeProber{cancel: cancel, last: map[string]time.Time{}}
	for _, m := range patroni.Members {
		w.running.Go(func() { w.probe(ctx, m) })
	}
	t.Cleanup(func() { w.stop() })
	return w
}

// stop ends the probe and returns the times in which no server took writes.
func (w *writeProber) stop() []primaryOutage {
	w.cancel()
	w.running.Wait()
	return w.outages
}

// primary is the member that took the last write, if that was a moment ago.
func (w *writeProber) primary() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Since(w.last[w.current]) > probeTimeout {
		return ""
	}
	return w.current
}

// probe writes to one member until ctx ends.
func (w *writeProber) probe(ctx context.Context, m *parts.PatroniMember) {
	var conn *pgx.Conn
	for ctx.Err() == nil {
		var took bool
		if conn, took = write(ctx, conn, m.URL()); took {
			w.note(m.Name, time.Now())
		}
		pause := probeAgain
		if took {
			pause = probeEvery
		}
		time.Sleep(pause)
	}
	if conn != nil {
		_ = conn.Close(context.WithoutCancel(ctx)) // the server may have ended it
	}
}

// write returns the connection for the next write, nil after a connection that has broken.
func write(ctx context.Context, conn *pgx.Conn, url string) (next *pgx.Conn, took bool) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if conn == nil {
		config, err := pgx.ParseConfig(url)
		if err != nil {
			return nil, false
		}
		postgres.ConfirmCommits(&config.Config) // a replaced primary stops waiting for replicas
		if conn, err = pgx.ConnectConfig(ctx, config); err != nil {
			return nil, false
		}
	}
	_, err := conn.Exec(ctx, probeWriteSQL)
	if conn.IsClosed() {
		return nil, false
	}
	return conn, err == nil
}

// note records a write that was confirmed at an instant.
func (w *writeProber) note(member string, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.last[w.current]
	if w.current != "" && (member != w.current || at.Sub(before) > 3*probeEvery) {
		w.outages = append(w.outages, primaryOutage{member, before, at})
	}
	w.current, w.last[member] = member, at
}
