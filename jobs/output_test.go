package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

// fakeLogStore stores output in memory as the table does.
type fakeLogStore struct {
	mu    sync.Mutex
	saves int // statements that stored something
	rows  map[jobstore.RunKey]map[int]jobstore.LogChunk
	// fail returns the result of a statement. after means that it is stored even if it
	// fails.
	fail  func(rows []jobstore.LogRow) error
	after bool
}

func (s *fakeLogStore) LastSeqs(_ context.Context, runs []jobstore.RunKey) (map[jobstore.RunKey]int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := map[jobstore.RunKey]int{}
	for _, run := range runs {
		for seq := range s.rows[run] {
			last[run] = max(last[run], seq)
		}
	}
	return last, nil
}

func (s *fakeLogStore) AppendLogs(_ context.Context, rows []jobstore.LogRow) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	if s.fail != nil {
		err = s.fail(rows)
	}
	if err != nil && !s.after {
		return err
	}
	s.saves++
	for _, row := range rows {
		run := jobstore.RunKey{JobID: row.JobID, Attempt: row.Attempt}
		if s.rows == nil {
			s.rows = map[jobstore.RunKey]map[int]jobstore.LogChunk{}
		}
		if s.rows[run] == nil {
			s.rows[run] = map[int]jobstore.LogChunk{}
		}
		if _, there := s.rows[run][row.Seq]; !there {
			s.rows[run][row.Seq] = row.LogChunk
		}
	}
	return err
}

// answer sets the result of the following statements.
func (s *fakeLogStore) answer(fail func([]jobstore.LogRow) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = fail
}

// text returns a job's output of one stream, or of all.
func (s *fakeLogStore) text(job int64, stream string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	chunks := s.rows[jobstore.RunKey{JobID: job, Attempt: 1}]
	for _, seq := range slices.Sorted(maps.Keys(chunks)) {
		if stream == "" || chunks[seq].Stream == stream {
			b.WriteString(chunks[seq].Chunk)
		}
	}
	return b.String()
}

// startWriter runs a logWriter on the store until the test ends. It must be called in a
// synctest bubble.
func startWriter(t *testing.T, s *fakeLogStore) *logWriter {
	t.Helper()
	w := newLogWriter(s, slog.New(slog.DiscardHandler))
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { w.run(ctx) })
	t.Cleanup(func() {
		stop()
		running.Wait()
		if w.held != 0 {
			t.Errorf("%d bytes are still counted as held", w.held)
		}
	})
	return w
}

func noDatabase([]jobstore.LogRow) error { return errors.New("no database") }

func (o *output) print(text string) { _, _ = io.WriteString(o.stream(jobstore.StreamStdout), text) }

// newOutput returns the output of a job's first attempt.
func newOutput(logs *logWriter, jobID int64) *output {
	o := &output{}
	o.init(logs, jobID, 1)
	return o
}

func TestOutputIsStoredByTimeAndBySize(t *testing.T) {
	t.Parallel()
	s := &fakeLogStore{}
	synctest.Test(t, func(t *testing.T) {
		w := startWriter(t, s)
		o := newOutput(w, 1)
		o.print("a")
		o.print("b")
		time.Sleep(gatherTime + time.Millisecond)
		synctest.Wait()
		if s.saves != 1 || s.text(1, "") != "ab" {
			t.Fatalf("after the interval: %d saves, %q", s.saves, s.text(1, ""))
		}
		o.print(strings.Repeat("x", chunkBytes))
		synctest.Wait()
		if s.saves != 2 {
			t.Errorf("%d saves after a full chunk, want 2", s.saves)
		}
		o.close()
		if s.saves != 2 {
			t.Errorf("close stored nothing new, yet there are %d saves", s.saves)
		}
	})
}

func TestSilentAttemptSavesNothing(t *testing.T) {
	t.Parallel()
	s := &fakeLogStore{}
	synctest.Test(t, func(t *testing.T) {
		w := startWriter(t, s)
		o := newOutput(w, 1)
		o.close()
		o.print("too late") // a goroutine that outlives its worker
		time.Sleep(time.Hour)
		if s.saves != 0 {
			t.Errorf("got %v", s.rows)
		}
	})
}

func TestOutputOfManyAttemptsSharesStatements(t *testing.T) {
	t.Parallel()
	s := &fakeLogStore{}
	synctest.Test(t, func(t *testing.T) {
		w := startWriter(t, s)
		for job := range int64(100) {
			newOutput(w, job).print("hello")
		}
		time.Sleep(gatherTime + time.Millisecond)
		synctest.Wait()
		if s.saves != 1 || len(s.rows) != 100 {
			t.Errorf("%d saves of %d attempts, want 1 of 100", s.saves, len(s.rows))
		}
	})
}

func TestOutputIsValidUTF8(t *testing.T) {
	t.Parallel()
	s := &fakeLogStore{}
	synctest.Test(t, func(t *testing.T) {
		w := startWriter(t, s)
		o := newOutput(w, 1)
		for _, part := range []string{"x\xe2", "\x82", "\xac y\x00z\xff", "\xf0\x9f"} { // € in three writes
			o.print(part)
		}
		o.close()
		if got, want := s.text(1, ""), "x€ y\uFFFDz\uFFFD\uFFFD"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestAlternatingStreamsShareRows(t *testing.T) {
	t.Parallel()
	s := &fakeLogStore{}
	synctest.Test(t, func(t *testing.T) {
		w := startWriter(t, s)
		o := newOutput(w, 1)
		for range 5000 {
			o.print("out\n")
			_, _ = io.WriteString(o.stream(jobstore.StreamStderr), "err\n")
		}
		o.close()
		// The 40 kB and the weight of the chunks need up to three statements.
		if rows := len(s.rows[jobstore.RunKey{JobID: 1, Attempt: 1}]); rows > 3*maxInterleaved {
			t.Errorf("%d rows", rows)
		}
		for stream, want := range map[string]string{jobstore.StreamStdout: "out\n", jobstore.StreamStderr: "err\n"} {
			if got := s.text(1, stream); got != strings.Repeat(want, 5000) {
				t.Errorf("%s: %d bytes, want %d", stream, len(got), 5000*len(want))
			}
		}
	})
}

func TestUnstoredOutputIsCounted(t *testing.T) {
	t.Parallel()
	s := &fakeLogStore{fail: noDatabase}
	synctest.Test(t, func(t *testing.T) {
		w := startWriter(t, s)
		o := newOutput(w, 1)
		o.print("lost\n")
		time.Sleep(time.Second)
		o.print("too\n")
		started := time.Now()
		o.close()
		if took := time.Since(started); took != outputTimeout {
			t.Errorf("the attempt ended after %s, want %s", took, outputTimeout)
		}
		written, dropped, unstored := o.totals()
		if want := (amount{9, 2}); written != want || dropped != want || unstored != want {
			t.Errorf("%v written, %v dropped, %v not taken, want %v", written, dropped, unstored, want)
		}
		time.Sleep(2 * maxRetryPause) // the logWriter drops it
	})
}

func TestAbandonedNodeDoesNotWaitForOutput(t *testing.T) {
	t.Parallel()
	s := &fakeLogStore{fail: noDatabase}
	synctest.Test(t, func(t *testing.T) {
		w := startWriter(t, s)
		o := newOutput(w, 1)
		o.print("lost\n")
		w.abandon()
		started := time.Now()
		o.close()
		if took := time.Since(started); took != 0 {
			t.Errorf("the attempt waited for %s", took)
		}
		time.Sleep(2 * maxRetryPause)
	})
}

func TestOutputSurvivesOutage(t *testing.T) {
	t.Parallel()
	s := &fakeLogStore{fail: noDatabase, after: true} // stored each time, but the answers are lost
	synctest.Test(t, func(t *testing.T) {
		w := startWriter(t, s)
		o := newOutput(w, 1)
		for i := range 20 {
			o.print(fmt.Sprintf("line %d\n", i))
			time.Sleep(100 * time.Millisecond)
		}
		s.answer(nil)
		o.close()
		want := ""
		for i := range 20 {
			want += fmt.Sprintf("line %d\n", i)
		}
		if got := s.text(1, ""); got != want {
			t.Errorf("got %q, want every line once", got)
		}
	})
}

func TestSlowDatabaseDropsOutputWithoutDelay(t *testing.T) {
	t.Parallel()
	s := &fakeLogStore{fail: noDatabase}
	synctest.Test(t, func(t *testing.T) {
		w := startWriter(t, s)
		w.limit = 1 << 20
		loud, late := newOutput(w, 1), newOutput(w, 2)
		loud.capture = 16 << 20
		started, line := time.Now(), strings.Repeat("x", 99)+"\n"
		for range 100_000 {
			loud.print(line)
			if w.held > w.limit {
				t.Fatalf("%d bytes held", w.held)
			}
		}
		late.print("still room\n")
		if took := time.Since(started); took != 0 {
			t.Errorf("the job waited %s", took)
		}
		s.answer(nil)
		time.Sleep(2 * maxRetryPause)
		synctest.Wait()
		loud.print("after\n")
		loud.close()
		late.close()
		kept := int64(len(s.text(1, jobstore.StreamStdout)))
		written, dropped, _ := loud.totals()
		if written.bytes != kept+dropped.bytes || written.lines != 100_001 || dropped.lines == 0 {
			t.Errorf("%v written, %d bytes kept, %v dropped", written, kept, dropped)
		}
		if want := fmt.Sprintf("%v of output dropped here", dropped); !strings.Contains(s.text(1, jobstore.StreamSystem), want) {
			t.Errorf("got the remark %q, want %q", s.text(1, jobstore.StreamSystem), want)
		}
		if !strings.HasSuffix(s.text(1, ""), "\nafter\n") {
			t.Error("the output after the outage is missing")
		}
		if got := s.text(2, ""); got != "still room\n" {
			t.Errorf("another attempt's output is %q", got)
		}
	})
}

func TestRejectedTextAffectsOnlyItsAttempt(t *testing.T) {
	t.Parallel()
	s := &fakeLogStore{fail: func(rows []jobstore.LogRow) error {
		for _, row := range rows {
			if row.JobID == 2 {
				return &pgconn.PgError{Code: "22P05"}
			}
		}
		return nil
	}}
	synctest.Test(t, func(t *testing.T) {
		w := startWriter(t, s)
		outputs := []*output{newOutput(w, 1), newOutput(w, 2), newOutput(w, 3)}
		for _, o := range outputs {
			o.print("text\n")
		}
		for _, o := range outputs {
			o.close()
		}
		if s.text(1, "") != "text\n" || s.text(3, "") != "text\n" {
			t.Errorf("the others' output is %q and %q", s.text(1, ""), s.text(3, ""))
		}
		if _, dropped, _ := outputs[1].totals(); dropped != (amount{5, 1}) {
			t.Errorf("%v dropped", dropped)
		}
	})
}

func TestRerunContinuesOutput(t *testing.T) {
	t.Parallel()
	s := &fakeLogStore{}
	synctest.Test(t, func(t *testing.T) {
		w := startWriter(t, s)
		for _, text := range []string{"first ", "second"} { // after a snooze or a drain
			o := newOutput(w, 1)
			o.print(text)
			o.close()
		}
		if got := s.text(1, ""); got != "first second" {
			t.Errorf("got %q", got)
		}
	})
}

func TestCaptureCountsDroppedOutput(t *testing.T) {
	t.Parallel()
	s := &fakeLogStore{}
	synctest.Test(t, func(t *testing.T) {
		w := startWriter(t, s)
		o := newOutput(w, 1)
		o.configure(config.Output{Capture: 5}, newRedactor(config.Job{Env: map[string]string{"TOKEN": "abcdef"}}, ""))
		o.print("123abc") // may be the start of a secret
		o.print("x€\n")
		o.print("more\n")
		o.close()
		if got := s.text(1, jobstore.StreamStdout); got != "123ab" {
			t.Errorf("got %q", got)
		}
		if got := s.text(1, jobstore.StreamSystem); got != "2 lines (11 bytes) of output dropped: output.capture is 5 bytes\n" {
			t.Errorf("got %q", got)
		}
	})
}

func TestSplitSecretIsRedacted(t *testing.T) {
	t.Parallel()
	const text = "a hunter2 and hunter22hunter, hunt\n€hunter2hunter2 é"
	const want = "a [redacted] and [redacted]2hunter, hunt\n€[redacted][redacted] é"
	s := &fakeLogStore{}
	synctest.Test(t, func(t *testing.T) {
		w := startWriter(t, s)
		secrets := newRedactor(config.Job{Env: map[string]string{"PASSWORD": "hunter2", "API_KEY": "hunter2-and-more"}}, "")
		job := int64(0)
		for i := range len(text) {
			for j := i; j <= len(text); j++ {
				job++
				o := newOutput(w, job)
				o.configure(config.Output{}, secrets)
				o.print(text[:i])
				o.print(text[i:j])
				o.print(text[j:])
				o.close()
				if got := s.text(job, ""); got != want {
					t.Fatalf("split at %d and %d: got %q, want %q", i, j, got, want)
				}
			}
		}
	})
}

func TestPartialSecretIsNotShown(t *testing.T) {
	t.Parallel()
	s := &fakeLogStore{}
	synctest.Test(t, func(t *testing.T) {
		w := startWriter(t, s)
		o := newOutput(w, 1)
		o.configure(config.Output{Capture: 20}, newRedactor(config.Job{Env: map[string]string{"TOKEN": "abcdefghij"}}, ""))
		o.print(strings.Repeat("x", 19) + "€abcdefgh") // one byte is left, too few for €
		o.close()
		if got := s.text(1, jobstore.StreamStdout); got != strings.Repeat("x", 19) {
			t.Errorf("got %q", got)
		}
	})
}

func TestBackoffDoublesUpToMaximum(t *testing.T) {
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
