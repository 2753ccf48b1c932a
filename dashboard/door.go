package dashboard

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/forge-scheduler/forge/internal/tokenstore"
)

// Tokens knows whose a secret is.
type Tokens interface {
	// Verify says whose token it is, Session who is logged in with a session; both
	// return tokenstore.ErrInvalid for what is nobody's.
	Verify(ctx context.Context, token string) (tokenstore.Holder, error)
	Session(ctx context.Context, session string) (tokenstore.Holder, error)
	// Login opens a session for a token, Logout ends it.
	Login(ctx context.Context, token string) (session string, of tokenstore.Holder, err error)
	Logout(ctx context.Context, session string) error
}

const (
	// graceWithoutDatabase is how long a secret that was good still reads while the
	// database cannot say whether it is: metrics and pages are wanted most then.
	graceWithoutDatabase = 5 * time.Minute
	// maxRemembered bounds the secrets that are remembered for that.
	maxRemembered = 1024
	// recheck is how often a request that lasts is asked again who it is.
	recheck = 5 * time.Second
	// An address may fail to get in ten times at once, and then every six seconds.
	maxFailures  = 10
	failureEvery = 6 * time.Second
	// A caller of the API, known by token or else by address, may ask this often, and
	// so often at once. It keeps a loop gone wild from the database; whoever wants to
	// add more jobs than that does it in the database.
	callsPerSecond = 200
	callsAtOnce    = 1000
)

// door knows who may come in.
type door struct {
	tokens   Tokens
	now      func() time.Time
	failures *throttle
	calls    *throttle

	mu   sync.Mutex
	good map[[sha256.Size]byte]remembered
}

// remembered is a secret that was good.
type remembered struct {
	tokenstore.Holder
	at time.Time
}

func newDoor(tokens Tokens, now func() time.Time) *door {
	return &door{
		tokens: tokens, now: now, good: map[[sha256.Size]byte]remembered{},
		failures: newThrottle(rate.Every(failureEvery), maxFailures),
		calls:    newThrottle(callsPerSecond, callsAtOnce),
	}
}

// secretOf is what a request proves itself with; a header wins over a cookie.
func secretOf(r *http.Request) (secret string, session bool) {
	if header := r.Header.Get("Authorization"); header != "" {
		scheme, token, _ := strings.Cut(header, " ")
		if !strings.EqualFold(scheme, "Bearer") {
			token = ""
		}
		return strings.TrimSpace(token), false
	}
	for _, name := range []string{secureCookie, plainCookie} {
		if cookie, err := r.Cookie(name); err == nil {
			return cookie.Value, true
		}
	}
	return "", false
}

// identify says who asks, or tokenstore.ErrInvalid.
func (d *door) identify(r *http.Request) (tokenstore.Holder, error) {
	secret, session := secretOf(r)
	if secret == "" {
		return tokenstore.Holder{}, tokenstore.ErrInvalid
	}
	look := d.tokens.Verify
	if session {
		look = d.tokens.Session
	}
	who, err := look(r.Context(), secret)
	key := sha256.Sum256([]byte(secret))
	d.mu.Lock()
	defer d.mu.Unlock()
	switch known := d.good[key]; {
	case err == nil:
		if len(d.good) >= maxRemembered {
			clear(d.good)
		}
		d.good[key] = remembered{who, d.now()}
	case errors.Is(err, tokenstore.ErrInvalid):
		delete(d.good, key)
	case reads(r.Method) && !known.at.IsZero() && d.now().Sub(known.at) < graceWithoutDatabase:
		return known.Holder, nil
	}
	return who, err
}

func reads(method string) bool { return method == http.MethodGet || method == http.MethodHead }

// caller is who asks, as far as it is known.
type caller struct{ tokenstore.Holder }

// identity is a text that belongs to this caller alone, now and later. No address, and
// no caller that nobody knows, has the same.
func (c caller) identity() string {
	if c.Name == "" {
		return ""
	}
	return "token:" + strconv.FormatInt(c.ID, 10)
}

type callerKey struct{}

// callerOf is the zero caller where nobody has to say who they are.
func callerOf(ctx context.Context) caller {
	who, _ := ctx.Value(callerKey{}).(caller)
	return who
}

// admit lets those through whose token covers a scope. What it answers to the
// others tells nothing of what is there.
func (s *server) admit(of route, need tokenstore.Scope, next http.HandlerFunc) http.HandlerFunc {
	if isProbe(of.path) {
		return s.probing(next)
	}
	next = s.inTurn(of, next)
	if need == open {
		return next
	}
	next = s.paced(of.path, next)
	if s.Tokens == nil {
		return next
	}
	return func(w http.ResponseWriter, r *http.Request) {
		if !s.takeTurn(w, r) { // it takes a query
			return
		}
		turn := turnOf(r.Context())
		who, err := s.door.identify(r)
		switch {
		case errors.Is(err, tokenstore.ErrInvalid):
			s.unauthorized(w, r, of)
		case err != nil:
			s.unreadable(w, r, err)
		default:
			r = r.WithContext(context.WithValue(r.Context(), callerKey{}, caller{who}))
			if !who.Scope.Covers(need) {
				s.refused(r, of, http.StatusForbidden)
				s.fail(w, r, http.StatusForbidden, "")
				return
			}
			turn.leave()
			next(w, r)
		}
	}
}

// retryHeader says how many seconds to wait.
const retryHeader = "Retry-After"

func isPaced(path string) bool { return strings.HasPrefix(path, "/api/") }

// paced bounds how often one caller uses the API.
func (s *server) paced(path string, next http.HandlerFunc) http.HandlerFunc {
	if !isPaced(path) {
		return next
	}
	return func(w http.ResponseWriter, r *http.Request) {
		if wait := s.door.calls.take(callerName(r), s.Now()); wait > 0 {
			s.tooMany(w, r, wait, fmt.Sprintf("More than %d requests a second.", callsPerSecond))
			return
		}
		next(w, r)
	}
}

// unauthorized sends people to the login, and tells programs how to come in.
func (s *server) unauthorized(w http.ResponseWriter, r *http.Request, of route) {
	if secret, _ := secretOf(r); secret != "" && s.throttled(w, r) {
		s.refused(r, of, http.StatusTooManyRequests)
		return
	}
	if !s.NoPages && reads(r.Method) && !forPrograms(r.URL.Path) {
		http.Redirect(w, r, "/login?"+values("next", r.URL.RequestURI()), http.StatusSeeOther)
		return
	}
	s.refused(r, of, http.StatusUnauthorized)
	w.Header().Set("WWW-Authenticate", `Bearer realm="forge"`)
	s.fail(w, r, http.StatusUnauthorized, "")
}

// throttled answers the request itself when its address has failed too often.
func (s *server) throttled(w http.ResponseWriter, r *http.Request) bool {
	wait := s.door.failures.take(addressOf(r), s.Now())
	if wait == 0 {
		return false
	}
	s.tooMany(w, r, wait, "Too many attempts with a wrong token.")
	return true
}

func (s *server) tooMany(w http.ResponseWriter, r *http.Request, wait time.Duration, detail string) {
	w.Header().Set(retryHeader, strconv.Itoa(int(wait/time.Second)+1))
	s.fail(w, r, http.StatusTooManyRequests, detail)
}

// whileAdmitted is for a request that lasts: its context ends soon after the
// token does, and with the node.
func (s *server) whileAdmitted(r *http.Request) (lasting *http.Request, stop func()) {
	ctx, cancel := context.WithCancel(r.Context())
	lasting = r.WithContext(ctx)
	if s.Lifetime != nil {
		unwatch, end := context.AfterFunc(s.Lifetime, cancel), cancel //nolint:contextcheck // the node's end, beside the request's
		cancel = func() { unwatch(); end() }
	}
	if s.Tokens == nil {
		return lasting, cancel
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer cancel()
		ticker := time.NewTicker(recheck)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				if _, err := s.door.identify(r); errors.Is(err, tokenstore.ErrInvalid) {
					return
				}
			}
		}
	}()
	return lasting, func() { cancel(); <-ended }
}

// addressOf is the other end of a request, without its port.
func addressOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return "an unknown address"
	}
	return host
}
