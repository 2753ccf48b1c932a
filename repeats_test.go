package forge

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// written is a buffer that timers may write to while a test reads it.
type written struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (w *written) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

// take returns what was written since the last call.
func (w *written) take() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.text.Reset()
	return w.text.String()
}

// newLogger returns a logger, a function that returns the logged lines without
// their times, and the flush function.
func newLogger() (logger *slog.Logger, lines func() []string, flush func()) {
	var text written
	handler := newRepeatHandler(slog.NewTextHandler(&text, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, attr slog.Attr) slog.Attr {
			if attr.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return attr
		},
	}))
	lines = func() []string { return strings.Split(strings.TrimSpace(text.take()), "\n") }
	return slog.New(handler), lines, handler.Flush
}

// afterTimers runs the timers that are due before the lines are read.
func afterTimers(lines func() []string) func() []string {
	return func() []string {
		synctest.Wait()
		return lines()
	}
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestRepeatsAreCountedOnceAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		logger, read, flush := newLogger()
		lines := afterTimers(read)
		for i := range 3 {
			logger.Warn("heartbeat failed", "error", fmt.Errorf("dial 127.0.0.1:%d: refused", 40000+i), "attempt", i, "sleep_duration", time.Duration(i).String())
		}
		expect(t, lines(), `level=WARN msg="heartbeat failed" error="dial 127.0.0.1:40000: refused" attempt=0 sleep_duration=0s`)

		time.Sleep(repeatsEvery)
		synctest.Wait()
		expect(t, lines(), `level=WARN msg="heartbeat failed" error="dial 127.0.0.1:40002: refused" attempt=2 sleep_duration=2ns repeated=2`)

		logger.Warn("heartbeat failed", "error", errors.New("dial 127.0.0.1:5: refused"))
		expect(t, lines(), "")
		flush()
		expect(t, lines(), `level=WARN msg="heartbeat failed" error="dial 127.0.0.1:5: refused" repeated=1`)
		logger.Warn("heartbeat failed", "error", errors.New("dial 127.0.0.1:5: refused"))
		expect(t, lines(), `level=WARN msg="heartbeat failed" error="dial 127.0.0.1:5: refused"`)
	})
}

func TestRecordIsLoggedAgainAfterQuietMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		logger, read, _ := newLogger()
		lines := afterTimers(read)
		for range 2 {
			logger.Error("renewal failed")
			expect(t, lines(), `level=ERROR msg="renewal failed"`)
			time.Sleep(repeatsEvery)
			synctest.Wait()
			expect(t, lines(), "")
		}
	})
}

func TestDifferentRecordsPass(t *testing.T) {
	t.Parallel()
	logger, lines, flush := newLogger()
	defer flush()
	logger.Warn("node is dead", "dead_node", "n1")
	logger.Warn("node is dead", "dead_node", "n2")
	logger.Error("node is dead", "dead_node", "n2")
	logger.With("role", "scheduler").Warn("renewal failed")
	logger.With("role", "log_compactor").Warn("renewal failed")
	logger.Warn("job ran", "job", "mail", "error", "exit status 1")
	logger.Warn("job ran", "job", "mail", "error", "exit status 2")
	logger.Info("role taken")
	logger.Info("role taken")
	if got := lines(); len(got) != 9 {
		t.Errorf("%d lines:\n%s", len(got), strings.Join(got, "\n"))
	}
}

// Servers that fail over answer each attempt in another way.
func TestFailedConnectionsAreComparedByTheirReason(t *testing.T) {
	t.Parallel()
	logger, lines, flush := newLogger()
	defer flush()
	connect := func(hosts string) error {
		_, err := pgconn.Connect(t.Context(), "postgres://u@"+hosts+"/d?sslmode=disable")
		return fmt.Errorf("claim jobs: %w", err)
	}
	one, two := connect("127.0.0.1:1"), connect("127.0.0.1:1,127.0.0.1:2")
	if one.Error() == two.Error() || !strings.Contains(two.Error(), "refused") {
		t.Fatalf("the errors do not differ: %v, %v", one, two)
	}
	logger.Warn("claiming failed", "error", one)
	logger.Warn("claiming failed", "error", two)
	logger.Warn("claiming failed", "error", errors.Join(two, pgconn.ErrReadOnlyConnection))
	logger.Warn("claiming failed", "error", fmt.Errorf("write results: %w", errors.Unwrap(two)))
	if got := lines(); len(got) != 3 {
		t.Errorf("%d lines, want one for each operation and reason:\n%s", len(got), strings.Join(got, "\n"))
	}
}

func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	logger, lines, flush := newLogger()
	for i := range 2000 {
		logger.Warn("refused", "name", fmt.Sprint("n", i))
	}
	for range 2 {
		logger.Warn("refused", "name", "n1999")
	}
	if got := len(lines()); got != 2002 {
		t.Errorf("%d of 2002 lines: those beyond the bound pass", got)
	}
	logger.Warn("refused", "name", "n0")
	flush()
	expect(t, lines(), "level=WARN msg=refused name=n0 repeated=1")
}
