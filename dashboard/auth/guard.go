package auth

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
)

// Options say who may send requests, and how many.
type Options struct {
	// Tokens authenticates callers. Without it, everybody may do everything.
	Tokens Tokens
	// Users are who may use the listener without a token.
	Users Users
	// Audit records actions in the audit log. Without it, no action is recorded.
	Audit Audit
	// AllowedHosts are the host names that the listener answers to, without port. Empty
	// allows every name. A listener on loopback needs LoopbackHosts, or any web site could
	// read it by rebinding its own name.
	AllowedHosts []string
	// TrustedProxies are the address ranges of proxies whose X-Forwarded-For names the
	// client.
	TrustedProxies []netip.Prefix
	// Concurrent is how many requests are handled at the same time. 0 selects a default.
	Concurrent int
	// Beyond reports, from a request's context, whether its connection exceeds the
	// listener's limit. On such a connection only probes are answered. It is optional.
	Beyond func(ctx context.Context) bool
}

// AnyAddress in AllowedHosts stands for every IP address. Allowing them is safe: a web site
// can rebind its own name to another address, but browsers send that name as the host, not
// the address.
const AnyAddress = "*address*"

// LoopbackHosts are the host names of a listener on loopback.
func LoopbackHosts() []string { return []string{"localhost", "127.0.0.1", "::1"} }

// Guard checks and limits requests.
type Guard struct {
	*web.Responder
	Options

	now      func() time.Time
	lifetime context.Context //nolint:containedctx // the context of the node, not of a call
	Auth     *auth
	// untrusted makes the log mention an untrusted proxy once.
	untrusted atomic.Bool
	// refusals limits how many refusals are recorded.
	refusals *refusals
	Limits   limits
}

func New(opts Options, answers *web.Responder, now func() time.Time, lifetime context.Context) *Guard { //nolint:revive // the context of the node, not of a call
	opts.Users.logger = answers.Logger
	return &Guard{
		Responder: answers, Options: opts, now: now, lifetime: lifetime,
		Auth: newAuth(opts.Tokens, opts.Users, now), refusals: newRefusals(), Limits: newLimits(opts.Concurrent),
	}
}

// ContentSecurityPolicy allows pages to load everything from their own origin and nothing
// inline, so that text that escapes the templates cannot run as a script.
const ContentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; " +
	"connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// Protect wraps every route: it sets headers, then checks the Host, then the origin.
func (s *Guard) Protect(next http.Handler) http.Handler {
	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(http.HandlerFunc(s.crossOrigin))
	next = protection.Handler(s.Recovered(next))
	return deadlines(s.compressed(s.namedByProxy(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		secure(w.Header())
		r.RemoteAddr = clientAddress(r, s.TrustedProxies)
		if s.Beyond != nil && s.Beyond(r.Context()) {
			w.Header().Set("Connection", "close")
			if !route.IsProbe(r.URL.Path) {
				s.answerBusy(w, r)
				return
			}
		}
		if !s.hostAllowed(r.Host) {
			s.recordRejected(r, "421 under another name")
			s.Fail(w, r, http.StatusMisdirectedRequest, "This host name is not allowed. Use a name that http.allowed_hosts lists.")
			return
		}
		next.ServeHTTP(w, r)
	}))))
}

// Recovered answers for a handler that panics.
func (s *Guard) Recovered(next http.Handler) http.Handler {
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
func (s *Guard) logPanic(begun *statusRecorder, r *http.Request, problem any) {
	if problem == http.ErrAbortHandler { //nolint:errorlint,err113 // the panic value is compared by identity
		panic(problem)
	}
	s.Logger.ErrorContext(r.Context(), "panic", "path", r.URL.Path, "panic", problem, "stack", string(debug.Stack()))
	if begun.status != 0 {
		panic(http.ErrAbortHandler) // aborts the connection, so that the client detects the incomplete answer
	}
	s.Fail(begun, r, http.StatusInternalServerError, "The node failed to handle the request. Its log has the details.")
}

func secure(h http.Header) {
	h.Set("Content-Security-Policy", ContentSecurityPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

func (s *Guard) hostAllowed(hostport string) bool {
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

func (s *Guard) crossOrigin(w http.ResponseWriter, r *http.Request) {
	s.recordRejected(r, "403 from another site")
	s.Fail(w, r, http.StatusForbidden, "The request came from another site.")
}

func (s *Guard) methodNotAllowed(of route.Route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", of.Allow())
		s.Fail(w, r, http.StatusMethodNotAllowed, "The methods of this address are "+of.Allow()+".")
	}
}

func (s *Guard) notFound(w http.ResponseWriter, r *http.Request) {
	s.Fail(w, r, http.StatusNotFound, "There is nothing at this address.")
}

// addressed rejects an address that is not valid text. The database would answer such a
// value with an error.
func (s *Guard) addressed(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !web.IsText(r.URL.Path) {
			s.notFound(w, r)
			return
		}
		if _, err := web.TextValues(r.URL.RawQuery); err != nil {
			s.Fail(w, r, http.StatusBadRequest, "The address is invalid: its query must have names and values in UTF-8 without NUL.")
			return
		}
		next(w, r)
	}
}
