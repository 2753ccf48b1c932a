package dashboard

import (
	"net"
	"net/http"
	"net/netip"
	"runtime/debug"
	"strings"

	"github.com/forge-scheduler/forge/internal/tokenstore"
)

// The pages load everything from their own origin and nothing inline, so that
// text which slips through the templates still cannot run.
const contentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; " +
	"connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// guard stands before every route: headers, then the Host, then the origin.
func (s *server) guard(next http.Handler) http.Handler {
	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(http.HandlerFunc(s.crossOrigin))
	next = protection.Handler(s.contained(next))
	return deadlines(s.packed(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		secure(w.Header())
		r.RemoteAddr = clientAddress(r, s.TrustedProxies)
		if s.Beyond != nil && s.Beyond(r.Context()) {
			w.Header().Set("Connection", "close")
			if !isProbe(r.URL.Path) {
				s.busy(w, r)
				return
			}
		}
		if !s.hostAllowed(r.Host) {
			s.turnedAway(r, "421 under another name")
			s.fail(w, r, http.StatusMisdirectedRequest, "This node does not answer to that name. Address it by one that it was configured for (http.allowed_hosts).")
			return
		}
		next.ServeHTTP(w, r)
	})))
}

// contained answers for a handler that panics.
func (s *server) contained(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun := &statusRecorder{ResponseWriter: w}
		defer func() {
			if problem := recover(); problem != nil {
				s.panicked(begun, r, problem)
			}
		}()
		next.ServeHTTP(begun, r)
	})
}

// panicked tells the log where it was. What is cut off on purpose goes on as it is.
func (s *server) panicked(begun *statusRecorder, r *http.Request, problem any) {
	if problem == http.ErrAbortHandler { //nolint:errorlint,err113 // it is a value to compare with
		panic(problem)
	}
	s.Logger.ErrorContext(r.Context(), "panic", "path", r.URL.Path, "panic", problem, "stack", string(debug.Stack()))
	if begun.status != 0 {
		panic(http.ErrAbortHandler) // the client can tell that the answer is cut off
	}
	s.fail(begun, r, http.StatusInternalServerError, "Something went wrong in this node; its log says where.")
}

func secure(h http.Header) {
	h.Set("Content-Security-Policy", contentSecurityPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

func (s *server) hostAllowed(hostport string) bool {
	if len(s.AllowedHosts) == 0 {
		return true
	}
	host := hostname(hostport)
	for _, allowed := range s.AllowedHosts {
		if allowed == AnyAddress && isAddress(host) || allowed != AnyAddress && strings.EqualFold(host, allowed) {
			return true
		}
	}
	return false
}

func isAddress(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}

// hostname strips the port and the brackets of an IPv6 address.
func hostname(hostport string) string {
	if host, _, err := net.SplitHostPort(hostport); err == nil {
		hostport = host
	}
	return strings.TrimSuffix(strings.Trim(hostport, "[]"), ".")
}

func (s *server) crossOrigin(w http.ResponseWriter, r *http.Request) {
	s.turnedAway(r, "403 from another site")
	s.fail(w, r, http.StatusForbidden, "The request came from another site.")
}

// allow lists the methods that a route answers.
func (r route) allow() string {
	switch {
	case r.post == nil:
		return "GET, HEAD"
	case r.get == nil:
		return "POST"
	default:
		return "GET, HEAD, POST"
	}
}

// least is what somebody needs to learn which methods a route answers.
func (r route) least() tokenstore.Scope {
	if r.get == nil {
		return r.write
	}
	return r.read
}

func (s *server) methodNotAllowed(of route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", of.allow())
		s.fail(w, r, http.StatusMethodNotAllowed, "Only these methods are answered here: "+of.allow()+".")
	}
}

func (s *server) notFound(w http.ResponseWriter, r *http.Request) {
	s.fail(w, r, http.StatusNotFound, "There is nothing at this address.")
}

// fail answers in the form that fits the path: a problem document for programs,
// a page for people.
func (s *server) fail(w http.ResponseWriter, r *http.Request, status int, detail string) {
	if s.NoPages || forPrograms(r.URL.Path) {
		writeProblem(w, status, detail)
		return
	}
	s.writeErrorPage(w, r, status, detail)
}

func forPrograms(path string) bool {
	if path == docsPath {
		return false
	}
	if path == "/api" {
		return true
	}
	for _, prefix := range []string{"/api/", "/cluster/", "/leader/", "/healthz", "/readyz", "/metrics", "/events", "/static/"} {
		if strings.HasPrefix(path, prefix) {
			return true
		}
	}
	return false
}
