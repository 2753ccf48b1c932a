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

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
)

// Errors in an address have the same form as all other errors.
func TestBadAddresses(t *testing.T) {
	t.Parallel()
	h := handlerOf(dashboardtest.New())
	const (
		limit      = "limit must be from 1 to 1000"
		unreadable = "The address is invalid: its query must have names and values in UTF-8 without NUL."
	)
	for _, c := range []struct {
		path   string
		status int
		detail string
	}{
		{"/api/v1/jobs/-1", 404, "There is no such job."},
		{"/api/v1/jobs/0", 404, "There is no such job."},
		{"/api/v1/jobs/9223372036854775808", 404, "There is no such job."},
		{"/api/v1/jobs/..%2F42", 404, "There is no such job."},
		{"/api/v1/jobs/42%00", 404, "There is nothing at this address."},
		{"/api/v1/jobs/%ff", 404, "There is nothing at this address."},
		{"/api/v1/jobs/42/logs?attempt=32768", 400, "attempt must be at most 32767"},
		{"/api/v1/jobs/42/logs?after=2147483648", 400, "after must be at most 2147483647"},
		{"/api/v1/crons/a%ff/next", 404, "There is nothing at this address."},
		{"/api/v1/jobs?kind=%00", 400, unreadable},
		{"/api/v1/audit?%ff=", 400, unreadable},
		{"/api/v1/jobs?%zz", 400, unreadable},
		{"/api/v1/jobs?sate=running", 400, `"sate" is unknown; the parameters are state, kind, queue, cron, filter, sort, args, limit, cursor, before`},
		{"/api/v1/nodes?state=dead", 400, `"state" is unknown; the parameters are filter, sort`},
		{"/api/v1/limits?state=dead", 400, `"state" is unknown; there are no parameters`},
		{"/cluster/status?role=scheduler", 400, `"role" is unknown; there are no parameters`},
		{"/cluster/leader?rol=scheduler", 400, `"rol" is unknown; the parameters are role`},
		{"/cluster/leader?role=a&role=b", 400, "role is given 2 times"},
		{"/cluster/health?verbose=1", 400, `"verbose" is unknown; there are no parameters`},
		{"/api/v1/jobs?limit=1&limit=2", 400, "limit is given 2 times"},
		{"/api/v1/jobs?state=lost", 400, `state must be one of available, pending, scheduled, running, retryable, completed, cancelled, discarded (got "lost")`},
		{"/api/v1/metrics/range?metric=up&label.=a", 400, `"label." is unknown; the parameters are metric, from, to, step, label`},
		{"/api/v1/events?type=node_joined&type=leader_elected", 200, ""},
		{"/api", 404, "There is nothing at this address."},
		{"/api/v1/crons/..%2Fbackup", 404, "There is no such cron."},
		{"/api/v1/jobs?limit=0", 400, limit},
		{"/api/v1/jobs?limit=-1", 400, limit},
		{"/api/v1/jobs?limit=1000000000", 400, limit},
		{"/api/v1/jobs?limit=ten", 400, limit},
		{"/api/v1/jobs?before=9223372036854775808", 400, "before must be a number that is not negative"},
		{"/api/v1/jobs?cursor=", 400, web.ErrForgedCursor.Error()},
		{"/api/v1/jobs?cursor=abc", 400, web.ErrForgedCursor.Error()},
		{"/api/v1/jobs?cursor=%01", 400, web.ErrForgedCursor.Error()},
		{"/api/v1/jobs?cursor=AAAAAAAAAAAAYmVmb3JlPTQy", 400, web.ErrForgedCursor.Error()},
		{"/api/v1/crons/backup/ticks?before=2026-11-19T02:00:00", 400, "before must be a time such as 2026-11-20T15:04:05Z"},
		{"/api/v1/metrics/breakdown?by=kind&to=0000-01-01T00:00:00Z", 400, "to must be a time such as 2026-11-20T15:04:05Z"},
	} {
		w := get(t, h, c.path)
		if got := decode[web.Problem](t, w); w.Code != c.status || got.Detail != c.detail || (w.Header().Get("Content-Type") == web.ProblemMedia) != (c.status >= 400) {
			t.Errorf("%s: status %d, %q", c.path, w.Code, got.Detail)
		}
	}
}

// No route passes invalid text to the database.
func TestInvalidTextInAddressIsRejected(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	for path, r := range addresses(newServer(c)) {
		h := handlerOf(c) // which refuses no request because of those before
		path, _, _ := strings.Cut(path, "?")
		for _, query := range []string{"?kind=%00", "?%00", "?kind=a&kind=%ff", "?kind=%zz", "?a=1;kind=b", "?kind=%ed%a0%80"} {
			before := c.ReadCount()
			if r.Get != nil && r.Read != route.Open {
				if w := get(t, h, path+query); w.Code != 400 || c.ReadCount() != before {
					t.Errorf("%s: status %d after %d readings", path+query, w.Code, c.ReadCount()-before)
				}
			}
			if r.Posts != nil {
				if w := post(t, h, path+query, jsonType, bodyFor(path)); w.Code != 400 || len(c.Done) > 0 {
					t.Errorf("%s: status %d, did %v", path+query, w.Code, c.Done)
				}
			}
			if r.Post != nil && r.Posts == nil {
				if w := post(t, h, path, formType, query[1:]); w.Code != 400 || len(c.Done) > 0 {
					t.Errorf("%s with %s: status %d, did %v", path, query, w.Code, c.Done)
				}
			}
		}
	}
	h := handlerOf(c)
	if w := post(t, h, "/api/v1/bulk/jobs/cancel", jsonType, `{"kind": "a\u0000"}`); w.Code != 422 || !strings.Contains(w.Body.String(), `"pointer":"#/kind","detail":"may not have the character NUL"`) {
		t.Errorf("a body with NUL: %d %s", w.Code, w.Body)
	}
}

// A cursor is valid for its list and filter, with any limit.
func TestCursors(t *testing.T) {
	t.Parallel()
	h := handlerOf(dashboardtest.New())
	first := decode[web.List[json.RawMessage]](t, get(t, h, "/api/v1/jobs?kind=dump&limit=1"))
	next, err := url.Parse(first.Next)
	if err != nil || strings.Contains(first.Next, "before=") {
		t.Fatalf("next is %q, %v", first.Next, err)
	}
	second := decode[web.List[struct {
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

func TestCallersAreRateLimited(t *testing.T) {
	t.Parallel()
	_, options := clusterWithTokens()
	now := dashboardtest.Epoch
	options.Cluster.Now = func() time.Time { return now }
	h := New(options)
	ask := func(token, path string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:8080"+path, nil)
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		checkDocumented(t, r, w)
		return w
	}
	for range auth.CallsAtOnce {
		ask("viewer", "/api/v1/nodes")
	}
	w := ask("viewer", "/api/v1/nodes")
	if got := decode[web.Problem](t, w); w.Code != 429 || w.Header().Get("Retry-After") != "1" || got.Detail != "More than 200 requests a second." {
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

// Without tokens, each address is counted separately, on every route.
func TestAddressesAreRateLimited(t *testing.T) {
	t.Parallel()
	options := optionsOf(dashboardtest.New())
	h := New(options)
	from := func(address, method, path string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), method, "http://127.0.0.1:8080"+path, nil)
		r.RemoteAddr = address
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		checkDocumented(t, r, w)
		return w
	}
	for range auth.CallsAtOnce {
		from("192.0.2.7:1", http.MethodGet, "/api/v1/nodes")
	}
	for path, r := range addresses(makeServer(options)) {
		for method, there := range map[string]bool{http.MethodGet: r.Gets != nil, http.MethodPost: r.Posts != nil} {
			if !there || !strings.HasPrefix(path, "/api/") {
				continue
			}
			if w := from("192.0.2.7:2", method, path); w.Code != 429 || w.Header().Get(web.RetryHeader) != "1" {
				t.Errorf("%s %s: %d, Retry-After %q", method, path, w.Code, w.Header().Get(web.RetryHeader))
			}
		}
	}
	if w := from("192.0.2.8:1", http.MethodGet, "/api/v1/nodes"); w.Code != 200 {
		t.Errorf("another address meanwhile: %d", w.Code)
	}
}

// A body that is shorter than its Content-Length is an error, and changes nothing.
func TestShortBodyIsRejected(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	server := httptest.NewServer(handlerOf(c))
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
	if answer.StatusCode != 400 || !strings.Contains(string(body), "The body cannot be read.") || len(c.Done) > 0 {
		t.Errorf("%d %s, did %v", answer.StatusCode, body, c.Done)
	}
}

// deadlineRecorder is a connection that records its read deadlines.
type deadlineRecorder struct {
	*httptest.ResponseRecorder
	until []time.Time
}

func (p *deadlineRecorder) SetReadDeadline(until time.Time) error {
	p.until = append(p.until, until)
	return nil
}

// A client that sends its body slowly has a bounded time for it, on every route that reads
// a body.
func TestSlowBodyHasADeadline(t *testing.T) {
	t.Parallel()
	c, options := clusterWithTokens()
	h := New(options)
	for path, route := range addresses(makeServer(optionsOf(c))) {
		if route.Post == nil {
			continue
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader("{"))
		r.Host = "localhost"
		r.Header.Set("Authorization", "Bearer admin")
		r.Header.Set("Content-Type", formType)
		if route.Posts != nil {
			r.Header.Set("Content-Type", jsonType)
		}
		w := &deadlineRecorder{ResponseRecorder: httptest.NewRecorder()}
		before := time.Now()
		h.ServeHTTP(w, r)
		if len(w.until) == 0 || w.until[0].Before(before) || w.until[0].After(time.Now().Add(auth.BodyTimeout)) {
			t.Errorf("%s: read until %v, answered %d", path, w.until, w.Code)
		}
	}
}

// Every POST of the API rejects invalid requests in the same way, and changes nothing.
func TestEveryWriteRejectsInvalidBodies(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	for path, r := range addresses(newServer(c)) {
		if r.Posts == nil {
			continue
		}
		h := handlerOf(c) // which refuses no request because of those before
		for _, step := range []struct {
			contentType, body string
			status            int
			says              string
		}{
			{jsonType, `{"a": tru}`, 400, "it is not valid JSON at byte 10"},
			{jsonType, `[]`, 400, "an object is required"},
			{jsonType, `null`, 400, "an object is required"},
			{jsonType, "{\"a\": \"\xff\"}", 400, "it is not UTF-8"},
			{jsonType, strings.Repeat(`{"a":`, 20_000), 413, "The body is larger than 73728 bytes."},
			{jsonType, strings.Repeat(`{"a":`, 12_000), 400, "it is nested too deeply at byte 320; want at most 64 levels"},
			{"text/plain", "{}", 415, "Content-Type must be application/json."},
			{"", "{}", 415, "Content-Type must be application/json."},
			{jsonType, `{"no such": 1, "no such": 2}`, 422, `the field "no such" stands twice`},
			{jsonType, `{"no such": 1}`, 422, `the field "no such" is unknown`},
		} {
			w := post(t, h, path, step.contentType, step.body)
			if got := decode[web.Problem](t, w); w.Code != step.status || !strings.Contains(got.Detail, step.says) || len(c.Done) > 0 {
				t.Errorf("%s %.40s: %d %s, did %v", path, step.body, w.Code, got.Detail, c.Done)
			}
		}
	}
}

// A parameter of a POST would be ignored: dry_run=true in the address instead of the body.
func TestEveryWriteRejectsParameters(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	for path, r := range addresses(newServer(c)) {
		if r.Posts == nil {
			continue
		}
		w := post(t, handlerOf(c), path+"?dry_run=true", jsonType, bodyFor(path))
		if got := decode[web.Problem](t, w); w.Code != 400 || got.Detail != `"dry_run" is unknown; there are no parameters` || len(c.Done) > 0 {
			t.Errorf("%s: %d %s, did %v", path, w.Code, got.Detail, c.Done)
		}
	}
}
