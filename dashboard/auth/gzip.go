package auth

import (
	"cmp"
	"compress/gzip"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/forge-scheduler/forge/dashboard/web"
)

// minCompressed is the size in bytes from which a body is compressed. A smaller one fits
// into one packet anyway.
const minCompressed = 1400

// gzipWriters pools writers, because each takes most of a megabyte.
var gzipWriters = sync.Pool{New: func() any {
	zip, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is valid
	return zip
}}

// compressed compresses pages and documents for clients that accept gzip. It decides by the
// size of the first write: handlers write these bodies in one piece. It does not compress
// streams, metrics and assets.
//
// A large answer waits until there is memory for it beside the answers that slow clients
// have not read yet. Meanwhile it gives its request slot back.
func (s *Guard) compressed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := &compressWriter{ResponseWriter: w, accepted: web.AcceptsGzip(r), reserve: func(size int) func() { return s.reserve(r, size) }}
		next.ServeHTTP(p, r)
		p.close()
	})
}

// compressWriter delays the status until the first write of the body.
type compressWriter struct {
	http.ResponseWriter
	accepted bool
	begun    bool
	status   int
	zip      *gzip.Writer
	// reserve returns nil if there is no memory for an answer. release gives the memory
	// back.
	reserve func(size int) (release func())
	release func()
	refused bool
}

// Unwrap gives streams access to Flush.
func (p *compressWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }

func (p *compressWriter) WriteHeader(status int) {
	if p.status == 0 {
		p.status = status
	}
}

func (p *compressWriter) Write(piece []byte) (int, error) {
	if !p.begun {
		p.begin(len(piece))
	}
	if p.refused {
		return 0, errNoMemory
	}
	if p.zip != nil {
		return p.zip.Write(piece)
	}
	return p.ResponseWriter.Write(piece)
}

func (p *compressWriter) begin(size int) {
	p.begun = true
	if size > smallAnswer {
		if p.release = p.reserve(size); p.release == nil {
			p.refuse()
			return
		}
	}
	_ = http.NewResponseController(p.ResponseWriter).SetWriteDeadline(time.Now().Add(answerTimeout)) // not every writer supports deadlines
	if h := p.Header(); compressible(h.Get("Content-Type")) {
		h.Add("Vary", "Accept-Encoding")
		if p.accepted && size >= minCompressed {
			h.Set("Content-Encoding", "gzip")
			p.zip = gzipWriters.Get().(*gzip.Writer)
			p.zip.Reset(p.ResponseWriter)
		}
	}
	if p.status != 0 {
		p.ResponseWriter.WriteHeader(p.status)
	}
}

func (p *compressWriter) close() {
	if !p.begun {
		p.begin(0)
	}
	if p.zip != nil {
		_ = p.zip.Close() // the client is gone
		gzipWriters.Put(p.zip)
	}
	if p.release != nil {
		p.release()
	}
}

var errNoMemory = errors.New("too much waits to be read by clients")

// refuse answers 503 in place of a large answer.
func (p *compressWriter) refuse() {
	p.refused = true
	for _, name := range []string{"Content-Length", "Set-Cookie", "ETag"} {
		p.Header().Del(name)
	}
	p.Header().Set(web.RetryHeader, "1")
	web.WriteProblem(p.ResponseWriter, http.StatusServiceUnavailable, busyText)
}

// reserve reserves memory for an answer of a size until it is written. It gives back the
// request slot first.
func (s *Guard) reserve(r *http.Request, size int) (release func()) {
	t := RequestSlotOf(r.Context())
	if t == nil {
		return func() {}
	}
	t.leave()
	return s.Limits.Unsent.Acquire(r.Context(), cmp.Or(t.who, web.AddressOf(r)), size, busyTimeout)
}

func compressible(contentType string) bool {
	kind, _, _ := strings.Cut(contentType, ";")
	return kind == "text/html" || kind == "application/json" || kind == "application/problem+json"
}
