package dashboard

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
)

// A client whose request was refused cannot keep the connection, neither with a slow body
// nor with another request.
func TestRefusedRequestsCloseTheirConnections(t *testing.T) {
	t.Parallel()
	_, options := clusterWithTokens()
	server := httptest.NewServer(New(options))
	t.Cleanup(server.Close)
	for _, head := range []string{
		"POST /api/v1/jobs HTTP/1.1\r\nContent-Length: 1000\r\n",
		"POST /api/v1/jobs HTTP/1.1\r\nTransfer-Encoding: chunked\r\n",
		"POST /login HTTP/1.1\r\nSec-Fetch-Site: cross-site\r\nContent-Length: 1000\r\n",
		"PUT /jobs HTTP/1.1\r\nContent-Length: 1000\r\n",
		"GET /jobs HTTP/1.1\r\nContent-Length: 1000\r\n",
	} {
		name, _, _ := strings.Cut(head, " HTTP")
		for sent, body := range map[string]string{"nothing": "", "all": strings.Repeat("x", 1000)} {
			t.Run(name+", "+sent+" of its body", func(t *testing.T) {
				t.Parallel()
				conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = conn.Close() }()
				_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
				start := time.Now()
				_, _ = fmt.Fprintf(conn, "%sHost: localhost\r\nAuthorization: Bearer wrong\r\n\r\n%s", head, body)
				reader := bufio.NewReader(conn)
				answer, err := http.ReadResponse(reader, nil)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, answer.Body)
				_ = answer.Body.Close()
				if answer.StatusCode < 300 || !answer.Close {
					t.Fatalf("status %d, closes the connection: %v", answer.StatusCode, answer.Close)
				}
				if _, err := reader.ReadByte(); err != io.EOF {
					t.Errorf("the connection stays open: %v", err)
				}
				if took := time.Since(start); took >= auth.BodyTimeout {
					t.Errorf("the rest of the body was waited for: %v", took)
				}
			})
		}
	}
}

// The requests of one caller leave slots for those of others, which wait for them. Probes
// are answered meanwhile.
func TestRequestsWaitForFreeSlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, options := clusterWithTokens()
		blocked := make(chan struct{})
		var begun int
		var mu sync.Mutex
		options.Auth.Concurrent = 4
		options.API.Metrics = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			mu.Lock()
			begun++
			mu.Unlock()
			<-blocked
		})
		h := New(options)
		request := func(token, path string) *httptest.ResponseRecorder {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:8080"+path, nil)
			r.RemoteAddr = token + ":1"
			r.Header.Set("Authorization", "Bearer "+token)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w
		}
		var wait sync.WaitGroup
		for range 2 {
			wait.Go(func() { request("viewer", "/metrics") })
		}
		synctest.Wait()
		if w := request("viewer", "/api/v1/jobs"); w.Code != http.StatusServiceUnavailable || w.Header().Get(web.RetryHeader) == "" {
			t.Errorf("the third of a caller: status %d", w.Code)
		}
		if w := request("operator", "/api/v1/jobs"); w.Code != http.StatusOK {
			t.Errorf("another caller: status %d", w.Code)
		}
		for range 2 {
			wait.Go(func() { request("operator", "/metrics") })
		}
		synctest.Wait()
		start := time.Now()
		if w := request("", "/readyz"); w.Code != http.StatusOK || time.Since(start) > 0 {
			t.Errorf("a probe: status %d after %v", w.Code, time.Since(start))
		}
		wait.Go(func() {
			time.Sleep(time.Second)
			close(blocked)
		})
		if w := request("admin", "/api/v1/jobs"); w.Code != http.StatusOK || begun != 4 {
			t.Errorf("who waited: status %d, beside %d others", w.Code, begun)
		}
		wait.Wait()
		if used := h.server.guard.Limits.Requests.Used; used != 0 {
			t.Errorf("%d places are not given back", used)
		}
	})
}

// The answers that clients do not read are bounded, in total and for each client.
func TestLargeAnswersAreBounded(t *testing.T) {
	t.Parallel()
	_, options := clusterWithTokens()
	options.API.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		_, _ = w.Write(make([]byte, auth.MaxUnsentOfOne))
	})
	h := New(options)
	held := h.server.guard.Limits.Unsent.Acquire(t.Context(), "token:1", 1, 0)
	if w := requestAs(t, h, "viewer", "GET", "/metrics"); w.Code != http.StatusServiceUnavailable || w.Header().Get(web.RetryHeader) == "" || w.Body.Len() > 1000 {
		t.Errorf("beyond what a caller may leave unread: status %d, %d bytes", w.Code, w.Body.Len())
	}
	held()
	if w := requestAs(t, h, "viewer", "GET", "/metrics"); w.Code != http.StatusOK || w.Body.Len() != auth.MaxUnsentOfOne {
		t.Errorf("status %d, %d bytes", w.Code, w.Body.Len())
	}
	if used := h.server.guard.Limits.Unsent.Used; used != 0 {
		t.Errorf("%d bytes are not given back", used)
	}
}

// On connections beyond the limit, only probes are answered.
func TestConnectionsBeyondLimitServeOnlyProbes(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	options := optionsOf(c)
	options.Auth.Beyond = func(context.Context) bool { return true }
	h := New(options)
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/leader/scheduler": 200, "/": 503, "/api/v1/jobs": 503, "/static/app.js": 503} {
		before := c.ReadCount()
		w := get(t, h, path)
		if w.Code != want || w.Header().Get("Connection") != "close" || !route.IsProbe(path) && (w.Header().Get(web.RetryHeader) == "" || c.ReadCount() != before) {
			t.Errorf("%s: status %d, headers %v", path, w.Code, w.Header())
		}
	}
}
