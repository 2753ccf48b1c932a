// Package pgtest gives each test a migrated PostgreSQL database of its own,
// cloned from one template.
package pgtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/migrations"
)

// EnvURL names the environment variable with the address of the server that the
// tests may create databases on.
const EnvURL = "FORGE_TEST_DATABASE_URL"

var (
	templateOnce sync.Once
	templateName string
	errTemplate  error
	counter      atomic.Int64
)

// URL returns the address of a fresh, migrated database that is dropped when
// the test ends. Without a server the test fails: it is never skipped.
func URL(t testing.TB) string {
	t.Helper()
	server := os.Getenv(EnvURL)
	if server == "" {
		t.Fatalf("no PostgreSQL for the tests: set %s or run them with make test", EnvURL)
	}
	ctx := context.Background()
	templateOnce.Do(func() { templateName, errTemplate = prepareTemplate(ctx, server) })
	if errTemplate != nil {
		t.Fatalf("prepare the template database: %v", errTemplate)
	}
	name := fmt.Sprintf("forge_test_%d_%d", os.Getpid(), counter.Add(1))
	exec(t, server, fmt.Sprintf("CREATE DATABASE %s TEMPLATE %s", name, templateName))
	t.Cleanup(func() { exec(t, server, fmt.Sprintf("DROP DATABASE IF EXISTS %s WITH (FORCE)", name)) })
	return withDatabase(server, name)
}

// Pool returns a pool on a fresh, migrated database.
func Pool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return Connect(t, URL(t))
}

// Connect returns a pool on url that is closed when the test ends.
func Connect(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), url)
	if err != nil {
		t.Fatalf("connect to the test database: %v", err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func prepareTemplate(ctx context.Context, server string) (string, error) {
	hash, err := migrationHash()
	if err != nil {
		return "", err
	}
	name := "forge_template_" + hash
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close(ctx) }()
	// Test binaries of several packages start at once.
	if _, err := conn.Exec(ctx, `SELECT pg_advisory_lock(hashtext('forge_template'))`); err != nil {
		return "", err
	}
	var ready bool
	if err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1 AND datistemplate)`,
		name).Scan(&ready); err != nil || ready {
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

func migrationHash() (string, error) {
	sum := sha256.New()
	err := fs.WalkDir(migrations.Files(), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		body, err := fs.ReadFile(migrations.Files(), path)
		sum.Write(body)
		return err
	})
	return hex.EncodeToString(sum.Sum(nil))[:12], err
}

func exec(t testing.TB, server, sql string) {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		t.Fatalf("connect to the test server: %v", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func withDatabase(server, name string) string {
	parsed, err := url.Parse(server)
	if err != nil || !strings.HasPrefix(parsed.Scheme, "postgres") {
		return server + " dbname=" + name
	}
	parsed.Path = "/" + name
	return parsed.String()
}
