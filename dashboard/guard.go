package dashboard

import (
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"runtime/debug"
	"strings"

	"github.com/forge-scheduler/forge/internal/access"
)

// The pages load everything from their own origin and nothing inline, so that text that
// escapes the templates cannot run as a script.
const contentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; " +
	"connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// guard wraps every route: it sets headers, then checks the Host, then the origin.
func (s *guard) guard(next http.Handler) http.Handler {
	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(http.HandlerFunc(s.crossOrigin))
	next = protection.Handler(s.recovered(next))
	return deadlines(s.compressed(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		secure(w.Header())
		r.RemoteAddr = clientAddress(r, s.TrustedProxies)
		if s.Beyond != nil && s.Beyond(r.Context()) {
			w.Header().Set("Connection", "close")
			if !isProbe(r.URL.Path) {
				s.answerBusy(w, r)
				return
			}
		}
		if !s.hostAllowed(r.Host) {
			s.recordRejected(r, "421 under another name")
			s.fail(w, r, http.StatusMisdirectedRequest, "This host name is not allowed. Use a name that http.allowed_hosts lists.")
			return
		}
		next.ServeHTTP(w, r)
	})))
}

// recovered answers for a handler that panics.
func (s *guard) recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun := &statusRecorder{ResponseWriter: w}
		defer func() {
			if problem := recover(); problem != nil {
				s.logPanic(begun, r, problem)
			}
		}()
		next.ServeHTTP(begun, r)
	})
}

// logPanic logs a panic with its stack. It repeats http.ErrAbortHandler, which aborts a
// connection on purpose.
func (s *guard) logPanic(begun *statusRecorder, r *http.Request, problem any) {
	if problem == http.ErrAbortHandler { //nolint:errorlint,err113 // the panic value is compared by identity
		panic(problem)
	}
	s.logger.ErrorContext(r.Context(), "panic", "path", r.URL.Path, "panic", problem, "stack", string(debug.Stack()))
	if begun.status != 0 {
		panic(http.ErrAbortHandler) // aborts the connection, so that the client detects the incomplete answer
	}
	s.fail(begun, r, http.StatusInternalServerError, "The node failed to handle the request. Its log has the details.")
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

func (s *guard) hostAllowed(hostport string) bool {
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

// hostname removes the port and the brackets of an IPv6 address.
func hostname(hostport string) string {
	if host, _, err := net.SplitHostPort(hostport); err == nil {
		hostport = host
	}
	return strings.TrimSuffix(strings.Trim(hostport, "[]"), ".")
}

func (s *guard) crossOrigin(w http.ResponseWriter, r *http.Request) {
	s.recordRejected(r, "403 from another site")
	s.fail(w, r, http.StatusForbidden, "The request came from another site.")
}

// allow lists the methods of a route.
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

// leastScope returns the scope that a caller needs to learn which methods a route has.
func (r route) leastScope() access.Scope {
	if r.get == nil {
		return r.write
	}
	return r.read
}

func (s *guard) methodNotAllowed(of route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", of.allow())
		s.fail(w, r, http.StatusMethodNotAllowed, "The methods of this address are "+of.allow()+".")
	}
}

func (s *guard) notFound(w http.ResponseWriter, r *http.Request) {
	s.fail(w, r, http.StatusNotFound, "There is nothing at this address.")
}

// responder writes the answers to failed requests.
type responder struct {
	logger *slog.Logger
	// errorPage writes an error page for people; nil if there are no pages.
	errorPage func(w http.ResponseWriter, r *http.Request, status int, detail string)
}

// forProgram reports whether a request is answered with a problem document.
func (s *responder) forProgram(r *http.Request) bool {
	return s.errorPage == nil || forPrograms(r.URL.Path)
}

// fail answers in the form that fits the path: a problem document for programs, a page for
// people.
func (s *responder) fail(w http.ResponseWriter, r *http.Request, status int, detail string) {
	if s.forProgram(r) {
		writeProblem(w, status, detail)
		return
	}
	s.errorPage(w, r, status, detail)
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
