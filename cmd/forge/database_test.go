package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/devcluster"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

// TestMissingDatabaseSuggestsTheOneOfForgeDev checks that the error for a missing address says how
// to use the database of a forge dev that runs from this directory.
func TestMissingDatabaseSuggestsTheOneOfForgeDev(t *testing.T) {
	t.Chdir(t.TempDir())
	const hint = "export FORGE_DATABASE_URL="
	if err := requireDatabase(&config.Config{}); err == nil || strings.Contains(err.Error(), hint) {
		t.Errorf("nothing runs: %v", err)
	}
	folder, err := devcluster.DefaultDataDir()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(folder, devcluster.URLFile)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("postgres://here"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	if err := requireDatabase(&config.Config{}); err == nil || !strings.HasSuffix(err.Error(), hint+`"$(cat `+file+`)"`) {
		t.Errorf("forge dev runs: %v", err)
	}
}

// TestInterruptedCommandDoesNotWaitForSilentServer checks that a command ends soon after an
// interrupt although the server has fallen silent.
func TestInterruptedCommandDoesNotWaitForSilentServer(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	for name, connect := range map[string]func(context.Context, *config.Config, databaseWork) error{
		"a command that changes something": connected,
		"a command that reads":             (&app{}).connectedToRead,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			link := pgtest.Proxy(t, url)
			cfg, _, err := config.Parse("test", fmt.Appendf(nil, "[database]\nurl = %q\n", link.URL()), config.LoadOptions{})
			if err != nil {
				t.Fatal(err)
			}
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			var interrupted time.Time
			err = connect(ctx, cfg, func(ctx context.Context, pool *pgxpool.Pool) error {
				link.Stall()
				time.AfterFunc(50*time.Millisecond, interrupt)
				_, err := pool.Exec(ctx, "SELECT 1")
				interrupted = time.Now()
				return err
			})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("the command ended with %v", err)
			}
			if took := time.Since(interrupted); took > 10*time.Second { // pgx takes 15 s to close a connection
				t.Errorf("it took %s to end", took)
			}
		})
	}
}
