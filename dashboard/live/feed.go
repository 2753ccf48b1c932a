package live

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"maps"
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

// NewFeed returns a feed that is not running.
func NewFeed() *feed {
	return &feed{stopped: make(chan struct{}), fragments: map[string]fragment{}, listeners: map[chan struct{}]struct{}{}}
}

// Feeds are the pages that are open.
type Feeds struct {
	subscribe func() (<-chan struct{}, func())

	mu   sync.Mutex
	open map[string]*feed
}

// NewFeeds returns no open pages. Their feeds read when subscribe's channel receives.
func NewFeeds(subscribe func() (<-chan struct{}, func())) *Feeds {
	return &Feeds{subscribe: subscribe, open: map[string]*feed{}}
}

// Join adds a listener to the feed of a page, and starts the feed if there is none. The
// listener's channel receives when there is something to collect. leave removes the
// listener; if it was the last one, leave waits until the feed has stopped.
func (fs *Feeds) Join(ctx context.Context, key string, draw render) (f *feed, listener chan struct{}, leave func()) {
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
func (fs *Feeds) start(ctx context.Context, draw render) *feed {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	f := NewFeed()
	f.stop = stop
	go func() {
		defer close(f.stopped)
		changes, cancel := fs.subscribe()
		defer cancel()
		f.run(ctx, changes, draw)
	}()
	return f
}

func (fs *Feeds) leave(key string, f *feed, listener chan struct{}) {
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
		f.Publish(draw(ctx))
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

func (f *feed) Publish(parts map[string][]byte) {
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

// Since returns the events that a listener lacks, ordered by name, and the current version:
// the parts that changed after version and whose marks are not in has. The id of the last
// event lists all parts of the page with their marks, so that a client can resume on any
// node. An event list of only the beat has no id, because the beat is not part of the id.
func (f *feed) Since(version int64, has marks) ([]byte, int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var changed []string
	for _, name := range slices.Sorted(maps.Keys(f.fragments)) {
		if part := f.fragments[name]; part.version > version && has[name] != part.mark {
			changed = append(changed, name)
		}
	}
	var out bytes.Buffer
	silent := len(changed) == 1 && changed[0] == BeatPart
	for i, name := range changed {
		if i == len(changed)-1 && !silent {
			out.WriteString("id: " + f.id() + "\n")
		}
		writeEvent(&out, name, f.fragments[name].html)
	}
	return out.Bytes(), f.version
}

// id lists the parts of the page with their marks. The caller holds f.mu.
func (f *feed) id() string {
	parts := make([]string, 0, len(f.fragments))
	for _, name := range slices.Sorted(maps.Keys(f.fragments)) {
		if name != BeatPart { // the beat is sent to every client
			parts = append(parts, name+":"+f.fragments[name].mark)
		}
	}
	return strings.Join(parts, ".")
}

// notify notifies a listener through its channel of capacity one. If a notification is
// pending already, it does nothing.
func notify(listener chan struct{}) {
	select {
	case listener <- struct{}{}:
	default:
	}
}

// BeatPart is the part that is sent after every read, to show that the stream is alive.
const BeatPart = "beat"
