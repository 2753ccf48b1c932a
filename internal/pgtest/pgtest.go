// Package pgtest gives each test a migrated PostgreSQL database of its own,
// cloned from one template, and the means to break a real server and a real
// connection.
//
// The databases live on the server named by FORGE_TEST_DATABASE_URL. Without
// it the test binary starts a server for itself, without fsync, that ends with
// the process; `make test` starts one for the whole run (see pgrun).
package pgtest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// EnvURL names the environment variable with the address of the server that
	// the tests may create databases on.
	EnvURL = "FORGE_TEST_DATABASE_URL"
	// EnvBinDir names the environment variable with the directory of the
	// PostgreSQL programs that tests start servers of their own with; empty
	// means that pgembed searches for them.
	EnvBinDir = "FORGE_TEST_POSTGRES_BIN"
)

// prepared is the server of this test binary, made ready by the first test
// that asks for a database.
var prepared = sync.OnceValues(func() (*run, error) { return prepare(context.Background()) })

var counter atomic.Int64

// URL returns the address of a fresh, migrated database that is dropped when
// the test ends. Without a server the test fails: it is never skipped.
func URL(tb testing.TB) string {
	tb.Helper()
	run, err := prepared()
	if err != nil {
		tb.Fatalf("no PostgreSQL for the tests: %v", err)
	}
	return create(tb, run, run.template)
}

// EmptyURL returns the address of a fresh database without forge's tables, for
// the tests of the migrations.
func EmptyURL(tb testing.TB) string {
	tb.Helper()
	run, err := prepared()
	if err != nil {
		tb.Fatalf("no PostgreSQL for the tests: %v", err)
	}
	return create(tb, run, "template1")
}

func create(tb testing.TB, run *run, template string) string {
	tb.Helper()
	name := fmt.Sprintf("%s%08x_%d", databasePrefix, uint32(run.id), counter.Add(1))
	exec(tb, run.server, fmt.Sprintf("CREATE DATABASE %s TEMPLATE %s", name, template))
	tb.Cleanup(func() { exec(tb, run.server, fmt.Sprintf("DROP DATABASE IF EXISTS %s WITH (FORCE)", name)) })
	return withDatabase(run.server, name)
}

// Pool returns a pool on a fresh, migrated database.
func Pool(tb testing.TB) *pgxpool.Pool {
	tb.Helper()
	return Connect(tb, URL(tb))
}

// Connect returns a pool on url that is closed when the test ends.
func Connect(tb testing.TB, url string) *pgxpool.Pool {
	tb.Helper()
	return ConnectBy(tb, url, pgx.QueryExecModeCacheStatement)
}

// ConnectBy is like Connect, with the way in which pgx sends statements. A pooler in transaction
// mode loses prepared statements, so CacheStatement, pgx's default, does not work through it.
func ConnectBy(tb testing.TB, url string, mode pgx.QueryExecMode) *pgxpool.Pool {
	tb.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		tb.Fatalf("connect to the test database: %v", err)
	}
	config.ConnConfig.DefaultQueryExecMode = mode
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		tb.Fatalf("connect to the test database: %v", err)
	}
	tb.Cleanup(pool.Close)
	return pool
}

// BinDir is the directory of PostgreSQL programs given to the run, empty when
// none was.
func BinDir() string { return os.Getenv(EnvBinDir) }

func exec(tb testing.TB, server, sql string) {
	tb.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		tb.Fatalf("connect to the test server: %v", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, sql); err != nil {
		tb.Fatalf("%s: %v", sql, err)
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
