package alerting

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/netguard"
)

// everyHTTP are receivers of each type that is reached over HTTP.
func everyHTTP(address string) map[string]config.Notify {
	return map[string]config.Notify{
		"slack":     {Type: "slack", APIURL: address + "/T/B/secret-path", Channel: "#ops"},
		"pagerduty": {Type: "pagerduty", URL: address, RoutingKey: "r0uting-key"},
		"webhook":   {Type: "webhook", URL: address + "/secret-path"},
	}
}

// A receiver that answers without end costs neither memory nor time: 256 MiB are
// there to be read, and hardly any of it is.
// It is not parallel: it measures the memory of the process.
func TestEndlessAnswers(t *testing.T) { //nolint:paralleltest // see above
	for _, status := range []int{http.StatusOK, http.StatusBadRequest, http.StatusInternalServerError} {
		var sent atomic.Int64
		endless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			piece := strings.Repeat("answer ", 8<<10)
			for sent.Load() < 256<<20 {
				n, err := io.WriteString(w, piece)
				if sent.Add(int64(n)); err != nil {
					return
				}
			}
		}))
		t.Cleanup(endless.Close)
		for target, settings := range everyHTTP(endless.URL) {
			sent.Store(0)
			err := send(t, target, settings)
			if err != nil && len(err.Error()) > 2*maxError {
				t.Errorf("%s, %d: an error of %d bytes", target, status, len(err.Error()))
			}
			if status >= 500 && (err == nil || !strings.Contains(err.Error(), "500") || errors.Is(err, alerts.ErrRefused)) {
				t.Errorf("%s, %d: %v, want the status, and another try", target, status, err)
			}
			// What was sent and not read lies in the sockets' buffers.
			if sent.Load() > 32<<20 {
				t.Errorf("%s, %d: %d MiB were sent", target, status, sent.Load()>>20)
			}
		}
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	if memory.HeapSys > 256<<20 {
		t.Errorf("the heap has grown to %d MiB", memory.HeapSys>>20)
	}
}

// What is kept of an answer is short, and is none of the receiver's secrets in any form.
func TestAnswersAreKeptShortAndClean(t *testing.T) {
	t.Parallel()
	long := serve(t, http.StatusNotFound, "no such path: /T/B/secret-path "+strings.Repeat("é and so on ", 4000))
	for target, settings := range everyHTTP(long.URL) {
		settings.HTTPConfig.Authorization.Credentials = "p+ss/word"
		err := send(t, target, settings)
		if err == nil || !errors.Is(err, alerts.ErrRefused) || !strings.Contains(err.Error(), "404") || len(err.Error()) > 2*maxError || strings.Contains(err.Error(), "secret-path") {
			t.Errorf("%s: %v", target, err)
		}
	}
	echo := serve(t, http.StatusUnauthorized, `wrong: p%2Bss%2Fword, "p+ss/word"`)
	settings := config.Notify{Type: "webhook", URL: echo.URL}
	settings.HTTPConfig.Authorization.Credentials = "p+ss/word"
	if err := send(t, "webhook", settings); err == nil || strings.Contains(err.Error(), "word") {
		t.Errorf("the secret is in %v", err)
	}
}

// A redirect would take the message and its credentials elsewhere, past the guard.
func TestReceiversDoNotRedirect(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		var reached atomic.Bool
		elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Store(true) }))
		t.Cleanup(elsewhere.Close)
		away := httptest.NewServer(http.RedirectHandler(elsewhere.URL, status))
		t.Cleanup(away.Close)
		for target, settings := range everyHTTP(away.URL) {
			if err := send(t, target, settings); err == nil || !errors.Is(err, alerts.ErrRefused) || reached.Load() {
				t.Errorf("%s, %d: %v, followed: %t", target, status, err, reached.Load())
			}
		}
	}
}

// Receivers are at public addresses unless the configuration opens others.
func TestReceiversAreGuarded(t *testing.T) {
	t.Parallel()
	inside := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("reached") }))
	t.Cleanup(inside.Close)
	settings := everyHTTP(inside.URL)
	settings["email"] = config.Notify{Type: "email", To: "a@example.com", From: "b@example.com", Smarthost: inside.Listener.Addr().String()}
	proxied := config.Notify{Type: "webhook", URL: "http://example.com/"}
	proxied.HTTPConfig.ProxyURL = inside.URL
	settings["proxied"] = proxied
	receivers, err := New().NewReceivers(settings, netguard.Receivers(nil), quiet)
	if err != nil {
		t.Fatal(err)
	}
	for target := range settings {
		if err := receivers.Send(t.Context(), target, failure); err == nil || !strings.Contains(err.Error(), "blocked address 127.0.0.1 (allow_receiver_cidrs in [http] opens it)") {
			t.Errorf("%s: %v", target, err)
		}
	}
	receivers, err = New().NewReceivers(everyHTTP(serve(t, http.StatusAccepted, "").URL), netguard.Receivers(config.HTTP{AllowReceiverCIDRs: []string{"127.0.0.0/8"}}.AllowedReceivers()), quiet)
	if err != nil {
		t.Fatal(err)
	}
	if err := receivers.Send(t.Context(), "pagerduty", failure); err != nil {
		t.Errorf("an opened range: %v", err)
	}
}
