package jobs_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/riverqueue/river"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/wire"
	"github.com/forge-scheduler/forge/jobs"
)

// Catalogue entry 83: at most 16 MiB of a response are read, for any length of the response.
func TestResponseSizeIsLimited(t *testing.T) {
	t.Parallel()
	const limit = 16 << 20
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		size, _ := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/"))
		chunk := bytes.Repeat([]byte("x"), 1<<20)
		for sent := 0; sent < size; { // the endless response never reaches its size
			n, err := w.Write(chunk[:min(len(chunk), size-sent)])
			if err != nil {
				return
			}
			sent += n
		}
	}))
	t.Cleanup(server.Close)
	for path, want := range map[string]string{
		strconv.Itoa(limit):     "HTTP/1.1 200 OK\n16777215 bytes of output dropped: output.capture is 1 bytes\n",
		strconv.Itoa(limit + 1): "HTTP/1.1 200 OK\nresponse cut after 16777216 bytes\n16777215 bytes of output dropped: output.capture is 1 bytes\n",
		strconv.Itoa(1 << 50):   "HTTP/1.1 200 OK\nresponse cut after 16777216 bytes\n16777215 bytes of output dropped: output.capture is 1 bytes\n",
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			job := config.Job{Kind: config.KindHTTP, URL: server.URL + "/" + path, Output: config.Output{Capture: 1}}
			n, done := runOnce(t, job, jobstore.NewJob{})
			if got := n.logs(t, done.ID, 1, jobstore.StreamSystem); done.State != "completed" || got != want {
				t.Errorf("%s, remarks %q, want %q", done.State, got, want)
			}
		})
	}
}

// A response that stalls or breaks off at the limit has not been read, and fails its attempt.
func TestResponseThatEndsAtLimitTooEarlyFails(t *testing.T) {
	t.Parallel()
	const limit = 16 << 20
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(limit+1))
		_, _ = w.Write(bytes.Repeat([]byte("x"), limit))
		_ = http.NewResponseController(w).Flush()
		if r.URL.Path == "/stalls" {
			<-r.Context().Done()
		}
	}))
	t.Cleanup(server.Close)
	for path, want := range map[string]string{
		"stalls": "timed out after 2s: read the response: context deadline exceeded",
		"breaks": "read the response: unexpected EOF",
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			job := config.Job{Kind: config.KindHTTP, URL: server.URL + "/" + path, Output: config.Output{Capture: 1}, Timeout: config.Duration(2 * time.Second)}
			_, done := runOnce(t, job, jobstore.NewJob{})
			if done.State != "discarded" || done.LastError != want {
				t.Errorf("%s: %s, want %s", done.State, done.LastError, want)
			}
		})
	}
}

// A row of a result that is too large for the memory of a node fails its attempt.
func TestRowSizeIsLimited(t *testing.T) {
	t.Parallel()
	for length, want := range map[int]string{
		16<<20 - 100: "",
		16 << 20:     "the answer of the server has a message of 16777222 bytes, such as a row of the result; want at most 16777216",
	} {
		t.Run(strconv.Itoa(length), func(t *testing.T) {
			t.Parallel()
			job := config.Job{Kind: config.KindSQL, Statement: fmt.Sprintf("SELECT repeat('x', %d)", length), Output: config.Output{Capture: 1}}
			_, done := runOnce(t, job, jobstore.NewJob{})
			if done.LastError != want || (done.State == "completed") != (want == "") {
				t.Errorf("%s: %s, want %s", done.State, done.LastError, want)
			}
		})
	}
}

// Catalogue entry 77: a node that runs as root runs a job as the job's user, with that
// user's groups. Any other node rejects such a job.
func TestJobsRunAsTheirUser(t *testing.T) {
	t.Parallel()
	job := shell("id -un; id -G; touch /forge-was-here 2>/dev/null || echo cannot")
	job.User = "nobody"
	n, done := runOnce(t, job, jobstore.NewJob{})
	if os.Getuid() != 0 {
		const want = `user: only a node that runs as root can run jobs as others (got "nobody"); want the node's own user, or a node that runs as root`
		if done.State != "discarded" || done.LastError != want {
			t.Errorf("%s: %s\nwant %s", done.State, done.LastError, want)
		}
		return
	}
	printed := strings.Split(n.logs(t, done.ID, 1, jobstore.StreamStdout), "\n")
	if len(printed) != 4 || printed[0] != "nobody" || strings.Contains(" "+printed[1]+" ", " 0 ") || printed[2] != "cannot" {
		t.Errorf("%s: %s: printed %q", done.State, done.LastError, printed)
	}
}

// lockedLog is a log that one goroutine writes and another reads.
type lockedLog struct {
	mu   sync.Mutex
	text strings.Builder
}

func (g *lockedLog) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.text.Write(p)
}

func (g *lockedLog) contains(text string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return strings.Contains(g.text.String(), text)
}

// uncancellableWorker ignores its context until it is released.
type uncancellableWorker struct {
	river.WorkerDefaults[greetArgs]
	began, release chan struct{}
}

func (*uncancellableWorker) Timeout(*river.Job[greetArgs]) time.Duration {
	return 50 * time.Millisecond
}

func (w *uncancellableWorker) Work(ctx context.Context, _ *river.Job[greetArgs]) error {
	close(w.began)
	<-w.release
	return ctx.Err()
}

// A worker that ignores its timeout and its cancellation keeps only its own slot and is
// logged. When it returns, the job ends as cancelled.
func TestWorkerThatIgnoresCancellationKeepsOneSlot(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, add addWorker) {
		t.Helper()
		stuck := &uncancellableWorker{began: make(chan struct{}), release: make(chan struct{})}
		var log lockedLog
		n := startNode(t, map[string]config.Job{"hello": shell("true")}, func(o *jobs.Options) {
			o.Workers = river.NewWorkers()
			add(o.Workers, stuck)
			o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		})
		id := n.work(t, jobstore.NewJob{Kind: "greet", MaxAttempts: 1})
		select {
		case <-stuck.began:
		case <-time.After(waitTimeout):
			t.Fatal("the worker never began")
		}
		changes, err := jobstore.New(n.pool).Act(t.Context(), jobstore.Order{Action: jobstore.Cancel, By: "test"}, []int64{id})
		if err != nil || len(changes) != 1 || !changes[0].Changed() {
			t.Fatalf("cancel: %+v, %v", changes, err)
		}
		n.finish(t, n.work(t, jobstore.NewJob{Kind: "hello"}), "completed")
		reports := func(slots int) {
			t.Helper()
			last := 0
			eventually(t, func() bool {
				n.send(t, wire.Offer{Term: term, Seq: n.seq.Add(1)})
				select {
				case credit := <-n.credits:
					last = credit.Slots
				case <-time.After(time.Second): // request another report
				}
				return last == slots
			}, func() string { return fmt.Sprintf("the node reports %d slots, not %d", last, slots) })
		}
		reports(3)
		eventually(t, func() bool { return log.contains("ob appears to be stuck") }, func() string { return "the log does not mention it" })
		if job, err := jobstore.New(n.pool).Get(t.Context(), id); err != nil || job.State != "running" {
			t.Errorf("while the worker goes on the job is %s: %v", job.State, err)
		}
		close(stuck.release)
		if job := n.finish(t, id, "cancelled", "discarded"); job.State != "cancelled" {
			t.Errorf("the job is %s", job.State)
		}
		reports(4)
	})
}
