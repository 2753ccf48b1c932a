package alerting

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

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
		"PagerDuty wants a pause": {config.Notify{Type: "pagerduty", RoutingKey: "key"}, 429, "", "", "unexpected status code 429", false},
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
