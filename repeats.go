package forge

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/postgres"
)

const (
	// repeatsEvery is the time from a record to the report of its repeats.
	repeatsEvery = time.Minute
	// repeatsKey is the attribute with the number of repeats.
	repeatsKey = "repeated"
	// mostKinds bounds how many different records are remembered. Further records
	// pass unchanged.
	mostKinds = 500
)

// prose holds the attributes whose text is compared by its pattern.
var prose = map[string]bool{"error": true, "err": true, "trace": true, "panic_val": true}

// repeatHandler summarises warnings and errors that are logged repeatedly, for
// example while a database is unreachable.
//
// The first record passes unchanged. Its repeats are counted, and once a minute the
// newest of them is logged with the attribute repeated. Records repeat each other
// if they have the same level, message and text attributes. Errors are compared by
// their pattern, without variable parts, and failed connections by their reason; numbers,
// durations and instants are not compared. Records below WARN always pass.
type repeatHandler struct {
	next  slog.Handler
	bound string // the key of the attributes of WithAttrs and WithGroup
	*repeatMemory
}

// repeatMemory is shared by a handler and the handlers derived from it.
type repeatMemory struct {
	mu      sync.Mutex
	seen    map[string]*repeatedRecord
	flushed bool
}

// repeatedRecord is the state of a group of repeated records.
type repeatedRecord struct {
	newest func(count int) // logs the newest repeat
	count  int             // repeats since the last report
	timer  *time.Timer
}

// newRepeatHandler returns a handler that passes records to next. Flush ends it.
func newRepeatHandler(next slog.Handler) *repeatHandler {
	return &repeatHandler{next: next, repeatMemory: &repeatMemory{seen: map[string]*repeatedRecord{}}}
}

// Enabled implements slog.Handler.
func (h *repeatHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h *repeatHandler) Handle(ctx context.Context, record slog.Record) error {
	if record.Level >= slog.LevelWarn && h.repeats(ctx, h.key(record), record) {
		return nil
	}
	return h.next.Handle(ctx, record)
}

// WithAttrs implements slog.Handler.
func (h *repeatHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	var bound strings.Builder
	bound.WriteString(h.bound)
	for _, attr := range attrs {
		writeKey(&bound, attr)
	}
	return &repeatHandler{h.next.WithAttrs(attrs), bound.String(), h.repeatMemory}
}

// WithGroup implements slog.Handler.
func (h *repeatHandler) WithGroup(name string) slog.Handler {
	return &repeatHandler{h.next.WithGroup(name), h.bound + "\x00" + name, h.repeatMemory}
}

// Flush reports the repeats that are not reported yet. Later records pass
// unchanged.
func (m *repeatMemory) Flush() {
	m.mu.Lock()
	m.flushed = true
	pending := slices.Collect(maps.Values(m.seen))
	m.seen = nil
	m.mu.Unlock()
	for _, e := range pending {
		e.timer.Stop()
		e.report()
	}
}

// repeats reports whether a record repeats an earlier one, and counts it.
func (h *repeatHandler) repeats(ctx context.Context, key string, record slog.Record) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e, ok := h.seen[key]; ok {
		ctx, record = context.WithoutCancel(ctx), record.Clone()
		e.count++
		e.newest = func(count int) {
			record.AddAttrs(slog.Int(repeatsKey, count))
			_ = h.next.Handle(ctx, record) // there is no caller to return the error to
		}
		return true
	}
	if !h.flushed && len(h.seen) < mostKinds {
		h.seen[key] = &repeatedRecord{timer: time.AfterFunc(repeatsEvery, func() { h.due(key) })}
	}
	return false
}

// due reports the repeats of a record. A record without repeats is forgotten.
func (m *repeatMemory) due(key string) {
	m.mu.Lock()
	e, ok := m.seen[key]
	if !ok {
		m.mu.Unlock()
		return
	}
	due := *e
	if e.count == 0 {
		delete(m.seen, key)
	} else {
		e.newest, e.count = nil, 0
		e.timer.Reset(repeatsEvery)
	}
	m.mu.Unlock()
	due.report()
}

func (e *repeatedRecord) report() {
	if e.count > 0 {
		e.newest(e.count)
	}
}

func (h *repeatHandler) key(record slog.Record) string {
	var key strings.Builder
	key.WriteString(record.Level.String() + h.bound + "\x00" + jobstore.Pattern(record.Message))
	record.Attrs(func(attr slog.Attr) bool {
		writeKey(&key, attr)
		return true
	})
	return key.String()
}

// summarize returns the text of an error without what each server of the address answered to
// a connection: while servers fail over, that differs from attempt to attempt.
func summarize(err error, text string) string {
	if _, ok := errors.AsType[*pgconn.ConnectError](err); !ok {
		return text
	}
	operation, _, _ := strings.Cut(text, "failed to connect to ")
	return operation + postgres.Unavailable(err)
}

// writeKey appends the part of an attribute that distinguishes records.
func writeKey(key *strings.Builder, attr slog.Attr) {
	value := attr.Value.Resolve()
	text := value.String()
	switch value.Any().(type) {
	case string:
		if strings.HasSuffix(attr.Key, "_duration") { // River logs durations as text
			return
		}
		if prose[attr.Key] {
			text = jobstore.Pattern(text)
		}
	case error:
		text = jobstore.Pattern(summarize(value.Any().(error), text)) //nolint:forcetypeassert // see the case
	default:
		return
	}
	key.WriteString("\x00" + attr.Key + "=" + text)
}
