package dashboard

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// minGap is the minimum time between two reads for one page.
	minGap = 500 * time.Millisecond
	// maxGap is the maximum time between two reads: heartbeats and job states change
	// without a notification.
	maxGap = time.Second
	// writeTimeout ends a stream whose client has stopped reading.
	writeTimeout = 10 * time.Second
)

const (
	// drawsName identifies the reads of streams in the request quota. drawTimeout is how
	// long one read waits for a slot.
	drawsName   = "streams"
	drawTimeout = 10 * time.Second
)

// fragment is a part of a page. version is the feed's version in which its HTML last
// changed. mark is a digest of the HTML and is the same on every node.
type fragment struct {
	version int64
	html    []byte
	mark    string
}

func newFragment(version int64, html []byte) fragment {
	sum := sha256.Sum256(html)
	return fragment{version, html, base64.RawURLEncoding.EncodeToString(sum[:6])}
}

// render returns the HTML of a page's parts by name.
type render func(ctx context.Context) map[string][]byte

// feed reads for all streams of one page.
type feed struct {
	stop    context.CancelFunc
	stopped chan struct{}

	mu        sync.Mutex
	version   int64
	fragments map[string]fragment
	listeners map[chan struct{}]struct{}
}

func newFeed() *feed {
	return &feed{stopped: make(chan struct{}), fragments: map[string]fragment{}, listeners: map[chan struct{}]struct{}{}}
}

// feeds are the pages that are open.
type feeds struct {
	subscribe func() (<-chan struct{}, func())

	mu   sync.Mutex
	open map[string]*feed
}

func newFeeds(subscribe func() (<-chan struct{}, func())) *feeds {
	return &feeds{subscribe: subscribe, open: map[string]*feed{}}
}

// join adds a listener to the feed of a page, and starts the feed if there is none. The
// listener's channel receives when there is something to collect. leave removes the
// listener; if it was the last one, leave waits until the feed has stopped.
func (fs *feeds) join(ctx context.Context, key string, draw render) (f *feed, listener chan struct{}, leave func()) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f = fs.open[key]
	if f == nil {
		f = fs.start(ctx, draw)
		fs.open[key] = f
	}
	listener = make(chan struct{}, 1)
	f.mu.Lock()
	f.listeners[listener] = struct{}{}
	f.mu.Unlock()
	notify(listener)
	return f, listener, func() { fs.leave(key, f, listener) }
}

// start runs a feed. The feed outlives the request that started it.
func (fs *feeds) start(ctx context.Context, draw render) *feed {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	f := newFeed()
	f.stop = stop
	go func() {
		defer close(f.stopped)
		changes, cancel := fs.subscribe()
		defer cancel()
		f.run(ctx, changes, draw)
	}()
	return f
}

func (fs *feeds) leave(key string, f *feed, listener chan struct{}) {
	fs.mu.Lock()
	f.mu.Lock()
	delete(f.listeners, listener)
	last := len(f.listeners) == 0
	f.mu.Unlock()
	if last {
		delete(fs.open, key)
	}
	fs.mu.Unlock()
	if last {
		f.stop()
		<-f.stopped
	}
}

func (f *feed) run(ctx context.Context, changes <-chan struct{}, draw render) {
	for ctx.Err() == nil {
		f.publish(draw(ctx))
		pause(ctx, changes)
	}
}

// pause waits for a change or for maxGap, whichever comes first, but at least minGap.
func pause(ctx context.Context, changes <-chan struct{}) {
	soon, late := time.NewTimer(minGap), time.NewTimer(maxGap)
	defer soon.Stop()
	defer late.Stop()
	changed, rested := false, false
	for !changed || !rested {
		select {
		case <-ctx.Done():
			return
		case <-late.C:
			return
		case <-soon.C:
			rested = true
		case _, ok := <-changes:
			if !ok {
				changes = nil
				continue
			}
			changed = true
		}
	}
}

func (f *feed) publish(parts map[string][]byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.version++
	for name, html := range parts {
		if !bytes.Equal(f.fragments[name].html, html) {
			f.fragments[name] = newFragment(f.version, html)
		}
	}
	for listener := range f.listeners {
		notify(listener)
	}
}

// since returns the events that a listener lacks, ordered by name, and the current version:
// the parts that changed after version and whose marks are not in has. The id of the last
// event lists all parts of the page with their marks, so that a client can resume on any
// node. An event list of only the beat has no id, because the beat is not part of the id.
func (f *feed) since(version int64, has marks) ([]byte, int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var changed []string
	for _, name := range slices.Sorted(maps.Keys(f.fragments)) {
		if part := f.fragments[name]; part.version > version && has[name] != part.mark {
			changed = append(changed, name)
		}
	}
	var out bytes.Buffer
	silent := len(changed) == 1 && changed[0] == beatPart
	for i, name := range changed {
		if i == len(changed)-1 && !silent {
			out.WriteString("id: " + f.id() + "\n")
		}
		writeEvent(&out, name, f.fragments[name].html)
	}
	return out.Bytes(), f.version
}

// marks are the marks of a page's parts by name, as a client has them.
type marks map[string]string

// id lists the parts of the page with their marks. The caller holds f.mu.
func (f *feed) id() string {
	parts := make([]string, 0, len(f.fragments))
	for _, name := range slices.Sorted(maps.Keys(f.fragments)) {
		if name != beatPart { // the beat is sent to every client
			parts = append(parts, name+":"+f.fragments[name].mark)
		}
	}
	return strings.Join(parts, ".")
}

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

// notify notifies a listener through its channel of capacity one. If a notification is
// pending already, it does nothing.
func notify(listener chan struct{}) {
	select {
	case listener <- struct{}{}:
	default:
	}
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

// events serves the stream of a page.
func (s *pageServer) events(w http.ResponseWriter, r *http.Request) {
	kind, ok := pageKinds[r.URL.Query().Get("page")]
	if !ok {
		writeProblem(w, http.StatusNotFound, "There is no such page.")
		return
	}
	kind = kind.stream()
	req := newRequest(r, kind)
	if r.Method == http.MethodHead {
		w.Header().Set("Content-Type", "text/event-stream")
		return
	}
	release := s.limits.streams.acquire(r.Context(), callerName(r), 1, 0)
	if release == nil {
		w.Header().Set(retryHeader, "30")
		writeProblem(w, http.StatusServiceUnavailable, "Too many pages are open on this node.")
		return
	}
	defer release()
	requestSlotOf(r.Context()).lasting(w)
	f, listener, leave := s.feeds.join(r.Context(), req.feed(kind), func(ctx context.Context) map[string][]byte {
		return s.drawWithSlot(ctx, kind, req)
	})
	defer leave()
	r, stop := s.whileAdmitted(r)
	defer stop()
	stream(w, r, f, listener)
}

// drawWithSlot draws the parts of a page once it has a slot. Without one it returns nil, and
// the parts stay as they are.
func (s *pageServer) drawWithSlot(ctx context.Context, kind pageKind, req *request) map[string][]byte {
	release := s.limits.requests.acquire(ctx, drawsName, 1, drawTimeout)
	if release == nil {
		return nil
	}
	defer release()
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return s.fragments(ctx, kind, req)
}

func stream(w http.ResponseWriter, r *http.Request, f *feed, listener <-chan struct{}) {
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
			out, version = f.since(version, has)
			if len(out) > 0 {
				has = nil // from now on, the version says what the client has
			}
		}
	}
}
