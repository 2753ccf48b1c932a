package auth

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
)

func TestClientAddress(t *testing.T) {
	t.Parallel()
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("::1/128")}
	for _, c := range []struct{ peer, forwarded, want string }{
		{"192.0.2.1:5", "198.51.100.7", "192.0.2.1:5"}, // not a trusted proxy
		{"10.0.0.1:5", "", "10.0.0.1:0"},
		{"10.0.0.1:5", "198.51.100.7", "198.51.100.7:0"},
		{"[::ffff:10.0.0.1]:5", "198.51.100.7", "198.51.100.7:0"},
		{"[::1]:5", "2001:db8::7", "[2001:db8::7]:0"},
		{"10.0.0.1:5", "203.0.113.1, 198.51.100.7", "198.51.100.7:0"}, // the client wrote the first address
		{"10.0.0.1:5", "203.0.113.1, 198.51.100.7, 10.0.0.2", "198.51.100.7:0"},
		{"10.0.0.1:5", "198.51.100.7, <script>", "10.0.0.1:0"},
		{"10.0.0.1:5", "10.0.0.3,10.0.0.2", "10.0.0.3:0"},
		{"10.0.0.1:5", strings.Repeat("10.0.0.2,", 100) + "10.0.0.2", "10.0.0.2:0"},
		{"pipe", "198.51.100.7", "pipe"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.RemoteAddr = c.peer
		if c.forwarded != "" {
			r.Header.Set("X-Forwarded-For", c.forwarded)
		}
		if got := clientAddress(r, trusted); got != c.want {
			t.Errorf("%s for %.40s: got %s, want %s", c.peer, c.forwarded, got, c.want)
		}
	}
}
