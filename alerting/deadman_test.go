package alerting

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/internal/netguard"
)

// TestDeadmanIsGuarded checks that the server of deadman_url cannot redirect the request,
// that little of its response is read, and that addresses inside the network are not
// requested.
func TestDeadmanIsGuarded(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("/ok", func(w http.ResponseWriter, _ *http.Request) {
		for range 1 << 12 {
			if _, err := io.WriteString(w, strings.Repeat("x", 1<<16)); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/gone", http.NotFound)
	mux.Handle("/away", http.RedirectHandler("/ok", http.StatusFound))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	open, closed := netguard.Guard{AllowPrivate: true}.Client(), netguard.Receivers(nil).Client()
	for _, c := range []struct {
		client *http.Client
		path   string
		want   string
	}{
		{open, "/ok", ""},
		{open, "/gone", "answered with status 404"},
		{open, "/away", "answered with status 302: redirects are not followed"},
		{closed, "/ok", "blocked address 127.0.0.1 (allow_receiver_cidrs in [http] opens it)"},
	} {
		err := ask(t.Context(), c.client, server.URL+c.path+"?key=secret")
		if got := text(err); !strings.HasSuffix(got, c.want) || (c.want == "") != (err == nil) || strings.Contains(got, "secret") {
			t.Errorf("%s: %q, want %q", c.path, got, c.want)
		}
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
