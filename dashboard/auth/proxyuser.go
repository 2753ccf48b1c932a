package auth

import (
	"context"
	"net/http"
	"net/netip"
	"strings"

	"github.com/forge-scheduler/forge/internal/access"
)

// ProxyHeaders are the headers in which a proxy names users.
type ProxyHeaders struct {
	// User is the header with the user's name. Without it, no proxy names users.
	User string
	// Groups is the header with the user's groups, separated by commas.
	Groups string
	// Trusted are the addresses of the proxies.
	Trusted []netip.Prefix
}

type proxyUserKey struct{}

// proxyUserOf returns the user whom a trusted proxy has named.
func proxyUserOf(ctx context.Context) (user access.User, named bool) {
	user, named = ctx.Value(proxyUserKey{}).(access.User)
	return user, named
}

// namedByProxy adds the user whom a trusted proxy names to requests.
func (s *Guard) namedByProxy(next http.Handler) http.Handler {
	if s.Users.Proxy.User == "" {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(w, s.withProxyUser(r)) })
}

// withProxyUser returns the request with the user whom its proxy names, and without the
// headers. Those from other addresses, and headers that occur twice, are ignored.
func (s *Guard) withProxyUser(r *http.Request) *http.Request {
	proxy := s.Users.Proxy
	users, groups := r.Header.Values(proxy.User), r.Header.Values(proxy.Groups)
	if len(users) == 0 && len(groups) == 0 {
		return r
	}
	r.Header.Del(proxy.User)
	r.Header.Del(proxy.Groups)
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !contains(proxy.Trusted, peer.Addr()) {
		if s.untrusted.CompareAndSwap(false, true) {
			s.Logger.WarnContext(r.Context(), "an address names a user and is not in dashboard.proxy_auth.trusted_proxies; its header is ignored, and so are later ones",
				"header", proxy.User, "address", r.RemoteAddr)
		}
		return r
	}
	user := access.User{Issuer: access.ProxyIssuer, Groups: splitGroups(groups)}
	if len(users) == 1 {
		user.Subject = strings.TrimSpace(users[0])
		user.Name = user.Subject
	}
	if len(users) > 1 || len(groups) > 1 || user.Check() != nil {
		s.Logger.WarnContext(r.Context(), "a proxy names a user in a way that cannot be accepted; want each header once, with a short text",
			"header", proxy.User, "address", r.RemoteAddr, "users", len(users), "groups", len(groups))
		return r
	}
	return r.WithContext(context.WithValue(r.Context(), proxyUserKey{}, user))
}

// splitGroups returns the groups of a header.
func splitGroups(values []string) (groups []string) {
	for _, value := range values {
		for group := range strings.SplitSeq(value, ",") {
			if group = strings.TrimSpace(group); group != "" {
				groups = append(groups, group)
			}
		}
	}
	return groups
}
