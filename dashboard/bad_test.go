package dashboard

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

// What is wrong with an address is said in the same form as all else.
func TestBadAddresses(t *testing.T) {
	t.Parallel()
	h := newCluster().handler()
	limit := "limit must be from 1 to 1000"
	for _, c := range []struct {
		path   string
		status int
		detail string
	}{
		{"/api/v1/jobs/-1", 404, "There is no such job."},
		{"/api/v1/jobs/0", 404, "There is no such job."},
		{"/api/v1/jobs/9223372036854775808", 404, "There is no such job."},
		{"/api/v1/jobs/..%2F42", 404, "There is no such job."},
		{"/api/v1/jobs/42%00", 404, "There is no such job."},
		{"/api/v1/crons/..%2Fbackup", 404, "There is no such cron."},
		{"/api/v1/jobs?limit=0", 400, limit},
		{"/api/v1/jobs?limit=-1", 400, limit},
		{"/api/v1/jobs?limit=1000000000", 400, limit},
		{"/api/v1/jobs?limit=ten", 400, limit},
		{"/api/v1/jobs?before=9223372036854775808", 400, "before must be a number that is not negative"},
		{"/api/v1/jobs?cursor=", 400, errForgedCursor.Error()},
		{"/api/v1/jobs?cursor=abc", 400, errForgedCursor.Error()},
		{"/api/v1/jobs?cursor=%00", 400, errForgedCursor.Error()},
		{"/api/v1/jobs?cursor=AAAAAAAAAAAAYmVmb3JlPTQy", 400, errForgedCursor.Error()},
		{"/api/v1/crons/backup/ticks?before=2026-11-19T02:00:00", 400, "before must be a time such as 2026-11-20T15:04:05Z"},
	} {
		w := get(t, h, c.path)
		if got := decode[problem](t, w); w.Code != c.status || got.Detail != c.detail || w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: status %d, %q", c.path, w.Code, got.Detail)
		}
	}
}

// A cursor is good for the list and the filter that gave it, and for any limit.
func TestCursors(t *testing.T) {
	t.Parallel()
	h := newCluster().handler()
	first := decode[list[json.RawMessage]](t, get(t, h, "/api/v1/jobs?kind=dump&limit=1"))
	next, err := url.Parse(first.Next)
	if err != nil || strings.Contains(first.Next, "before=") {
		t.Fatalf("next is %q, %v", first.Next, err)
	}
	second := decode[list[struct {
		ID int64 `json:"id"`
	}]](t, get(t, h, first.Next))
	if len(second.Items) != 1 || second.Items[0].ID != 41 {
		t.Errorf("what follows: %+v", second)
	}
	cursor := next.Query().Get("cursor")
	for address, status := range map[string]int{
		"/api/v1/jobs?kind=dump&limit=7&cursor=" + cursor:                                            200,
		"/api/v1/jobs?kind=mail&cursor=" + cursor:                                                    400,
		"/api/v1/jobs?cursor=" + cursor:                                                              400,
		"/api/v1/events?kind=dump&cursor=" + cursor:                                                  400,
		"/api/v1/jobs?kind=dump&cursor=" + cursor + "A":                                              400,
		"/api/v1/jobs?kind=dump&cursor=" + strings.ToUpper(cursor[:1]) + strings.ToLower(cursor[1:]): 400,
	} {
		if w := get(t, h, address); w.Code != status {
			t.Errorf("%s: %d, want %d", address, w.Code, status)
		}
	}
}

func TestCallersArePaced(t *testing.T) {
	t.Parallel()
	_, options := guarded()
	now := epoch
	options.Now = func() time.Time { return now }
	h := New(options)
	ask := func(token, path string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:8080"+path, nil)
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	for range callsAtOnce {
		ask("viewer", "/api/v1/nodes")
	}
	w := ask("viewer", "/api/v1/nodes")
	if got := decode[problem](t, w); w.Code != 429 || w.Header().Get("Retry-After") != "1" || got.Detail != "More than 200 requests a second." {
		t.Errorf("%d, Retry-After %q: %s", w.Code, w.Header().Get("Retry-After"), got.Detail)
	}
	for what, status := range map[[2]string]int{
		{"operator", "/api/v1/nodes"}: 200, {"viewer", "/metrics"}: 200, {"viewer", "/nodes"}: 200,
	} {
		if got := ask(what[0], what[1]).Code; got != status {
			t.Errorf("%v meanwhile: %d", what, got)
		}
	}
	now = now.Add(time.Second)
	if got := ask("viewer", "/api/v1/nodes").Code; got != 200 {
		t.Errorf("a second later: %d", got)
	}
}

// A body that is shorter than it says is an error, and changes nothing.
func TestContentLengthThatLies(t *testing.T) {
	t.Parallel()
	c := newCluster()
	server := httptest.NewServer(c.handler())
	defer server.Close()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, _ = fmt.Fprintf(conn, "POST /api/v1/jobs/42/cancel HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{}", server.Listener.Addr())
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(answer.Body)
	_ = answer.Body.Close()
	if answer.StatusCode != 400 || !strings.Contains(string(body), "The body cannot be read.") || len(c.done) > 0 {
		t.Errorf("%d %s, did %v", answer.StatusCode, body, c.done)
	}
}

// patient is a connection that notes how long it may take to be read from.
type patient struct {
	*httptest.ResponseRecorder
	until time.Time
}

func (p *patient) SetReadDeadline(until time.Time) error {
	p.until = until
	return nil
}

// Who sends a body a piece at a time has a bounded time for it.
func TestSlowBodyHasADeadline(t *testing.T) {
	t.Parallel()
	h := newCluster().handler()
	for path, contentType := range map[string]string{
		"/api/v1/jobs/42/cancel": "application/json", "/jobs/42/cancel": "application/x-www-form-urlencoded",
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader("{"))
		r.Host = "localhost"
		r.Header.Set("Content-Type", contentType)
		w := &patient{ResponseRecorder: httptest.NewRecorder()}
		before := time.Now()
		h.ServeHTTP(w, r)
		if w.until.Before(before) || w.until.After(time.Now().Add(bodyTimeout)) {
			t.Errorf("%s: read until %v, answered %d", path, w.until, w.Code)
		}
	}
}

// No body does more than it says or breaks anything: what is taken is an object
// with known fields that reads back the same.
func FuzzBodies(f *testing.F) {
	for _, seed := range []string{
		"", "{}", "[]", "null", `{"kind":"dump"}`, `{"kind":"dump","kind":"x"}`, `{"ids":[1,2],"all":false}`, `{"at":"2026-11-19T02:00:00Z","args":{"a":[1]}}`,
		`{"KIND":1}`, "{\"kind\":\"\xff\"}", `{"kind":"\u0000"}`, strings.Repeat(`{"a":`, 100), `{"ids":[9223372036854775808]}`, `{} {}`,
	} {
		f.Add([]byte(seed))
	}
	paths := []string{"jobs", "jobs/42/cancel", "bulk/jobs/cancel", "bulk/dead/retry", "crons/backup/trigger", "crons/backup/backfill", "leaders/scheduler/transfer"}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, path := range paths {
			c := newCluster()
			w := post(t, c.handler(), "/api/v1/"+path, jsonType, string(body))
			switch {
			case w.Code >= 500:
				t.Errorf("%s %q: %d %s", path, body, w.Code, w.Body)
			case w.Code >= 400 && (w.Header().Get("Content-Type") != "application/problem+json" || decode[problem](t, w).Status != w.Code):
				t.Errorf("%s %q: no problem document: %s", path, body, w.Body)
			case w.Code < 300 && len(body) > 0 && !json.Valid(body):
				t.Errorf("%s took %q", path, body)
			}
		}
	})
}
