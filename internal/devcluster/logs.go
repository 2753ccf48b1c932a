package devcluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/lmittmann/tint"
)

// ownName is the name of the cluster's own log lines.
const ownName = "cluster"

// logRenderer writes the lines of all nodes and of the cluster in one format.
type logRenderer struct {
	json    bool
	color   bool
	handler slog.Handler

	mu  sync.Mutex // guards out in JSON, where lines are passed on unchanged
	out io.Writer
}

func newLogRenderer(o Options) *logRenderer {
	r := &logRenderer{json: o.LogFormat == LogJSON, color: o.Color, out: o.Stderr}
	if r.json {
		r.handler = slog.NewJSONHandler(r, nil)
	} else {
		r.handler = tint.NewTextHandler(o.Stderr, &tint.Options{
			Level: slog.LevelDebug, TimeFormat: "15:04:05.000", NoColor: !o.Color,
		})
	}
	return r
}

// logger returns the logger for the cluster's own lines.
func (r *logRenderer) logger() *slog.Logger {
	if r.json {
		return slog.New(r.handler).With("node", ownName)
	}
	return slog.New(named{r.handler, r.prefix(ownName)})
}

// Write writes whole lines, one at a time.
func (r *logRenderer) Write(line []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out.Write(line)
}

// line passes on a node's line: a JSON record, or any other text unchanged.
func (r *logRenderer) line(ctx context.Context, node string, line []byte) {
	record, ok := parseRecord(line)
	if !ok {
		record = slog.NewRecord(time.Now(), slog.LevelWarn, string(line), 0)
	}
	switch {
	case r.json && ok && hasAttr(record, "node"):
		_, _ = r.Write(append(bytes.Clone(line), '\n'))
	case r.json:
		record.AddAttrs(slog.String("node", node))
		_ = r.handler.Handle(ctx, record)
	default:
		_ = named{r.handler, r.prefix(node)}.Handle(ctx, withoutAttr(record, "node", node))
	}
}

// nodeColors are ANSI codes that are readable on dark and on light backgrounds.
var nodeColors = []int{36, 35, 32, 33, 34}

func (r *logRenderer) prefix(name string) string {
	text := fmt.Sprintf("%-8s", name)
	if !r.color {
		return text
	}
	sum := fnv.New32a()
	_, _ = io.WriteString(sum, name)
	return fmt.Sprintf("\x1b[%dm%s\x1b[0m", nodeColors[sum.Sum32()%uint32(len(nodeColors))], text)
}

// named puts a name before the message of each record, and removes control characters
// from the message, which may quote the output of a job.
type named struct {
	slog.Handler

	prefix string
}

func (n named) Handle(ctx context.Context, record slog.Record) error {
	record.Message = n.prefix + " " + strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return -1
		}
		return c
	}, record.Message)
	return n.Handler.Handle(ctx, record)
}

func (n named) WithAttrs(attrs []slog.Attr) slog.Handler {
	return named{n.Handler.WithAttrs(attrs), n.prefix}
}

func (n named) WithGroup(name string) slog.Handler {
	return named{n.Handler.WithGroup(name), n.prefix}
}

// parseRecord parses a line of slog's JSON handler and keeps the order of its attributes.
func parseRecord(line []byte) (slog.Record, bool) {
	decoder := json.NewDecoder(bytes.NewReader(line))
	if start, err := decoder.Token(); err != nil || start != json.Delim('{') {
		return slog.Record{}, false
	}
	record := slog.NewRecord(time.Now(), slog.LevelInfo, "", 0)
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return slog.Record{}, false
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return slog.Record{}, false
		}
		setField(&record, fmt.Sprint(key), value)
	}
	_, err := decoder.Token()
	return record, err == nil && record.Message != ""
}

func hasAttr(record slog.Record, key string) bool {
	found := false
	record.Attrs(func(attr slog.Attr) bool {
		found = attr.Key == key
		return !found
	})
	return found
}

// withoutAttr removes an attribute that the prefix already shows.
func withoutAttr(record slog.Record, key, value string) slog.Record {
	kept := slog.NewRecord(record.Time, record.Level, record.Message, 0)
	record.Attrs(func(attr slog.Attr) bool {
		if attr.Key != key || attr.Value.String() != value {
			kept.AddAttrs(attr)
		}
		return true
	})
	return kept
}

func setField(record *slog.Record, key string, value json.RawMessage) {
	text := string(value)
	var unquoted string
	if json.Unmarshal(value, &unquoted) == nil {
		text = unquoted
	}
	switch key {
	case slog.TimeKey:
		if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
			record.Time = at
		}
	case slog.LevelKey:
		_ = record.Level.UnmarshalText([]byte(text))
	case slog.MessageKey:
		record.Message = text
	default:
		record.AddAttrs(slog.String(key, text))
	}
}
