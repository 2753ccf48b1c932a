package auth

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
)

const (
	// BodyTimeout is how long a client may take to send a body.
	BodyTimeout = 10 * time.Second
	// RequestTimeout bounds the duration of a request, except for streams.
	RequestTimeout = time.Minute
	// answerTimeout is how long a client may take to read an answer.
	answerTimeout = 30 * time.Second
	// unreadTimeout is the read timeout for the rest of a body that is not used.
	unreadTimeout = time.Second
	// maxOpenBody is the size limit of the body of an unauthenticated request.
	maxOpenBody = 16 << 10
	// busyTimeout is how long a request waits for a free slot. maxQueued is how many
	// requests may wait.
	busyTimeout = 2 * time.Second
	maxQueued   = 256
	// defaultConcurrent is how many requests are handled at the same time.
	defaultConcurrent = 8
	// probesAtOnce is how many probes are handled at the same time, in addition to other
	// requests.
	probesAtOnce = 4
	// maxUnsent bounds the bytes of answers that wait in memory for clients to read them. An
	// answer of at most smallAnswer bytes is not counted: the socket buffers hold it.
	maxUnsent = 64 << 20
	// MaxUnsentOfOne bounds those of one caller.
	MaxUnsentOfOne = 16 << 20
	smallAnswer    = 16 << 10
	busyText       = "This node answers as many requests as it can. Try again."
)

var errRequestTimeout = errors.New("the request took too long")

// limits are the quotas of what the listener does at the same time.
type limits struct {
	Requests, probes, Streams, Followers, Unsent *quota
}

func newLimits(concurrent int) limits {
	concurrent = max(2, cmp.Or(concurrent, defaultConcurrent))
	return limits{
		Requests:  newQuota(concurrent, concurrent/2, maxQueued),
		probes:    newQuota(probesAtOnce, probesAtOnce, maxQueued),
		Streams:   newQuota(MaxStreams, MaxStreamsOfOne, 0),
		Followers: newQuota(maxFollowers, MaxFollowersOfOne, 0),
		Unsent:    newQuota(maxUnsent, MaxUnsentOfOne, maxQueued),
	}
}

// requestSlot is a request's place among those that are handled at the same time.
type requestSlot struct {
	timeout *time.Timer
	// who is the caller that took the slot; empty if no slot was taken.
	who string
	// release gives the slot back; nil if no slot is held.
	release func()
}

type requestSlotKey struct{}

// RequestSlotOf returns the slot of a request; nil outside of requests to the listener.
func RequestSlotOf(ctx context.Context) *requestSlot {
	t, _ := ctx.Value(requestSlotKey{}).(*requestSlot)
	return t
}

// leave gives the slot back.
func (t *requestSlot) leave() {
	if t != nil && t.release != nil {
		t.release()
		t.release = nil
	}
}

// Lasting exempts a stream from the timeout and the slot of a request.
func (t *requestSlot) Lasting(w http.ResponseWriter) {
	if t == nil {
		return
	}
	t.timeout.Stop()
	t.leave()
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // not every writer supports deadlines
}

// deadlines bounds how long a client takes to send a request and to read its answer, and
// how long the node takes to handle it. If a request is answered before its body was read,
// its connection is closed, so that the node does not wait for the rest.
func deadlines(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control, now := http.NewResponseController(w), time.Now()
		_ = control.SetWriteDeadline(now.Add(RequestTimeout + answerTimeout)) // not every writer supports deadlines
		until := time.Time{}
		if r.ContentLength != 0 {
			until = now.Add(BodyTimeout)
			body := &trackedBody{ReadCloser: r.Body, control: control}
			r.Body, w = body, &unreadCloser{ResponseWriter: w, body: body}
		}
		_ = control.SetReadDeadline(until)
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		t := &requestSlot{timeout: time.AfterFunc(RequestTimeout, func() { cancel(errRequestTimeout) })}
		defer t.timeout.Stop()
		defer t.leave()
		next.ServeHTTP(w, r.WithContext(context.WithValue(ctx, requestSlotKey{}, t)))
	})
}

// trackedBody records whether the body was read to its end.
type trackedBody struct {
	io.ReadCloser
	control *http.ResponseController
	ended   bool
}

func (b *trackedBody) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	if errors.Is(err, io.EOF) && !b.ended {
		b.ended = true
		_ = b.control.SetReadDeadline(time.Time{}) // an expired deadline would cancel the request
	}
	return n, err
}

// unreadCloser closes the connection after the answer to a request whose body was not read.
type unreadCloser struct {
	http.ResponseWriter
	body  *trackedBody
	begun bool
}

func (w *unreadCloser) begin() {
	if w.begun {
		return
	}
	if w.begun = true; !w.body.ended {
		w.Header().Set("Connection", "close")
		_ = w.body.control.SetReadDeadline(time.Now().Add(unreadTimeout))
	}
}

func (w *unreadCloser) WriteHeader(status int) {
	w.begin()
	w.ResponseWriter.WriteHeader(status)
}

func (w *unreadCloser) Write(piece []byte) (int, error) {
	w.begin()
	return w.ResponseWriter.Write(piece)
}

func (w *unreadCloser) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// CallerName identifies the caller for quotas: a token, or else an address.
func CallerName(r *http.Request) string {
	return cmp.Or(CallerOf(r.Context()).Identity(), web.AddressOf(r))
}

// withSlot handles a request once it has a slot. It reads the body first, so that a client
// that sends slowly does not occupy a slot.
func (s *Guard) withSlot(of route.Route, next http.HandlerFunc) http.HandlerFunc {
	most := int64(web.MaxBody)
	if of.Write == route.Open {
		most = maxOpenBody
	}
	return func(w http.ResponseWriter, r *http.Request) {
		if !web.IsRead(r.Method) {
			bufferBody(r, most)
		}
		if s.takeSlot(w, r) {
			next(w, r)
		}
	}
}

// takeSlot takes a slot for the request. If it returns false, it has answered the request.
func (s *Guard) takeSlot(w http.ResponseWriter, r *http.Request) bool {
	t := RequestSlotOf(r.Context())
	if t == nil {
		return true
	}
	t.leave()
	t.who = CallerName(r)
	t.release = s.Limits.Requests.Acquire(r.Context(), t.who, 1, busyTimeout)
	if t.release == nil {
		s.answerBusy(w, r)
		return false
	}
	return true
}

// answerBusy answers that the node is busy and when to retry.
func (s *Guard) answerBusy(w http.ResponseWriter, r *http.Request) {
	w.Header().Set(web.RetryHeader, "1")
	s.Fail(w, r, http.StatusServiceUnavailable, busyText)
}

// bufferBody reads at most that many bytes of a body into memory. The handler still sees
// that a body is too large or cannot be read.
func bufferBody(r *http.Request, most int64) {
	if r.ContentLength == 0 {
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, most))
	rest := io.Reader(r.Body) // non-empty if the body is too large
	if err != nil {
		rest = failedReader{err}
	}
	r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), rest))
}

// failedReader is a reader that returns the error with which reading a body failed.
type failedReader struct{ err error }

func (f failedReader) Read([]byte) (int, error) { return 0, f.err }

// probing handles a probe with a quota of its own.
func (s *Guard) probing(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		release := s.Limits.probes.Acquire(r.Context(), "", 1, ProbeTimeout)
		if release == nil {
			s.answerBusy(w, r)
			return
		}
		defer release()
		next(w, r)
	}
}

const (
	// MaxStreams bounds the open streams of a node.
	MaxStreams = 256
	// MaxStreamsOfOne bounds those of one caller.
	MaxStreamsOfOne = 32
	// maxFollowers bounds the followed lists of a node. Each of them reads separately.
	maxFollowers = 64
	// MaxFollowersOfOne bounds those of one caller.
	MaxFollowersOfOne = 16
)

// ProbeTimeout bounds how long a probe waits for the database. A prober that waits longer
// considers the node dead.
const ProbeTimeout = 2 * time.Second
