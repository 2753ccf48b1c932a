package pgtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/devcluster"
	"github.com/forge-scheduler/forge/migrations"
)

const (
	databasePrefix = "forge_t_"
	// runLockClass is the first half of the advisory lock that a test binary
	// holds while it lives; the second half is in its databases' names.
	runLockClass = 0x74657374
)

const (
	sqlLockRun = `SELECT pg_advisory_lock($1, $2)`
	// Test binaries of several packages start at once.
	sqlLockTemplate   = `SELECT pg_advisory_lock(hashtext('forge_template'))`
	sqlUnlockTemplate = `SELECT pg_advisory_unlock(hashtext('forge_template'))`
	sqlTemplateReady  = `SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1 AND datistemplate)`
	sqlTestDatabases  = `SELECT datname FROM pg_database WHERE datname LIKE 'forge\_t\_%'`
	sqlTryLockRun     = `SELECT pg_try_advisory_lock($1, $2)`
	sqlUnlockRun      = `SELECT pg_advisory_unlock($1, $2)`
)

// run is a test binary's use of a server.
type run struct {
	server   string
	template string
	id       int32
	conn     *pgx.Conn          // holds the run's lock until the process ends
	own      *devcluster.Server // ends with the process; nil on a given server
}

func prepare(ctx context.Context) (*run, error) {
	r := &run{server: os.Getenv(EnvURL), id: rand.Int32()}
	if r.server == "" {
		own, err := StartOwn(ctx, slog.New(slog.NewTextHandler(os.Stderr, nil)), BinDir())
		if err != nil {
			return nil, fmt.Errorf("%s is not set and: %w", EnvURL, err)
		}
		r.own, r.server = own, own.URL()
	}
	var err error
	if r.conn, err = pgx.Connect(ctx, r.server); err != nil {
		return nil, err
	}
	if err := r.prepareOn(ctx); err != nil {
		return nil, errors.Join(err, r.conn.Close(ctx))
	}
	return r, nil
}

func (r *run) prepareOn(ctx context.Context) error {
	if _, err := r.conn.Exec(ctx, sqlLockRun, runLockClass, r.id); err != nil {
		return fmt.Errorf("say that the run lives: %w", err)
	}
	if _, err := r.conn.Exec(ctx, sqlLockTemplate); err != nil {
		return fmt.Errorf("wait for the template database: %w", err)
	}
	err := r.sweep(ctx)
	if err == nil {
		r.template, err = prepareTemplate(ctx, r.conn, r.server)
	}
	_, unlockErr := r.conn.Exec(ctx, sqlUnlockTemplate)
	return errors.Join(err, unlockErr)
}

// StartOwn starts a server for tests: a new one on a temporary directory,
// without fsync, that goes with the process. Empty binDir searches for
// PostgreSQL's programs.
func StartOwn(ctx context.Context, logger *slog.Logger, binDir string) (*devcluster.Server, error) {
	dir, err := os.MkdirTemp("", "forge-pgtest-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for the test server: %w", err)
	}
	server, err := devcluster.StartServer(ctx, devcluster.ServerOptions{
		DataDir: dir, BinDir: binDir, Ephemeral: true, Logger: logger, Settings: testSettings(),
	})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return server, nil
}

// testSettings trade the survival of a power cut for speed. A crash of the
// server itself loses nothing under them.
func testSettings() map[string]string {
	return map[string]string{"fsync": "off", "full_page_writes": "off", "max_connections": "400"}
}

// sweep drops the databases of runs that died: those whose lock is free.
func (r *run) sweep(ctx context.Context) error {
	rows, err := r.conn.Query(ctx, sqlTestDatabases)
	if err != nil {
		return fmt.Errorf("list the test databases: %w", err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("list the test databases: %w", err)
	}
	for _, name := range names {
		if err := r.dropIfDead(ctx, name); err != nil {
			return fmt.Errorf("drop the test database %s of a dead run: %w", name, err)
		}
	}
	return nil
}

func (r *run) dropIfDead(ctx context.Context, name string) error {
	hexID, _, _ := strings.Cut(strings.TrimPrefix(name, databasePrefix), "_")
	id, err := strconv.ParseUint(hexID, 16, 32)
	if err != nil || int32(id) == r.id {
		return nil //nolint:nilerr // not a name that a run gives
	}
	var dead bool
	if err := r.conn.QueryRow(ctx, sqlTryLockRun, runLockClass, int32(id)).Scan(&dead); err != nil || !dead {
		return err
	}
	_, err = r.conn.Exec(ctx, "DROP DATABASE IF EXISTS "+pgx.Identifier{name}.Sanitize()+" WITH (FORCE)")
	_, unlockErr := r.conn.Exec(ctx, sqlUnlockRun, runLockClass, int32(id))
	return errors.Join(err, unlockErr)
}

func prepareTemplate(ctx context.Context, conn *pgx.Conn, server string) (string, error) {
	hash, err := migrationHash()
	if err != nil {
		return "", err
	}
	name := "forge_template_" + hash
	var ready bool
	if err := conn.QueryRow(ctx, sqlTemplateReady, name).Scan(&ready); err != nil || ready {
		return name, err
	}
	if _, err := conn.Exec(ctx, "DROP DATABASE IF EXISTS "+name); err != nil {
		return "", err
	}
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+name); err != nil {
		return "", err
	}
	if err := migrate(ctx, withDatabase(server, name)); err != nil {
		return "", err
	}
	_, err = conn.Exec(ctx, fmt.Sprintf("ALTER DATABASE %s WITH is_template true", name))
	return name, err
}

func migrate(ctx context.Context, url string) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	return migrations.New(pool, slog.New(slog.DiscardHandler)).Up(ctx)
}

// migrationHash names what the template holds: forge's migrations and, by
// their module's version, River's.
func migrationHash() (string, error) {
	sum := sha256.New()
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if module.Path == "github.com/riverqueue/river" {
				sum.Write([]byte(module.Version))
			}
		}
	}
	err := fs.WalkDir(migrations.Files(), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		body, err := fs.ReadFile(migrations.Files(), path)
		sum.Write([]byte(path))
		sum.Write(body)
		return err
	})
	return hex.EncodeToString(sum.Sum(nil))[:12], err
}
