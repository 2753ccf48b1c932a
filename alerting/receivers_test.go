package alerting

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/netguard"
)

var failure = alerts.Message{
	Key: "cron report@2026-11-20T01:30:00Z", At: time.Date(2026, 11, 20, 1, 31, 2, 0, time.UTC),
	Labels:  map[string]string{"alertname": "CronFailed", "cron": "report", "tick": "2026-11-20T01:30:00Z"},
	Summary: "cron report failed", Description: "exit <status> 3 & more {{ .no }}", URL: "http://127.0.0.1:8080/crons/report",
}

// local opens the loopback, where the tests' receivers are.
var local = netguard.Guard{AllowPrivate: true}

var quiet = slog.New(slog.DiscardHandler)

// endpoint is a receiver on loopback that keeps what it is sent.
type endpoint struct {
	*httptest.Server
	got    chan *http.Request
	bodies chan map[string]any
}

func serve(t *testing.T, status int, answer string) *endpoint {
	t.Helper()
	e := &endpoint{got: make(chan *http.Request, 4), bodies: make(chan map[string]any, 4)}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Errorf("decode: %v", err)
		}
		e.got <- r
		e.bodies <- body
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(e.Close)
	return e
}

func send(t *testing.T, target string, settings config.Notify) error {
	t.Helper()
	return sendMessage(t, target, settings, failure)
}

func sendMessage(t *testing.T, target string, settings config.Notify, m alerts.Message) error {
	t.Helper()
	name, _, _ := strings.Cut(target, ":")
	settings.SendResolved = true
	receivers, err := New().NewReceivers(map[string]config.Notify{name: settings}, local, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	return receivers.Send(t.Context(), target, m)
}

func TestSlack(t *testing.T) {
	t.Parallel()
	e := serve(t, http.StatusOK, "ok")
	if err := send(t, "chat:#db", config.Notify{Type: "slack", APIURL: e.URL + "/T/B/secret", Channel: "#ops", IconEmoji: ":fire:"}); err != nil {
		t.Fatal(err)
	}
	if path := (<-e.got).URL.Path; path != "/T/B/secret" {
		t.Errorf("path %s", path)
	}
	want := map[string]any{
		"channel": "#db", "username": "forge", "icon_emoji": ":fire:",
		"attachments": []any{map[string]any{
			"title": "cron report failed", "title_link": "http://127.0.0.1:8080/crons/report", "color": "danger",
			"text": "exit &lt;status&gt; 3 &amp; more {{ .no }}", "fallback": "cron report failed",
			"mrkdwn_in": []any{"fallback", "pretext", "text"},
		}},
	}
	got := <-e.bodies
	attachment, _ := got["attachments"].([]any)[0].(map[string]any)
	maps.DeleteFunc(attachment, func(_ string, v any) bool { return v == "" })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("payload (-want +got):\n%s", diff)
	}
}

func TestPagerDuty(t *testing.T) {
	t.Parallel()
	for target, severity := range map[string]string{"oncall": "error", "oncall:critical": "critical"} {
		e := serve(t, http.StatusAccepted, `{"status":"success"}`)
		if err := send(t, target, config.Notify{Type: "pagerduty", URL: e.URL, RoutingKey: "r0utingkey", Component: "reports"}); err != nil {
			t.Fatal(err)
		}
		got := <-e.bodies
		payload, _ := got["payload"].(map[string]any)
		details, _ := payload["custom_details"].(map[string]any)
		if got["routing_key"] != "r0utingkey" || got["event_action"] != "trigger" || len(got["dedup_key"].(string)) != 64 ||
			got["client_url"] != failure.URL || payload["summary"] != failure.Summary || payload["severity"] != severity ||
			payload["source"] != "forge" || payload["component"] != "reports" || details["description"] != failure.Description ||
			!strings.Contains(details["labels"].(string), "cron=report") {
			t.Errorf("payload: %v", got)
		}
	}
}

func TestWebhook(t *testing.T) {
	t.Parallel()
	e := serve(t, http.StatusNoContent, "")
	settings := config.Notify{Type: "webhook", URL: e.URL + "/hook"}
	settings.HTTPConfig.Authorization.Credentials = "t0ken-value"
	if err := send(t, "hook", settings); err != nil {
		t.Fatal(err)
	}
	if header := (<-e.got).Header.Get("Authorization"); header != "Bearer t0ken-value" {
		t.Errorf("Authorization: %s", header)
	}
	got := <-e.bodies
	alert, _ := got["alerts"].([]any)[0].(map[string]any)
	if diff := cmp.Diff(map[string]any{
		"status": "firing", "startsAt": "2026-11-20T01:31:02Z", "endsAt": "0001-01-01T00:00:00Z", "generatorURL": failure.URL,
		"labels":      map[string]any{"alertname": "CronFailed", "cron": "report", "tick": "2026-11-20T01:30:00Z"},
		"annotations": map[string]any{"summary": failure.Summary, "description": failure.Description},
		"fingerprint": alert["fingerprint"],
	}, alert); diff != "" {
		t.Errorf("alert (-want +got):\n%s", diff)
	}
	if got["version"] != "4" || got["groupKey"] != failure.Key || got["receiver"] != "hook" || got["status"] != "firing" {
		t.Errorf("payload: %v", got)
	}
}

// mailServer speaks as much SMTP as a delivery needs, and hands on what it got.
func mailServer(t *testing.T, speak bool) (address string, mails <-chan string) {
	t.Helper()
	var listen net.ListenConfig
	listener, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	got := make(chan string, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		if !speak {
			_, _ = io.Copy(io.Discard, conn)
			return
		}
		got <- converse(conn, nil)
	}()
	return listener.Addr().String(), got
}

// converse returns what it got. With settings it offers STARTTLS, and accepts a mail only
// after it.
func converse(conn net.Conn, settings *tls.Config) string {
	var heard strings.Builder
	say := func(line string) { _, _ = io.WriteString(conn, line+"\r\n") }
	say("220 ready")
	lines, data := bufio.NewScanner(conn), false
	for lines.Scan() {
		line := lines.Text()
		heard.WriteString(line + "\n")
		switch {
		case data && line == ".":
			data = false
			say("250 kept")
		case data:
		case settings != nil && line == "STARTTLS":
			say("220 begin")
			conn, settings = tls.Server(conn, settings), nil
			lines = bufio.NewScanner(conn)
		case settings != nil && strings.HasPrefix(line, "EHLO"):
			say("250-here\r\n250 STARTTLS")
		case settings != nil:
			say("530 STARTTLS first")
		case strings.HasPrefix(line, "EHLO"):
			say("250-here\r\n250 AUTH PLAIN")
		case line == "DATA":
			data = true
			say("354 go on")
		case line == "QUIT":
			say("221 bye")
			return heard.String()
		case strings.HasPrefix(line, "AUTH"):
			say("235 known")
		default:
			say("250 fine")
		}
	}
	return heard.String()
}

func TestEmail(t *testing.T) {
	t.Parallel()
	address, mails := mailServer(t, true)
	err := send(t, "mail:dba@example.com", config.Notify{
		Type: "email", To: "ops@example.com", From: "forge@example.com", Smarthost: address, AuthUsername: "u", AuthPassword: "p4ssword",
		Headers: map[string]string{"X-Cron": "{{ .CommonLabels.cron }}"},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := <-mails
	for _, want := range []string{
		"AUTH PLAIN", "MAIL FROM:<forge@example.com>", "RCPT TO:<dba@example.com>", "Subject: cron report failed",
		"X-Cron: report", "exit <status> 3 & more", failure.URL,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the mail lacks %q:\n%s", want, got)
		}
	}
}

// A mail server that accepts and says nothing must not hold up the leader.
func TestSilentMailServer(t *testing.T) {
	t.Parallel()
	address, _ := mailServer(t, false)
	receivers, err := New().NewReceivers(map[string]config.Notify{"mail": {
		Type: "email", To: "ops@example.com", From: "forge@example.com", Smarthost: address,
	}}, local, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := receivers.Send(ctx, "mail", failure); err == nil || errors.Is(err, alerts.ErrRefused) {
		t.Errorf("error = %v, want one that another try may overcome", err)
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	const key = "r0uting-key"
	for _, c := range []struct {
		name    string
		status  int
		refused bool
	}{{"server error", 500, false}, {"not found", 404, true}} {
		e := serve(t, c.status, "no such "+key)
		err := send(t, "oncall", config.Notify{Type: "pagerduty", URL: e.URL, RoutingKey: key})
		if err == nil || errors.Is(err, alerts.ErrRefused) != c.refused || strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	err := send(t, "chat", config.Notify{Type: "slack", APIURL: gone.URL + "/T/B/secret-path"})
	if err == nil || errors.Is(err, alerts.ErrRefused) || strings.Contains(err.Error(), "secret-path") {
		t.Errorf("nobody there: %v", err)
	}
	receivers, _ := New().NewReceivers(nil, local, slog.New(slog.DiscardHandler))
	if err := receivers.Send(t.Context(), "nobody:x", failure); !errors.Is(err, alerts.ErrUnknown) {
		t.Errorf("unknown: %v", err)
	}
}
