package jobs

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

type shelf struct {
	saves [][]jobstore.LogChunk
	err   error
}

func (s *shelf) save(_ context.Context, chunks []jobstore.LogChunk) error {
	s.saves = append(s.saves, chunks)
	return s.err
}

func (s *shelf) text() string {
	var b strings.Builder
	for _, chunks := range s.saves {
		for _, chunk := range chunks {
			b.WriteString(chunk.Chunk)
		}
	}
	return b.String()
}

func TestOutputIsFlushedByTimeAndBySize(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s shelf
		o := newOutput(s.save, slog.New(slog.DiscardHandler))
		w := o.stream(jobstore.StreamStdout)
		_, _ = w.Write([]byte("a"))
		_, _ = w.Write([]byte("b"))
		time.Sleep(flushInterval + time.Millisecond)
		synctest.Wait()
		if len(s.saves) != 1 || s.text() != "ab" {
			t.Fatalf("after the interval: %v", s.saves)
		}
		_, _ = w.Write(make([]byte, flushBytes))
		synctest.Wait()
		if len(s.saves) != 2 {
			t.Errorf("%d saves after a full chunk, want 2", len(s.saves))
		}
		o.close(t.Context())
		if len(s.saves) != 2 {
			t.Errorf("close saved nothing new, yet there are %d saves", len(s.saves))
		}
	})
}

func TestSilentAttemptSavesNothing(t *testing.T) {
	t.Parallel()
	var s shelf
	newOutput(s.save, slog.New(slog.DiscardHandler)).close(t.Context())
	if len(s.saves) != 0 {
		t.Errorf("got %v", s.saves)
	}
}

func TestRunesAreWholeAndSafe(t *testing.T) {
	t.Parallel()
	var s shelf
	o := newOutput(s.save, slog.New(slog.DiscardHandler))
	w := o.stream(jobstore.StreamStdout)
	for _, part := range []string{"x\xe2", "\x82", "\xac y\x00z\xff", "\xf0\x9f"} { // € in three writes
		_, _ = w.Write([]byte(part))
	}
	o.close(t.Context())
	if got, want := s.text(), "x€ y\uFFFDz\uFFFD\uFFFD"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestOutputThatCannotBeStoredIsCounted(t *testing.T) {
	t.Parallel()
	s := shelf{err: errors.New("no database")}
	o := newOutput(s.save, slog.New(slog.DiscardHandler))
	_, _ = o.stream(jobstore.StreamStderr).Write([]byte("lost"))
	o.close(t.Context())
	if written, dropped := o.totals(); written != 4 || dropped != 4 {
		t.Errorf("%d written, %d dropped, want 4 and 4", written, dropped)
	}
}

func TestBackoffDoublesUpToItsMost(t *testing.T) {
	t.Parallel()
	retry := config.Retry{Backoff: config.Duration(time.Second), MaxBackoff: config.Duration(10 * time.Second)}
	for attempt, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 4: 8 * time.Second, 5: 10 * time.Second, 1000: 10 * time.Second} {
		if got := backoff(retry, attempt); got < want*9/10 || got > want*11/10 {
			t.Errorf("attempt %d: got %s, want %s give or take a tenth", attempt, got, want)
		}
	}
}

func TestRedactor(t *testing.T) {
	t.Parallel()
	r := newRedactor(config.Job{
		Headers:  map[string]string{"Authorization": "Bearer abcdef", "Accept": "text/plain"},
		Env:      map[string]string{"API_TOKEN": "t0k3n", "COLOUR": "blue", "KEY": "x"},
		Database: "postgres://u:pa%20ss@h/db",
	}, "host=h password=cluster")
	text := "Bearer abcdef, abcdef, text/plain, t0k3n, blue, x, pa ss, pa+ss, cluster"
	want := "[redacted], [redacted], text/plain, [redacted], blue, x, [redacted], [redacted], [redacted]"
	if got := r.text(text); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if err := r.error(context.Canceled); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
