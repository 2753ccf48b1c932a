package dashboard

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/dashboard/api"
	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/internal/eventstore"
)

func TestTicksOfAnExpression(t *testing.T) {
	t.Parallel()
	h := handlerOf(dashboardtest.New())
	for query, want := range map[string]string{
		"schedule=0+2+*+*+*&limit=1": `{"schedule":"0 2 * * *","timezone":"UTC","description":"at 02:00 every day","items":[{"tick":"2026-11-21T02:00:00Z","utc":"2026-11-21T02:00:00Z"}]}`,
		"schedule=30+2+*+*+*&timezone=Europe/Berlin&from=2026-07-01T00:00:00Z&limit=1": `[{"tick":"2026-07-01T02:30:00+02:00","utc":"2026-07-01T00:30:00Z"}]`,
		"schedule=@hourly":                       `{"tick":"2026-11-20T17:00:00Z","utc":"2026-11-20T17:00:00Z"}]}`,
		"":                                       "schedule must be an expression such as */5 * * * *",
		"schedule=61+*+*+*+*":                    `minute: 61 is out of range`,
		"schedule=0+0+30+2+*":                    `"status":400`,
		"schedule=@hourly&timezone=Mars/Base":    `timezone: unknown time zone (got \"Mars/Base\")`,
		"schedule=@hourly&from=noon&limit=9999":  "from must be a time such as 2026-11-20T15:04:05Z\\nlimit must be from 1 to 1000",
		"schedule=" + strings.Repeat("1,", 2000): "it is too long",
	} {
		if w := get(t, h, "/api/v1/next?"+query); !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s", query, w.Code, w.Body)
		}
	}
}

func TestEventsByType(t *testing.T) {
	t.Parallel()
	h := handlerOf(dashboardtest.New())
	for query, want := range map[string]string{
		"":                                `"id":2`,
		"type=node_joined":                `{"items":[{"id":1,"at":"2026-11-20T12:00:00Z","type":"node_joined"}]}`,
		"type=node_joined,leader_elected": `"id":2`,
		"type=node_joined&type=node_left": `{"items":[{"id":1,`,
		"after=1":                         `{"items":[{"id":2,"at":"2026-11-20T12:00:00Z","type":"leader_elected"}]}`,
		"type=leader_elected&limit=1":     `"next":"/api/v1/events?cursor=`,
		"type=nothing":                    `"detail":"type nothing: no such events; want this, that"`,
		"follow=yes":                      "follow must be true or false",
	} {
		if w := get(t, h, "/api/v1/events?"+query); !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s", query, w.Code, w.Body)
		}
	}
}

// A client that follows the event log or the audit log receives the existing rows, then new
// ones.
func TestFollowEventsAndAudit(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	server := httptest.NewServer(handlerOf(c))
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	lines := func(path string) *bufio.Scanner {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = response.Body.Close() })
		if got := response.Header.Get("Content-Type"); got != "application/x-ndjson" {
			t.Errorf("%s is %s", path, got)
		}
		return bufio.NewScanner(response.Body)
	}
	demand := func(of *bufio.Scanner, want string) {
		t.Helper()
		if !of.Scan() || !strings.Contains(of.Text(), want) {
			t.Fatalf("got %q, %v; want %s", of.Text(), of.Err(), want)
		}
	}
	eventLog := lines("/api/v1/events?follow=true&type=leader_elected,queue_paused")
	demand(eventLog, `"id":2`)
	c.Change(func(c *dashboardtest.Cluster) {
		c.Events = append([]eventstore.Event{{ID: 4, At: dashboardtest.Epoch, Type: eventstore.QueuePaused}, {ID: 3, At: dashboardtest.Epoch, Type: eventstore.NodeLeft}}, c.Events...)
	})
	demand(eventLog, `"id":4`)
	resumed := lines("/api/v1/events?follow=true&after=3")
	demand(resumed, `"id":4`)
	since := lines("/api/v1/events?follow=true&limit=1&from=" + url.QueryEscape(dashboardtest.Epoch.Format(time.RFC3339)))
	for id := range 4 {
		demand(since, fmt.Sprintf(`"id":%d,`, id+1))
	}
	log := lines("/api/v1/audit?follow=true")
	if w := post(t, handlerOf(c), "/api/v1/jobs/42/cancel", jsonType, ""); w.Code != http.StatusOK {
		t.Fatal(w.Code)
	}
	demand(log, `"action":"job.cancel"`)
}

func TestDoctorAndAlertsOfTheFile(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	h := handlerOf(c)
	for path, want := range map[string]string{
		"doctor":        `{"items":[{"check":"pooler","status":"ok","detail":"there is none"}]}`,
		"alerts/check":  `{"items":[{"alert":"quiet","message":"the cluster has no metric x","warning":true}]}`,
		"alerts/export": "groups: []",
	} {
		if w := get(t, h, "/api/v1/"+path); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	if got := get(t, h, "/api/v1/alerts/export").Header().Get("Content-Type"); got != api.YamlMedia {
		t.Errorf("the rules are %s", got)
	}
}

// A schedule without another tick has an empty list, not null.
func TestNextIsEmptyListWithoutTicks(t *testing.T) {
	t.Parallel()
	body := get(t, handlerOf(dashboardtest.New()), "/api/v1/next?schedule=%40yearly&from=9999-06-01T00%3A00%3A00Z").Body.String()
	if !strings.Contains(body, `"items":[]`) {
		t.Error(body)
	}
}
