package live

import (
	"bytes"
	"cmp"
	"net/http"
	"strings"
	"time"
)

// marks are the marks of a page's parts by name, as a client has them.
type marks map[string]string

// maxLastID bounds the length of an id that a client sends.
const maxLastID = 1000

// marksOf parses the id of the last event that a client received. Browsers send it in a
// header when they reconnect; a page that was hidden sends it in its address.
func marksOf(r *http.Request) marks {
	last := cmp.Or(r.Header.Get("Last-Event-ID"), r.URL.Query().Get("last"))
	has := marks{}
	if len(last) > maxLastID {
		return has
	}
	for part := range strings.SplitSeq(last, ".") {
		if name, mark, ok := strings.Cut(part, ":"); ok {
			has[name] = mark
		}
	}
	return has
}

// writeEvent encodes HTML as one server-sent event. It escapes carriage returns: they end a
// line of the protocol, so text could forge a field of the event.
func writeEvent(out *bytes.Buffer, name string, html []byte) {
	out.WriteString("event: " + name + "\n")
	html = bytes.ReplaceAll(html, []byte("\r"), []byte("&#13;"))
	for line := range bytes.Lines(html) {
		out.WriteString("data: ")
		out.Write(bytes.TrimSuffix(line, []byte("\n")))
		out.WriteByte('\n')
	}
	out.WriteByte('\n')
}

// Stream sends the parts of a page as they change, until the request ends.
func Stream(w http.ResponseWriter, r *http.Request, f *feed, listener <-chan struct{}) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	control := http.NewResponseController(w)
	var version int64
	has := marksOf(r)
	out := []byte("retry: 1000\n\n")
	for {
		_ = control.SetWriteDeadline(time.Now().Add(writeTimeout)) // not every writer supports deadlines
		if _, err := w.Write(out); err != nil || control.Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-listener:
			out, version = f.Since(version, has)
			if len(out) > 0 {
				has = nil // from now on, the version says what the client has
			}
		}
	}
}
