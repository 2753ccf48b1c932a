package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/access"
)

// Tokens authenticates secrets.
type Tokens interface {
	// Verify returns the holder of a token, Session the holder of a login session. Both
	// return tokenstore.ErrInvalid for an unknown secret.
	Verify(ctx context.Context, token string) (access.Holder, error)
	Session(ctx context.Context, session string) (access.Holder, error)
	// Login creates a session for a token, Logout ends it.
	Login(ctx context.Context, token string) (session string, of access.Holder, err error)
	Logout(ctx context.Context, session string) error
}

const (
	// GraceWithoutDatabase is how long a previously valid secret may still read while the
	// database cannot verify it. Metrics and pages are needed most during an outage.
	GraceWithoutDatabase = 5 * time.Minute
	// maxRemembered bounds the secrets that are remembered for that purpose.
	maxRemembered = 1024
	// Recheck is how often the secret of a long-lived request is verified again.
	Recheck = 5 * time.Second
	// MaxFailures is how often an address may fail to authenticate at once. Later it may
	// once per failureEvery.
	MaxFailures  = 10
	failureEvery = 6 * time.Second
	// CallsPerSecond is the rate of API requests of one caller, identified by token or else
	// by address. It protects the database from a runaway loop. Programs that add more jobs
	// than this should insert them directly in the database.
	CallsPerSecond = 200
	// CallsAtOnce is the burst of these requests.
	CallsAtOnce = 1000
)

// auth authenticates requests.
type auth struct {
	tokens   Tokens
	users    Users
	now      func() time.Time
	failures *throttle
	calls    *throttle

	mu   sync.Mutex
	good map[[sha256.Size]byte]remembered
}

// remembered is the holder of a valid secret and when it was last verified.
type remembered struct {
	access.Holder
	at time.Time
}

func newAuth(tokens Tokens, users Users, now func() time.Time) *auth {
	return &auth{
		tokens: tokens, users: users, now: now, good: map[[sha256.Size]byte]remembered{},
		failures: newThrottle(rate.Every(failureEvery), MaxFailures),
		calls:    newThrottle(CallsPerSecond, CallsAtOnce),
	}
}

// SecretOf returns the secret of a request and whether it is a session. A token in the header
// takes precedence over a cookie; credentials of other schemes are those of a proxy. Over TLS, only the cookie counts that other hosts of the domain
// cannot set: they could log a browser in as another user.
func SecretOf(r *http.Request) (secret string, session bool) {
	if scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " "); strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(token), false
	}
	if cookie, err := r.Cookie(secureCookie); err == nil {
		return cookie.Value, true
	}
	if cookie, err := r.Cookie(plainCookie); err == nil && !encrypted(r) {
		return cookie.Value, true
	}
	return "", false
}

// Identify returns the holder of the request's secret, or else the user whom a trusted proxy
// has named, or access.ErrInvalid.
func (d *auth) Identify(r *http.Request) (access.Holder, error) {
	who, err := d.bySecret(r)
	if user, named := proxyUserOf(r.Context()); named && errors.Is(err, access.ErrInvalid) {
		return user.Holder(d.users.Groups), nil
	}
	return who, err
}

func (d *auth) bySecret(r *http.Request) (access.Holder, error) {
	secret, session := SecretOf(r)
	if secret == "" {
		return access.Holder{}, access.ErrInvalid
	}
	look := d.tokens.Verify
	switch {
	case session && access.IsUserSession(secret):
		look = d.users.holder
	case session:
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
	case errors.Is(err, access.ErrInvalid):
		delete(d.good, key)
	case web.IsRead(r.Method) && known.holdsAt(d.now()):
		return known.Holder, nil
	}
	return who, err
}

// holdsAt reports whether the holder may still read while the database cannot be asked.
func (k remembered) holdsAt(now time.Time) bool {
	return !k.at.IsZero() && now.Sub(k.at) < GraceWithoutDatabase && (k.Until.IsZero() || now.Before(k.Until))
}

// caller is the authenticated holder of a request; the zero value is anonymous.
type caller struct{ access.Holder }

// Identity returns a text that identifies this caller for good. No address and no anonymous
// caller has the same.
func (c caller) Identity() string {
	switch {
	case c.IsUser():
		return "user:" + c.Issuer + " " + c.Subject
	case c.Name == "":
		return ""
	}
	return "token:" + strconv.FormatInt(c.ID, 10)
}

// continuesAs reports whether who is this caller and still has at least its scope.
func (c caller) continuesAs(who access.Holder) bool {
	return c.Identity() == caller{who}.Identity() && who.Scope.Covers(c.Scope)
}

type callerKey struct{}

// CallerOf returns the caller of a request, or the zero caller if none is authenticated.
func CallerOf(ctx context.Context) caller {
	who, _ := ctx.Value(callerKey{}).(caller)
	return who
}

// AsCaller returns a request with its caller.
func AsCaller(r *http.Request, who access.Holder) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), callerKey{}, caller{who}))
}

// admit passes on requests whose token covers a scope. Its answers to others do not reveal
// whether a resource exists.
func (s *Guard) admit(of route.Route, need access.Scope, next http.HandlerFunc) http.HandlerFunc {
	if route.IsProbe(of.Path) {
		return s.probing(next)
	}
	next = s.withSlot(of, next)
	if need == route.Open {
		return next
	}
	next = s.rateLimited(of.Path, next)
	if s.Tokens == nil {
		return next
	}
	return func(w http.ResponseWriter, r *http.Request) {
		if !s.takeSlot(w, r) { // identify queries the database
			return
		}
		turn := RequestSlotOf(r.Context())
		who, err := s.Auth.Identify(r)
		switch {
		case errors.Is(err, access.ErrInvalid):
			s.unauthorized(w, r, of)
		case err != nil:
			s.AnswerDatabaseError(w, r, err)
		default:
			r = AsCaller(r, who)
			if !who.Scope.Covers(need) {
				s.RecordRefused(r, of, http.StatusForbidden)
				s.forbidden(w, r, who, need)
				return
			}
			turn.leave()
			next(w, r)
		}
	}
}

// forbidden tells a caller which scope a request needs. Scopes follow from the route alone,
// so the answer does not reveal whether a resource exists.
func (s *Guard) forbidden(w http.ResponseWriter, r *http.Request, who access.Holder, need access.Scope) {
	w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="forge", error="insufficient_scope", scope=%q`, need))
	detail := fmt.Sprintf("This needs the scope %s. The token %s has the scope %s.", need, who.Name, who.Scope)
	if who.IsUser() {
		groups := who.Groups
		if user, named := proxyUserOf(r.Context()); named && user.Subject == who.Subject {
			groups = strings.Join(user.Groups, ", ")
		}
		detail = s.Users.Lacking(who, groups, need)
	}
	s.Fail(w, r, http.StatusForbidden, detail)
}

// rateLimited limits the rate at which one caller uses the API.
func (s *Guard) rateLimited(path string, next http.HandlerFunc) http.HandlerFunc {
	if !route.IsRateLimited(path) {
		return next
	}
	return func(w http.ResponseWriter, r *http.Request) {
		if wait := s.Auth.calls.take(CallerName(r), s.now()); wait > 0 {
			s.answerTooMany(w, r, wait, fmt.Sprintf("More than %d requests a second.", CallsPerSecond))
			return
		}
		next(w, r)
	}
}

// unauthorized redirects browsers to the login page, and tells programs how to
// authenticate.
func (s *Guard) unauthorized(w http.ResponseWriter, r *http.Request, of route.Route) {
	if secret, _ := SecretOf(r); secret != "" && s.Throttled(w, r) {
		s.RecordRefused(r, of, http.StatusTooManyRequests)
		return
	}
	if web.IsRead(r.Method) && !s.ForProgram(r) {
		http.Redirect(w, r, "/login?"+web.Encode("next", r.URL.RequestURI()), http.StatusSeeOther)
		return
	}
	s.RecordRefused(r, of, http.StatusUnauthorized)
	w.Header().Set("WWW-Authenticate", `Bearer realm="forge"`)
	s.Fail(w, r, http.StatusUnauthorized, "")
}

// Throttled reports whether the address has failed too often. If so, it answers the
// request.
func (s *Guard) Throttled(w http.ResponseWriter, r *http.Request) bool {
	wait := s.Auth.failures.take(web.AddressOf(r), s.now())
	if wait == 0 {
		return false
	}
	s.answerTooMany(w, r, wait, "Too many attempts with a wrong token.")
	return true
}

// Failing reports whether the address of a request has failed too often, without counting
// the request as a failure.
func (d *auth) Failing(r *http.Request) bool {
	return d.failures.wait(web.AddressOf(r), d.now()) > 0
}

func (s *Guard) answerTooMany(w http.ResponseWriter, r *http.Request, wait time.Duration, detail string) {
	w.Header().Set(web.RetryHeader, strconv.Itoa(int(wait/time.Second)+1))
	s.Fail(w, r, http.StatusTooManyRequests, detail)
}

// WhileAdmitted returns a long-lived request whose context ends when the node stops, or
// soon after its caller becomes another one, has a smaller scope, or none.
func (s *Guard) WhileAdmitted(r *http.Request) (lasting *http.Request, stop func()) {
	ctx, cancel := context.WithCancel(r.Context())
	lasting = r.WithContext(ctx)
	if s.lifetime != nil {
		unwatch, end := context.AfterFunc(s.lifetime, cancel), cancel //nolint:contextcheck // the node's end, in addition to the request's
		cancel = func() { unwatch(); end() }
	}
	if s.Tokens == nil {
		return lasting, cancel
	}
	admitted := CallerOf(r.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer cancel()
		ticker := time.NewTicker(Recheck)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				who, err := s.Auth.Identify(r)
				if errors.Is(err, access.ErrInvalid) || err == nil && !admitted.continuesAs(who) {
					return
				}
			}
		}
	}()
	return lasting, func() { cancel(); <-ended }
}

// SeesDetails reports whether the caller of an open route may see details: it has a token
// of any scope, or none is required.
func (s *Guard) SeesDetails(r *http.Request) bool {
	if s.Tokens == nil {
		return true
	}
	_, err := s.Auth.Identify(r)
	return err == nil
}
