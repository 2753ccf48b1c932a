package forge

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// attempts counts the statements that begin on a pool.
type attempts struct{ atomic.Int32 }

func (a *attempts) TraceAcquireStart(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireStartData) context.Context {
	a.Add(1)
	return ctx
}

func (*attempts) TraceAcquireEnd(context.Context, *pgxpool.Pool, pgxpool.TraceAcquireEndData) {}

func (*attempts) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (*attempts) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// silentNode returns a node whose server accepts connections and never answers. For a test with
// testing/synctest: its connections are pipes.
func silentNode(t *testing.T, cfg *Config, logged io.Writer, opts ...Option) (*Node, *attempts) {
	t.Helper()
	n, err := New(cfg, append(opts, WithLogger(slog.New(slog.NewTextHandler(logged, nil))))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	config, err := pgxpool.ParseConfig("postgres://u@127.0.0.1/d?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	var tried attempts
	config.ConnConfig.Tracer = &tried
	config.ConnConfig.ConnectTimeout = 1000 * time.Hour
	config.ConnConfig.LookupFunc = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil }
	config.ConnConfig.DialFunc = func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, server) }()
		return client, nil
	}
	if n.pool, err = pgxpool.NewWithConfig(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.pool.Close)
	return n, &tried
}

// A loop of a node sends its next statements even if the server does not answer the first ones.
func TestLoopsGoOnAfterSilence(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		loop   func(n *Node) func(context.Context) error
		within time.Duration
	}{
		"health": {func(n *Node) func(context.Context) error { return n.watchHealth }, time.Minute},
		"rows":   {func(n *Node) func(context.Context) error { return n.keepRows }, 3 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n, tried := silentNode(t, parsed(t, localSections("postgres://u@127.0.0.1/d")+cronsOf("one")), io.Discard)
				ctx, stop := context.WithTimeout(t.Context(), test.within)
				defer stop()
				if err := test.loop(n)(ctx); err != nil {
					t.Fatal(err)
				}
				if tried.Load() < 3 {
					t.Errorf("%d statements within %s", tried.Load(), test.within)
				}
			})
		})
	}
}

// An attempt to apply a file to a server that does not answer is given up, with a line in the
// log, whether the file is valid or not. One that takes a minute is not.
func TestReloadIsGivenUpAfterSilence(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "forge.toml")
	writeFile(t, path, "# not empty")
	text := localSections("postgres://u@127.0.0.1/d")
	for name, test := range map[string]struct {
		load func() (*Config, error)
		log  string
	}{
		"valid":   {func() (*Config, error) { return ParseConfig("test", text+cronsOf("one", "two")) }, "could not apply the configuration yet, will retry"},
		"refused": {func() (*Config, error) { return nil, errors.New("mistake") }, "configuration refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var logged logBuffer
				n, tried := silentNode(t, parsed(t, text+cronsOf("one")), &logged, WithFile(path, test.load))
				r := &reloader{node: n, watcher: newFileWatcher(path, n.logger)}
				ctx, stop := context.WithTimeout(t.Context(), time.Hour)
				defer stop()
				began := time.Now()
				err := r.reload(ctx, true)
				if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil || tried.Load() == 0 {
					t.Errorf("%v after %d statements", err, tried.Load())
				}
				if took := time.Since(began); took < time.Minute || took > 10*time.Minute {
					t.Errorf("given up after %s", took)
				}
				if !logged.hasLine(test.log) {
					t.Errorf("no line %q", test.log)
				}
			})
		})
	}
}
