package dashboard

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/forge-scheduler/forge/dashboard/auth"
)

// Behind a proxy, failed logins are counted for each client, and the audit log names the
// client.
func TestFailuresAreCountedByClientBehindAProxy(t *testing.T) {
	t.Parallel()
	_, options := clusterWithTokens()
	options.Auth.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	h := New(options)
	guess := func(client string) int {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:8080/api/v1/jobs", nil)
		r.RemoteAddr = "192.0.2.9:1"
		r.Header.Set("X-Forwarded-For", client)
		r.Header.Set("Authorization", "Bearer wrong")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	for range auth.MaxFailures {
		guess("198.51.100.7")
	}
	if got := guess("198.51.100.7"); got != http.StatusTooManyRequests {
		t.Errorf("who failed too often: %d", got)
	}
	if got := guess("198.51.100.8"); got != http.StatusUnauthorized {
		t.Errorf("another client of the proxy: %d", got)
	}
}
