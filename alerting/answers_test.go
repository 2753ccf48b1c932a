package alerting

import (
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/config"
)

// Services say with the status, with JSON or with a text whether they took a message, and whether
// they may take it later.
func TestAnswersOfServices(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		settings config.Notify
		status   int
		kind     string
		answer   string
		fails    string
		refused  bool
	}{
		"Slack took it":           {config.Notify{Type: "slack"}, 200, "application/json; charset=utf-8", `{"ok": true}`, "", false},
		"Slack refuses in JSON":   {config.Notify{Type: "slack", Channel: "#none"}, 200, "application/json", `{"ok": false, "error": "channel_not_found"}`, `channel "#none": error of Slack: channel_not_found`, true},
		"Slack refuses in a text": {config.Notify{Type: "slack"}, 200, "text/html", "no_service", "error of Slack: no_service", true},
		"Slack is not JSON":       {config.Notify{Type: "slack"}, 200, "application/json", "<html>", `answer of Slack "<html>"`, true},
		"PagerDuty refuses":       {config.Notify{Type: "pagerduty", RoutingKey: "key"}, 400, "application/json", `{"message": "Event object is invalid", "errors": ["a", "b"]}`, "400: Event object is invalid: a,b", true},
		"Slack limits the rate":   {config.Notify{Type: "slack", Channel: "#ops"}, 429, "application/json", `{"ok": false, "error": "ratelimited"}`, `channel "#ops": unexpected status code 429`, false},
		"Slack waited too long":   {config.Notify{Type: "slack"}, 408, "", "", "408", false},
		"Slack is overloaded":     {config.Notify{Type: "slack"}, 200, "application/json", `{"ok": false, "error": "service_unavailable"}`, "error of Slack: service_unavailable", false},
		"Slack limits in JSON":    {config.Notify{Type: "slack"}, 200, "application/json", `{"ok": false, "error": "ratelimited"}`, "error of Slack: ratelimited", false},
		"PagerDuty wants a pause": {config.Notify{Type: "pagerduty", RoutingKey: "key"}, 429, "", "", "unexpected status code 429", false},
		"PagerDuty waited":        {config.Notify{Type: "pagerduty", RoutingKey: "key"}, 408, "", "", "unexpected status code 408", false},
		"a webhook limits":        {config.Notify{Type: "webhook"}, 429, "", "slow down", "429: slow down", false},
		"a webhook waited":        {config.Notify{Type: "webhook"}, 408, "", "", "408", false},
		"a webhook is broken":     {config.Notify{Type: "webhook"}, 502, "", "bad gateway", "502: bad gateway", false},
		"a webhook is none":       {config.Notify{Type: "webhook"}, 410, "", "gone", "410: gone", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if agent := r.UserAgent(); agent != "forge" {
					t.Errorf("the user agent is %q", agent)
				}
				w.Header().Set("Content-Type", c.kind)
				w.WriteHeader(c.status)
				_, _ = w.Write([]byte(c.answer))
			}))
			t.Cleanup(server.Close)
			c.settings.APIURL, c.settings.URL = server.URL, server.URL
			err := send(t, "receiver", c.settings)
			if c.fails == "" && err != nil || c.fails != "" && (err == nil || !strings.Contains(err.Error(), c.fails)) || errors.Is(err, alerts.ErrRefused) != c.refused {
				t.Errorf("got %v; want %q, refused: %t", err, c.fails, c.refused)
			}
		})
	}
}

// An answer that another attempt may overcome says in Retry-After when to make it, in seconds or as
// a date.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status   int
		header   string
		min, max time.Duration
	}{
		"seconds":             {429, "30", 30 * time.Second, 30 * time.Second},
		"date":                {429, time.Now().Add(time.Hour).UTC().Format(http.TimeFormat), time.Minute, time.Hour},
		"date in the past":    {429, "Fri, 20 Nov 2015 01:30:00 GMT", 0, 0},
		"rate limit without":  {429, "", 0, 0},
		"rate limit of 0 s":   {429, "0", 0, 0},
		"more than a number":  {429, strings.Repeat("9", 30), time.Hour, math.MaxInt64},
		"negative":            {429, "-1", 0, 0},
		"neither":             {429, "soon", 0, 0},
		"unavailable":         {503, "7", 7 * time.Second, 7 * time.Second},
		"timeout":             {408, "7", 7 * time.Second, 7 * time.Second},
		"unavailable without": {503, "", 0, 0},
		"refused":             {404, "7", 0, 0},
		"delivered":           {200, "7", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if c.header != "" {
					w.Header().Set("Retry-After", c.header)
				}
				w.WriteHeader(c.status)
				_, _ = w.Write([]byte("ok"))
			}))
			t.Cleanup(server.Close)
			for target, settings := range everyHTTP(server.URL) {
				var got time.Duration
				err := send(t, target, settings)
				if retry, ok := errors.AsType[*alerts.RetryAfterError](err); ok {
					got = retry.After
				}
				if got < c.min || got > c.max || errors.Is(err, alerts.ErrRefused) != (c.status == 404) {
					t.Errorf("%s: %s, %v; want %s to %s", target, got, err, c.min, c.max)
				}
			}
		})
	}
}

// The error of an answer with Retry-After contains none of the receiver's secrets and is short.
func TestRetryAfterOfHostileAnswer(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "30")
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = w.Write([]byte("/T/B/secret-path " + strings.Repeat("slow down ", 1000)))
	}))
	t.Cleanup(server.Close)
	err := send(t, "slack", everyHTTP(server.URL)["slack"])
	retry, ok := errors.AsType[*alerts.RetryAfterError](err)
	if !ok || retry.After != 30*time.Second || len(err.Error()) > 2*maxError || strings.Contains(err.Error(), "secret-path") {
		t.Errorf("%v", err)
	}
}

// PagerDuty refuses events of more than 512 kB: they are sent without their details.
func TestLargeEventsOfPagerDuty(t *testing.T) {
	t.Parallel()
	e := serve(t, http.StatusAccepted, "{}")
	large := failure
	large.Description = strings.Repeat("x", maxPagerDutyEvent)
	large.Summary = strings.Repeat("é", 2000)
	if err := sendMessage(t, "pagerduty", config.Notify{Type: "pagerduty", URL: e.URL, RoutingKey: "key"}, large); err != nil {
		t.Fatal(err)
	}
	payload, _ := (<-e.bodies)["payload"].(map[string]any)
	details, _ := payload["custom_details"].(map[string]any)
	if summary := payload["summary"].(string); len([]rune(summary)) != maxPagerDutySummary || !strings.HasSuffix(summary, "é…") {
		t.Errorf("a summary of %d characters", len([]rune(summary)))
	}
	if len(details) != 1 || !strings.Contains(details["error"].(string), "512 kB") {
		t.Errorf("details: %.200v", details)
	}
}
