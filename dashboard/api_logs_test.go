package dashboard

import (
	"bufio"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

func TestAPIFollowsOutputUntilTheJobHasFinished(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	c.Jobs[0].State = "running"
	server := httptest.NewServer(handlerOf(c))
	t.Cleanup(server.Close)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/api/v1/jobs/42/logs?follow=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if got := response.Header.Get("Content-Type"); got != "application/x-ndjson" {
		t.Errorf("Content-Type %q", got)
	}
	lines := bufio.NewScanner(response.Body)
	next := func() (chunk jobstore.LogChunk) {
		t.Helper()
		if !lines.Scan() {
			t.Fatalf("the stream ended: %v", lines.Err())
		}
		if err := json.Unmarshal(lines.Bytes(), &chunk); err != nil {
			t.Fatal(err)
		}
		return chunk
	}
	if got := next(); got.Chunk != "dumping\n" {
		t.Errorf("got %+v", got)
	}
	c.Change(func(c *dashboardtest.Cluster) {
		c.Logs = append(c.Logs, jobstore.LogChunk{Attempt: 2, Seq: 1, Stream: "stderr", Chunk: "\x1b[1m\u2028again"})
		c.Jobs[0].Attempt = 2
	})
	if got := next(); got.Attempt != 2 || got.Chunk != "\x1b[1m\u2028again" {
		t.Errorf("got %+v", got)
	}
	c.Change(func(c *dashboardtest.Cluster) { c.Jobs[0].FinalizedAt = time.Now() })
	if lines.Scan() || lines.Err() != nil {
		t.Errorf("the stream has not ended well: %q, %v", lines.Text(), lines.Err())
	}
}

func TestAPIFollowAbortsIfJobIsGone(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	server := httptest.NewServer(handlerOf(c))
	t.Cleanup(server.Close)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/api/v1/jobs/42/logs?follow=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	c.Change(func(c *dashboardtest.Cluster) { c.Jobs = nil }) // as retention does
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		if !strings.Contains(lines.Text(), "dumping") {
			t.Errorf("got %q", lines.Text())
		}
	}
	if lines.Err() == nil {
		t.Error("a stream that was cut looks whole")
	}
}

func TestAPIFollowersAreBounded(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	s := makeServer(optionsOf(c))
	h := s.guard.Protect(s.guard.Mux(s.routes()))
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	followers := s.guard.Limits.Followers
	for range auth.MaxFollowersOfOne {
		followers.Acquire(t.Context(), web.AddressOf(r), 1, 0)
	}
	w := get(t, h, "/api/v1/jobs/42/logs?follow=true")
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" || followers.Used != auth.MaxFollowersOfOne {
		t.Errorf("status %d, %d followers", w.Code, followers.Used)
	}
	if w := ask(t, handlerOf(c), http.MethodHead, "/api/v1/jobs/42/logs?follow=true"); w.Code != http.StatusOK || w.Body.Len() != 0 {
		t.Errorf("HEAD: status %d, body %q", w.Code, w.Body)
	}
	if w := get(t, handlerOf(c), "/api/v1/jobs/42/logs?follow=yes"); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "follow must be true or false") {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
}

func TestAPIDownloadsOutput(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	at := dashboardtest.Epoch
	c.Logs = []jobstore.LogChunk{
		{Attempt: 1, Seq: 1, At: at, Stream: "stdout", Chunk: "one\x1b[3"},
		{Attempt: 1, Seq: 2, At: at.Add(time.Second), Stream: "stderr", Chunk: "\x1b]0;title\aerr\n"},
		{Attempt: 1, Seq: 3, At: at.Add(2 * time.Second), Stream: "stdout", Chunk: "1mred<b>\r\nend"},
		{Attempt: 2, Seq: 1, At: at, Stream: "stdout", Chunk: "second"},
	}
	c.Jobs[0].Attempt = 2
	for query, want := range map[string]string{
		"?attempt=1":            "oneerr\nred<b>\nend",
		"":                      "second",
		"?attempt=1&times=true": "2026-11-20T12:00:00.000Z oneerr\n2026-11-20T12:00:02.000Z red<b>\n2026-11-20T12:00:02.000Z end",
		"?attempt=3":            "",
	} {
		w := get(t, handlerOf(c), "/api/v1/jobs/42/output"+query)
		if w.Code != http.StatusOK || w.Body.String() != want || w.Header().Get("Content-Type") != "text/plain; charset=utf-8" {
			t.Errorf("%s: %d %s %q, want %q", query, w.Code, w.Header().Get("Content-Type"), w.Body, want)
		}
		if disposition := w.Header().Get("Content-Disposition"); !strings.HasPrefix(disposition, `attachment; filename="job-42-attempt-`) {
			t.Errorf("%s: disposition %s", query, disposition)
		}
	}
	if w := get(t, handlerOf(c), "/api/v1/jobs/999/output"); w.Code != http.StatusNotFound {
		t.Errorf("no such job: %d %s", w.Code, w.Body)
	}
	if w := ask(t, handlerOf(c), http.MethodHead, "/api/v1/jobs/42/output"); w.Code != http.StatusOK || w.Body.Len() > 0 {
		t.Errorf("HEAD: %d %s", w.Code, w.Body)
	}
}

// A download ends at its bound, and says so.
func TestAPIDownloadIsBounded(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	c.Logs = nil
	chunk := strings.Repeat("x", 8<<20)
	for seq := range 9 {
		c.Logs = append(c.Logs, jobstore.LogChunk{Attempt: 1, Seq: seq + 1, Stream: "stdout", Chunk: chunk})
	}
	w := httptest.NewRecorder()
	handlerOf(c).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:8080/api/v1/jobs/42/output", nil))
	if w.Body.Len() > 64<<20+100 || !strings.HasSuffix(w.Body.String(), "longer than a download may be\n") {
		t.Errorf("%d bytes", w.Body.Len())
	}
}
