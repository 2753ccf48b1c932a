package singleton_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forge-scheduler/forge/internal/singleton"
	"github.com/forge-scheduler/forge/leaderstore"
)

// database returns the leaders that the test has set.
type database struct {
	mu      sync.Mutex
	leaders []leaderstore.Leader
	err     error
}

func (d *database) read(context.Context) ([]leaderstore.Leader, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.leaders, d.err
}

func (d *database) set(err error, leaders ...leaderstore.Leader) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.leaders, d.err = leaders, err
}

func leads(role, node string) leaderstore.Leader {
	now := time.Now()
	return leaderstore.Leader{Role: role, NodeID: node, Term: 7, LeaseUntil: now.Add(time.Second), Now: now}
}

func keep(t *testing.T, d *database, path string) (changes chan struct{}, stop func()) {
	t.Helper()
	changes = make(chan struct{})
	k := singleton.NewLeaderFile(singleton.LeaderFileOptions{
		Path: path, Role: "scheduler", Leaders: d.read, Interval: time.Second, StaleAfter: 3 * time.Second,
		Changes: changes, Logger: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	synctest.Wait()
	return changes, func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func demand(t *testing.T, path, want string) {
	t.Helper()
	line, err := os.ReadFile(path)
	if err != nil || string(line) != want+"\n" {
		t.Fatalf("%s says %q, %v; want %q", path, line, err, want)
	}
	body, err := os.ReadFile(path + ".json")
	var document struct {
		NodeID string `json:"node_id"`
	}
	if err != nil || json.Unmarshal(body, &document) != nil || document.NodeID != want {
		t.Fatalf("%s.json says %s, %v; want %q", path, body, err, want)
	}
}

func TestFileFollowsTheLeader(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var d database
		d.set(nil, leads("scheduler", "a"), leads("log_compactor", "b"))
		path := filepath.Join(dir, "leader")
		changes, stop := keep(t, &d, path)
		demand(t, path, "a")
		if err := os.Remove(path); err != nil { // another node on this machine stopped
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		demand(t, path, "a")
		d.set(nil, leads("scheduler", "c"))
		changes <- struct{}{}
		synctest.Wait()
		demand(t, path, "c")
		vacant := leads("scheduler", "")
		d.set(nil, vacant)
		time.Sleep(time.Second)
		synctest.Wait()
		demand(t, path, "")
		stop()
		if left, _ := os.ReadDir(dir); len(left) != 0 {
			t.Errorf("left behind: %v", left)
		}
	})
}

// If the leader is unknown, the file is empty: a node that is cut off must not name
// a leader forever.
func TestSilentDatabaseMeansNoLeader(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var d database
		d.set(nil, leads("scheduler", "a"))
		path := filepath.Join(dir, "leader")
		_, stop := keep(t, &d, path)
		defer stop()
		d.set(errors.New("cut off"))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		demand(t, path, "a")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		demand(t, path, "")
		d.set(nil, leads("scheduler", "a"))
		time.Sleep(time.Second)
		synctest.Wait()
		demand(t, path, "a")
	})
}

func TestFileOfKilledProcessIsCleared(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(dir, "leader")
		for name, text := range map[string]string{path: "a\n", path + ".json": `{"node_id": "a"}`} {
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var d database
		d.set(errors.New("cut off"))
		_, stop := keep(t, &d, path)
		defer stop()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		demand(t, path, "a")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		demand(t, path, "")
	})
}

func TestClearLeaderFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "leader")
	if err := singleton.ClearLeaderFile(path, "nightly"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file was made: %v", err)
	}
	if err := os.WriteFile(path, []byte("a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := singleton.ClearLeaderFile(path, "nightly"); err != nil {
		t.Error(err)
	}
	demand(t, path, "")
}

func TestEachRoleHasItsOwnFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var d database
		d.set(nil, leads("scheduler", "a"), leads("log_compactor", "b"))
		_, stop := keep(t, &d, filepath.Join(dir, "{role}.leader"))
		defer stop()
		demand(t, filepath.Join(dir, "scheduler.leader"), "a")
		demand(t, filepath.Join(dir, "log_compactor.leader"), "b")
	})
}
