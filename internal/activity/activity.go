// Package activity reads the event log and the audit log as one stream: what has happened in
// the cluster, who did it, and which requests were refused.
//
// Rows are ordered by their time, the newest or the oldest first. A page is read through an index of the event log if the
// filter names a type, node, role or cron. Other terms are checked row by row, for a limited
// time: a page may then hold fewer entries than the limit although others follow.
//
// Most actions are in both logs. The stream has the event alone, which says who did it. An action
// on many jobs or crons writes many events: the stream has the first one, which says how many
// matched, unless the filter names a cron or a text, which the others may have.
package activity

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/internal/filter"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// The logs that entries come from.
const (
	Events = "events"
	Audit  = "audit"
)

// Keys are the keys of the filters of entries.
var Keys = []filter.Key{
	{Name: "type", Example: "config_*", About: "the type of the event, or the action"},
	{Name: "log", Type: filter.Choice, Values: []string{Events, Audit}, Example: Audit, About: "the event log or the audit log"},
	{Name: "node", Example: "node-2", About: "the node"},
	{Name: "role", Example: "scheduler", About: "the role"},
	{Name: "cron", Example: "nightly*", About: "the cron"},
	{Name: "by", Example: "ada", About: "a part of who did it or from where, in any case"},
	{Name: "text", Example: "timeout", About: "a part of any field, in any case"},
	{Name: "since", Type: filter.Instant, Example: "2h", About: "entries since then"},
	{Name: "until", Type: filter.Instant, Example: "1h", About: "entries until then"},
}

// Entry is an event or an entry of the audit log. Fields that do not apply are empty.
type Entry struct {
	// Log is Events or Audit. ID is unique in its log.
	Log string    `json:"log"`
	ID  int64     `json:"id"`
	At  time.Time `json:"at"`
	// Type is the type of the event, or the action of the audit entry.
	Type   string `json:"type"`
	NodeID string `json:"node_id,omitempty"`
	Role   string `json:"role,omitempty"`
	Term   int64  `json:"term,omitempty"`
	// By is who did it; empty for events that nobody requested.
	By string `json:"by,omitempty"`
	// Source, Object, Outcome and Detail are those of an audit entry.
	Source  string `json:"source,omitempty"`
	Object  string `json:"object,omitempty"`
	Outcome string `json:"outcome,omitempty"`
	Detail  string `json:"detail,omitempty"`
	// Data holds the facts of an event.
	Data json.RawMessage `json:"data,omitempty"`
}

// Place is a position between two entries; the zero Place is before the newest one.
type Place struct {
	at  time.Time
	log string
	id  int64
}

func (e *Entry) place() Place { return Place{e.At, e.Log, e.ID} }

// IsZero reports whether no entry is newer.
func (p Place) IsZero() bool { return p.at.IsZero() }

// compare orders places from the oldest to the newest.
func (p Place) compare(other Place) int {
	return cmp.Or(p.at.Compare(other.at), strings.Compare(p.log, other.log), cmp.Compare(p.id, other.id))
}

// String returns the place in the form that ParsePlace reads; empty for the zero Place.
func (p Place) String() string {
	if p.IsZero() {
		return ""
	}
	return fmt.Sprintf("%d-%s-%d", p.at.UnixMicro(), p.log, p.id)
}

// maxMicros bounds the time of a place: the end of the year 9999.
const maxMicros = 253402300799999999

// ParsePlace parses the text of a place; an empty text is the zero Place.
func ParsePlace(text string) (Place, error) {
	if text == "" {
		return Place{}, nil
	}
	parts := strings.Split(text, "-")
	if len(parts) == 3 && (parts[1] == Events || parts[1] == Audit) {
		micros, err := strconv.ParseUint(parts[0], 10, 63)
		id, errID := strconv.ParseUint(parts[2], 10, 63)
		if err == nil && errID == nil && micros <= maxMicros {
			return Place{time.UnixMicro(int64(micros)), parts[1], int64(id)}, nil //nolint:gosec // at most 63 bits
		}
	}
	return Place{}, fmt.Errorf("%q is no position in the activity", text)
}

// Query selects entries.
type Query struct {
	// Where is a filter with Keys.
	Where *filter.Filter
	// NoAudit leaves out the audit log.
	NoAudit bool
	// Oldest begins with the oldest entries rather than the newest.
	Oldest bool
	// Before is where the page starts.
	Before Place
	Limit  int

	// after leaves out older entries. since replaces the instants of the filter.
	after, since time.Time
}

// The orders of the stream, the usual one first.
const (
	Newest = "newest"
	Oldest = "oldest"
)

// Orders are the orders of the stream.
var Orders = []string{Newest, Oldest}

// compare orders places as the query orders entries.
func (q Query) compare(a, b Place) int {
	if q.Oldest {
		return a.compare(b)
	}
	return b.compare(a)
}

// Page is a part of the stream in the order of its query.
type Page struct {
	Entries []Entry
	// Next is where the next page starts; zero: this is the last one.
	Next Place
	// Partial reports that the search ended early, because it took too long.
	Partial bool
}

// Store reads both logs of a database.
type Store struct{ db postgres.DB }

// New returns the store of a database.
func New(db postgres.DB) *Store { return &Store{db} }

// readAhead is how many entries Find reads beyond the page, so that a page does not begin with the
// action whose event ended the page before.
const readAhead = 10

// Find returns a page of the entries that match a query.
func (s *Store) Find(ctx context.Context, q Query) (Page, error) {
	if q.Limit < 1 {
		return Page{}, nil
	}
	entries, end, err := s.read(ctx, q)
	if err != nil {
		return Page{}, err
	}
	page := Page{Next: end, Partial: !end.IsZero() && len(entries) < q.Limit}
	var next Place
	if page.Entries, next = q.cut(entries); !next.IsZero() {
		page.Next = next
	}
	return page, nil
}

// read returns entries in the order of a query, with the actions whose events are among them. They
// may be more than the limit. end is how far all sources were read; zero: to their ends.
func (s *Store) read(ctx context.Context, q Query) (entries []Entry, end Place, err error) {
	sources, err := s.sources(ctx, q)
	if err != nil {
		return nil, Place{}, err
	}
	began := time.Now()
	for _, from := range sources {
		found, next, err := s.search(ctx, from, q.Limit+readAhead, began)
		if err != nil {
			return nil, Place{}, err
		}
		entries = append(entries, found...)
		if !next.IsZero() && (end.IsZero() || q.compare(next, end) < 0) {
			end = next
		}
	}
	slices.SortFunc(entries, func(a, b Entry) int { return q.compare(a.place(), b.place()) })
	if !end.IsZero() {
		entries = slices.DeleteFunc(entries, func(e Entry) bool { return q.compare(e.place(), end) > 0 })
	}
	return entries, end, nil
}

// oldestFirst iterates over entries in the order of the query.
func (q Query) oldestFirst(entries []Entry) iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		for i := range entries {
			if !q.Oldest {
				i = len(entries) - 1 - i
			}
			if !yield(&entries[i]) {
				return
			}
		}
	}
}

// cut returns the entries of a page, at most the limit and without the twins of events. next is
// where the next page starts; zero if all entries are on this one.
func (q Query) cut(entries []Entry) (shown []Entry, next Place) {
	twins := twinsIn(q.oldestFirst(entries))
	for i := range entries {
		e := &entries[i]
		isTwin := e.Log == Audit && twins[e.ID]
		switch {
		case len(shown) == q.Limit && isTwin:
			next = e.place() // its event is on this page
		case len(shown) == q.Limit:
			return shown, next
		case !isTwin:
			shown, next = append(shown, *e), e.place()
		}
	}
	return shown, Place{}
}
