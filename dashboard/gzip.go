package dashboard

import (
	"cmp"
	"compress/gzip"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"
)

// worthPacking is the size in bytes from which a body is sent compressed; a
// smaller one fits one packet as it is.
const worthPacking = 1400

// zippers are kept because each holds most of a megabyte.
var zippers = sync.Pool{New: func() any {
	zip, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is valid
	return zip
}}

// packed compresses pages and documents for clients that take gzip. Handlers
// write them in one piece, whose size decides. Streams, metrics and assets pass
// as they are.
//
// A large answer waits for the memory that clients who read slowly leave, and gives its
// place among the requests that are handled to the next.
func (s *server) packed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := &packer{ResponseWriter: w, accepted: acceptsGzip(r), reserve: func(size int) func() { return s.reserve(r, size) }}
		next.ServeHTTP(p, r)
		p.close()
	})
}

func acceptsGzip(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept-Encoding"), "gzip")
}

// packer holds the status back until the first piece of the body is there.
type packer struct {
	http.ResponseWriter
	accepted bool
	begun    bool
	status   int
	zip      *gzip.Writer
	// reserve returns nil where there is no memory for an answer; release gives it back.
	reserve func(size int) (release func())
	release func()
	refused bool
}

// Unwrap lets streams flush.
func (p *packer) Unwrap() http.ResponseWriter { return p.ResponseWriter }

func (p *packer) WriteHeader(status int) {
	if p.status == 0 {
		p.status = status
	}
}

func (p *packer) Write(piece []byte) (int, error) {
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

func (p *packer) begin(size int) {
	p.begun = true
	if size > smallAnswer {
		if p.release = p.reserve(size); p.release == nil {
			p.refuse()
			return
		}
	}
	_ = http.NewResponseController(p.ResponseWriter).SetWriteDeadline(time.Now().Add(answerTimeout)) // not every writer has one
	if h := p.Header(); packable(h.Get("Content-Type")) {
		h.Add("Vary", "Accept-Encoding")
		if p.accepted && size >= worthPacking {
			h.Set("Content-Encoding", "gzip")
			p.zip = zippers.Get().(*gzip.Writer)
			p.zip.Reset(p.ResponseWriter)
		}
	}
	if p.status != 0 {
		p.ResponseWriter.WriteHeader(p.status)
	}
}

func (p *packer) close() {
	if !p.begun {
		p.begin(0)
	}
	if p.zip != nil {
		_ = p.zip.Close() // the client is gone
		zippers.Put(p.zip)
	}
	if p.release != nil {
		p.release()
	}
}

var errNoMemory = errors.New("too much waits to be read by clients")

// refuse answers in place of a large answer.
func (p *packer) refuse() {
	p.refused = true
	for _, name := range []string{"Content-Length", "Set-Cookie", "ETag"} {
		p.Header().Del(name)
	}
	p.Header().Set(retryHeader, "1")
	writeProblem(p.ResponseWriter, http.StatusServiceUnavailable, busyText)
}

// reserve takes memory for an answer of a size until it is written.
func (s *server) reserve(r *http.Request, size int) (release func()) {
	t := turnOf(r.Context())
	if t == nil {
		return func() {}
	}
	t.leave()
	return s.limits.unsent.acquire(r.Context(), cmp.Or(t.who, addressOf(r)), size, busyPatience)
}

func packable(contentType string) bool {
	kind, _, _ := strings.Cut(contentType, ";")
	return kind == "text/html" || kind == "application/json" || kind == "application/problem+json"
}
