package live

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// stopwatch is a page whose parts record when they were drawn.
type stopwatch struct {
	start time.Time
	drawn []time.Duration
}

func (s *stopwatch) draw(context.Context) map[string][]byte {
	at := time.Since(s.start)
	s.drawn = append(s.drawn, at)
	return map[string][]byte{"clock": []byte(at.String()), "still": []byte("same")}
}

func noChanges() (<-chan struct{}, func()) { return nil, func() {} }

func TestNothingIsReadWithoutStreams(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		watch := &stopwatch{start: time.Now()}
		feeds := NewFeeds(noChanges)
		time.Sleep(time.Minute)
		_, _, leave := feeds.Join(t.Context(), "page", watch.draw)
		_, _, leaveToo := feeds.Join(t.Context(), "page", watch.draw)
		time.Sleep(2*time.Second + time.Millisecond)
		leave()
		leaveToo()
		if got := len(watch.drawn); got != 3 {
			t.Errorf("%d readings in two seconds for two listeners, want 3 shared ones: %v", got, watch.drawn)
		}
		time.Sleep(time.Minute)
		if got := len(watch.drawn); got != 3 {
			t.Errorf("%d readings after the last listener left, want no more than 3", got)
		}
		if len(feeds.open) != 0 {
			t.Errorf("%d feeds are still open", len(feeds.open))
		}
	})
}

func TestChangesAreSeenAtOnceAndCoalesced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		watch := &stopwatch{start: time.Now()}
		changes := make(chan struct{})
		feeds := NewFeeds(func() (<-chan struct{}, func()) { return changes, func() {} })
		_, _, leave := feeds.Join(t.Context(), "page", watch.draw)
		defer leave()
		time.Sleep(700 * time.Millisecond)
		changes <- struct{}{} // later than minGap: drawn now
		for range 40 {        // many changes: drawn once, minGap later
			time.Sleep(10 * time.Millisecond)
			changes <- struct{}{}
		}
		time.Sleep(400 * time.Millisecond)
		synctest.Wait()
		want := []time.Duration{0, 700 * time.Millisecond, 1200 * time.Millisecond}
		if len(watch.drawn) != len(want) {
			t.Fatalf("drawn at %v, want %v", watch.drawn, want)
		}
		for i, at := range want {
			if watch.drawn[i] != at {
				t.Errorf("drawn at %v, want %v", watch.drawn, want)
			}
		}
	})
}

func TestOnlyWhatChangedIsSent(t *testing.T) {
	t.Parallel()
	f := NewFeed()
	f.Publish(map[string][]byte{"a": []byte("1"), "b": []byte("1")})
	first, version := f.Since(0, nil)
	if string(first) != "event: a\ndata: 1\n\nid: a:a4ayc_80.b:a4ayc_80\nevent: b\ndata: 1\n\n" {
		t.Errorf("first: %q", first)
	}
	f.Publish(map[string][]byte{"a": []byte("1"), "b": []byte("2")})
	f.Publish(map[string][]byte{"a": []byte("1"), "b": []byte("2")})
	second, version := f.Since(version, nil)
	if string(second) != "id: a:a4ayc_80.b:1HNeOiZe\nevent: b\ndata: 2\n\n" {
		t.Errorf("second: %q", second)
	}
	if third, _ := f.Since(version, nil); len(third) != 0 {
		t.Errorf("third: %q", third)
	}
}

// A client that reconnects receives the parts that differ from those it has, from whichever
// feed or node it received them, and then every change.
func TestStreamsResume(t *testing.T) {
	t.Parallel()
	f := NewFeed()
	f.Publish(map[string][]byte{"a": []byte("1"), "b": []byte("2"), "c": []byte("3")})
	header := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/events?page=jobs", nil)
	header.Header.Set("Last-Event-ID", "a:a4ayc_80.b:older.gone:x")
	address := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/events?page=jobs&last=a%3Aa4ayc_80.b%3Aolder", nil)
	for _, r := range []*http.Request{header, address} {
		if got, _ := f.Since(0, marksOf(r)); strings.Contains(string(got), "event: a") || strings.Count(string(got), "event: ") != 2 {
			t.Errorf("who has a and another b got %q", got)
		}
	}
	for _, last := range []string{"", "nonsense", strings.Repeat("a:1.", 400)} {
		header.Header.Set("Last-Event-ID", last)
		if got, _ := f.Since(0, marksOf(header)); strings.Count(string(got), "event: ") != 3 {
			t.Errorf("who has %.20q got %q", last, got)
		}
	}
}

func TestEventsCannotBeForged(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	writeEvent(&out, "a", []byte("x\rdata: forged\r\nevent: b\n\nlast"))
	want := "event: a\ndata: x&#13;data: forged&#13;\ndata: event: b\ndata: \ndata: last\n\n"
	if out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}
