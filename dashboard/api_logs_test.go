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
