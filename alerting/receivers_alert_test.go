package alerting

import (
	"errors"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/config"
)

// noLeader is a message about one occurrence, or about two when other is given.
func noLeader(ended time.Time, other ...alerts.OccurrenceFacts) alerts.Message {
	m := alerts.AlertMessage("no_leader", failure.At, append([]alerts.OccurrenceFacts{{
		Labels:      map[string]string{"alertname": "no_leader", "severity": "critical", "role": "scheduler"},
		Annotations: map[string]string{"summary": "Nobody leads the scheduler", "description": "No <cron> fires."},
		StartsAt:    failure.At, EndsAt: ended,
	}}, other...))
	m.URL = "http://127.0.0.1:8080/alerts"
	return m
}

var over = failure.At.Add(time.Minute)

var compactor = alerts.OccurrenceFacts{
	Labels:      map[string]string{"alertname": "no_leader", "severity": "critical", "role": "log_compactor"},
	Annotations: map[string]string{"summary": "Nobody leads the log compactor", "description": "Tables grow."},
	StartsAt:    failure.At,
}

// PagerDuty ends an incident by the key that began it.
func TestAlertToPagerDuty(t *testing.T) {
	t.Parallel()
	e := serve(t, http.StatusAccepted, "{}")
	settings := config.Notify{Type: "pagerduty", URL: e.URL, RoutingKey: "secret-key"}
	var keys []any
	for _, step := range []struct {
		message alerts.Message
		action  string
		summary string
	}{
		{noLeader(time.Time{}), "trigger", "Nobody leads the scheduler"},
		{noLeader(over, compactor), "trigger", "no_leader (1 firing, 1 resolved)"},
		{noLeader(over), "resolve", ""},
	} {
		if err := sendMessage(t, "pagerduty", settings, step.message); err != nil {
			t.Fatal(err)
		}
		<-e.got
		body := <-e.bodies
		keys = append(keys, body["dedup_key"])
		if body["event_action"] != step.action || body["routing_key"] != "secret-key" {
			t.Errorf("got %v, want the action %s", body, step.action)
		}
		if payload, _ := body["payload"].(map[string]any); step.summary != "" && (payload["summary"] != step.summary || payload["severity"] != "critical") {
			t.Errorf("payload %v, want %q and critical", payload, step.summary)
		}
	}
	if keys[0] == "" || keys[0] != keys[1] || keys[1] != keys[2] {
		t.Errorf("keys of one occurrence: %v", keys)
	}
}

// A detail that reads like YAML or JSON is a text all the same.
func TestDetailsOfPagerDutyAreTexts(t *testing.T) {
	t.Parallel()
	e := serve(t, http.StatusAccepted, "{}")
	message := noLeader(time.Time{})
	message.Occurrences[0].Annotations["description"] = "sum(x) == 0 holds: its value is 0."
	message.Occurrences[0].Labels["site"] = "east: 2"
	if err := sendMessage(t, "pagerduty", config.Notify{Type: "pagerduty", URL: e.URL, RoutingKey: "secret-key"}, message); err != nil {
		t.Fatal(err)
	}
	payload, _ := (<-e.bodies)["payload"].(map[string]any)
	want := map[string]any{
		"description": "sum(x) == 0 holds: its value is 0.",
		"labels":      "alertname=no_leader role=scheduler severity=critical site=east: 2 ",
	}
	if diff := cmp.Diff(want, payload["custom_details"]); diff != "" {
		t.Errorf("details (-want +got):\n%s", diff)
	}
}

func TestAlertToSlack(t *testing.T) {
	t.Parallel()
	e := serve(t, http.StatusOK, "ok")
	settings := config.Notify{Type: "slack", APIURL: e.URL}
	for _, step := range []struct {
		message           alerts.Message
		title, text, tone string
	}{
		{noLeader(time.Time{}), "Nobody leads the scheduler", "No &lt;cron&gt; fires.", "danger"},
		{noLeader(over), "Resolved: Nobody leads the scheduler", "No &lt;cron&gt; fires.", "good"},
		{
			noLeader(over, compactor), "no_leader (1 firing, 1 resolved)",
			"[resolved] Nobody leads the scheduler: No &lt;cron&gt; fires.\n[firing] Nobody leads the log compactor: Tables grow.\n", "danger",
		},
	} {
		if err := sendMessage(t, "slack:#ops", settings, step.message); err != nil {
			t.Fatal(err)
		}
		<-e.got
		body := <-e.bodies
		attachment := body["attachments"].([]any)[0].(map[string]any)
		got := []any{body["channel"], attachment["title"], attachment["text"], attachment["color"], attachment["title_link"]}
		if diff := cmp.Diff([]any{"#ops", step.title, step.text, step.tone, "http://127.0.0.1:8080/alerts"}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// Every full text ends with the owner and the runbook, once if they are the same for all
// occurrences.
func TestOwnersAndRunbooksInTexts(t *testing.T) {
	t.Parallel()
	e := serve(t, http.StatusOK, "ok")
	run := failure
	run.Annotations = map[string]string{"owner": "team <data>", "runbook_url": "https://wiki.example.com/?a=1&b=2"}
	two := noLeader(time.Time{}, compactor)
	for i, runbook := range []string{"https://wiki/1", "https://wiki/2"} {
		annotations := maps.Clone(two.Occurrences[i].Annotations)
		annotations["owner"], annotations["runbook_url"] = "ops", runbook
		two.Occurrences[i].Annotations = annotations
	}
	for _, step := range []struct {
		message alerts.Message
		end     string
	}{
		{run, "\nOwner: team &lt;data&gt;\nRunbook: https://wiki.example.com/?a=1&amp;b=2"},
		{two, "\nOwner: ops\nRunbook: https://wiki/1\nRunbook: https://wiki/2"},
	} {
		if err := sendMessage(t, "slack:#ops", config.Notify{Type: "slack", APIURL: e.URL}, step.message); err != nil {
			t.Fatal(err)
		}
		<-e.got
		if text, _ := (<-e.bodies)["attachments"].([]any)[0].(map[string]any)["text"].(string); !strings.HasSuffix(text, step.end) {
			t.Errorf("the text %q does not end with %q", text, step.end)
		}
	}
}

func TestAlertToWebhook(t *testing.T) {
	t.Parallel()
	e := serve(t, http.StatusOK, "")
	if err := sendMessage(t, "webhook", config.Notify{Type: "webhook", URL: e.URL}, noLeader(over, compactor)); err != nil {
		t.Fatal(err)
	}
	<-e.got
	body := <-e.bodies
	var got []any
	for _, alert := range body["alerts"].([]any) {
		a := alert.(map[string]any)
		got = append(got, a["status"], a["labels"].(map[string]any)["role"], a["annotations"].(map[string]any)["summary"], a["endsAt"])
	}
	want := []any{
		"resolved", "scheduler", "Nobody leads the scheduler", over.Format(time.RFC3339),
		"firing", "log_compactor", "Nobody leads the log compactor", "0001-01-01T00:00:00Z",
	}
	if diff := cmp.Diff(want, got); diff != "" || body["status"] != "firing" {
		t.Errorf("status %v (-want +got):\n%s", body["status"], diff)
	}
}

func TestAlertByMail(t *testing.T) {
	t.Parallel()
	address, mails := mailServer(t, true)
	settings := config.Notify{Type: "email", To: "ops@example.com", From: "forge@example.com", Smarthost: address}
	if err := sendMessage(t, "email", settings, noLeader(over)); err != nil {
		t.Fatal(err)
	}
	mail := <-mails
	for _, want := range []string{"Subject: Resolved: Nobody leads the scheduler", "No <cron> fires.", "http://127.0.0.1:8080/alerts"} {
		if !strings.Contains(mail, want) {
			t.Errorf("%q is missing in:\n%s", want, mail)
		}
	}
}

// With send_resolved = false a receiver gets the occurrences that fire and no resolved ones.
func TestResolvedOccurrencesAreLeftOut(t *testing.T) {
	t.Parallel()
	e := serve(t, http.StatusOK, "")
	receivers, err := New().NewReceivers(map[string]config.Notify{"webhook": {Type: "webhook", URL: e.URL}}, local, quiet)
	if err != nil {
		t.Fatal(err)
	}
	known := noLeader(over, compactor)
	known.Ended = true
	for what, unwanted := range map[string]alerts.Message{"resolved": noLeader(over), "resolved beside one that was sent before": known} {
		if err := receivers.Send(t.Context(), "webhook", unwanted); !errors.Is(err, alerts.ErrUnwanted) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, wanted := range []alerts.Message{noLeader(over, compactor), noLeader(time.Time{}), failure} {
		if err := receivers.Send(t.Context(), "webhook", wanted); err != nil {
			t.Fatal(err)
		}
		<-e.got
		body := <-e.bodies
		if alerts := body["alerts"].([]any); body["status"] != "firing" || len(alerts) != 1 || alerts[0].(map[string]any)["status"] != "firing" {
			t.Errorf("got %v", body)
		}
	}
	if len(e.got) != 0 {
		t.Errorf("%d messages more", len(e.got))
	}
}
