package dashboard

import (
	"compress/gzip"
	"net/http"
	"strings"
	"sync"
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
func packed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := &packer{ResponseWriter: w, accepted: acceptsGzip(r)}
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
	if p.zip != nil {
		return p.zip.Write(piece)
	}
	return p.ResponseWriter.Write(piece)
}

func (p *packer) begin(size int) {
	p.begun = true
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
}

func packable(contentType string) bool {
	kind, _, _ := strings.Cut(contentType, ";")
	return kind == "text/html" || kind == "application/json" || kind == "application/problem+json"
}
