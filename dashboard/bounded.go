package dashboard

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

const (
	// bodyTimeout is how long a client may take over a body.
	bodyTimeout = 10 * time.Second
	// requestTimeout bounds what a request takes but for a stream.
	requestTimeout = time.Minute
	// answerTimeout is how long a client may take to read an answer.
	answerTimeout = 30 * time.Second
	// unreadTimeout is for what is left of a body that nobody wants.
	unreadTimeout = time.Second
	// maxOpenBody bounds the body of a request of somebody who is not known.
	maxOpenBody = 16 << 10
	// busyPatience is how long a request waits for its turn, and maxQueued how many do.
	busyPatience = 2 * time.Second
	maxQueued    = 256
	// defaultConcurrent is how many requests are handled at the same time.
	defaultConcurrent = 8
	// probesAtOnce are apart from them.
	probesAtOnce = 4
	// What is held in memory for clients to read it, in all and for one caller. A
	// small answer is left to the system's buffers.
	maxUnsent, maxUnsentOfOne = 64 << 20, 16 << 20
	smallAnswer               = 16 << 10
	busyText                  = "This node answers as many requests as it can. Try again."
)

var errRequestTimeout = errors.New("the request took too long")

// limits are how much the listener does at the same time.
type limits struct {
	requests, probes, streams, followers, unsent *quota
}

func newLimits(concurrent int) limits {
	concurrent = max(2, cmp.Or(concurrent, defaultConcurrent))
	return limits{
		requests:  newQuota(concurrent, concurrent/2, maxQueued),
		probes:    newQuota(probesAtOnce, probesAtOnce, maxQueued),
		streams:   newQuota(maxStreams, maxStreamsOfOne, 0),
		followers: newQuota(maxFollowers, maxFollowersOfOne, 0),
		unsent:    newQuota(maxUnsent, maxUnsentOfOne, maxQueued),
	}
}

// turn is a request's place among those that are handled.
type turn struct {
	timeout *time.Timer
	// who takes it; empty: nobody did.
	who string
	// release gives the place back; nil while there is none.
	release func()
}

type turnKey struct{}

func turnOf(ctx context.Context) *turn {
	t, _ := ctx.Value(turnKey{}).(*turn)
	return t
}

// leave gives the place back.
func (t *turn) leave() {
	if t != nil && t.release != nil {
		t.release()
		t.release = nil
	}
}

// lasting takes a stream out of what bounds a request.
func (t *turn) lasting(w http.ResponseWriter) {
	if t == nil {
		return
	}
	t.timeout.Stop()
	t.leave()
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // not every writer has one
}

// deadlines bounds how long a client takes to send a request and to read its answer,
// and how long the node takes over it. A request that is answered before its body was
// read is the last of its connection: what comes after it is not waited for.
func deadlines(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control, now := http.NewResponseController(w), time.Now()
		_ = control.SetWriteDeadline(now.Add(requestTimeout + answerTimeout)) // not every writer has deadlines
		until := time.Time{}
		if r.ContentLength != 0 {
			until = now.Add(bodyTimeout)
			body := &trackedBody{ReadCloser: r.Body, control: control}
			r.Body, w = body, &unreadCloser{ResponseWriter: w, body: body}
		}
		_ = control.SetReadDeadline(until)
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		t := &turn{timeout: time.AfterFunc(requestTimeout, func() { cancel(errRequestTimeout) })}
		defer t.timeout.Stop()
		defer t.leave()
		next.ServeHTTP(w, r.WithContext(context.WithValue(ctx, turnKey{}, t)))
	})
}

// trackedBody remembers whether it was read to its end.
type trackedBody struct {
	io.ReadCloser
	control *http.ResponseController
	ended   bool
}

func (b *trackedBody) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	if errors.Is(err, io.EOF) && !b.ended {
		b.ended = true
		_ = b.control.SetReadDeadline(time.Time{}) // it would end the request
	}
	return n, err
}

// unreadCloser closes the connection after an answer to a request whose body was not
// read.
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

// callerName is by whom requests are counted: a token, or else an address.
func callerName(r *http.Request) string {
	return cmp.Or(callerOf(r.Context()).identity(), addressOf(r))
}

// inTurn handles a request when it is its turn. Its body is read before that, so that
// nobody's slow one holds up the others.
func (s *server) inTurn(of route, next http.HandlerFunc) http.HandlerFunc {
	most := int64(maxBody)
	if of.write == open {
		most = maxOpenBody
	}
	return func(w http.ResponseWriter, r *http.Request) {
		if !reads(r.Method) {
			readAhead(r, most)
		}
		if s.takeTurn(w, r) {
			next(w, r)
		}
	}
}

// takeTurn answers the request itself when it returns false.
func (s *server) takeTurn(w http.ResponseWriter, r *http.Request) bool {
	t := turnOf(r.Context())
	if t == nil {
		return true
	}
	t.leave()
	t.who = callerName(r)
	t.release = s.limits.requests.acquire(r.Context(), t.who, 1, busyPatience)
	if t.release == nil {
		s.busy(w, r)
		return false
	}
	return true
}

// busy has the client come again.
func (s *server) busy(w http.ResponseWriter, r *http.Request) {
	w.Header().Set(retryHeader, "1")
	s.fail(w, r, http.StatusServiceUnavailable, busyText)
}

// readAhead puts a body into memory. One that is too large or cannot be read is so for
// the handler, too.
func readAhead(r *http.Request, most int64) {
	if r.ContentLength == 0 {
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, most))
	rest := io.Reader(r.Body) // of one that is too large
	if err != nil {
		rest = failing{err}
	}
	r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), rest))
}

// failing is what is left of a body that cannot be read.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// probing handles a probe, apart from all other requests.
func (s *server) probing(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		release := s.limits.probes.acquire(r.Context(), "", 1, probeTimeout)
		if release == nil {
			s.busy(w, r)
			return
		}
		defer release()
		next(w, r)
	}
}

// isProbe says whether a path is that of a probe, which is answered also where nothing
// else is.
func isProbe(path string) bool {
	return path == "/healthz" || path == "/readyz" || len(path) > len("/leader/") && path[:len("/leader/")] == "/leader/"
}
