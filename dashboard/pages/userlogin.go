package pages

import (
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/access"
	"github.com/forge-scheduler/forge/internal/config"
)

const (
	// userLoginPath begins a login with the provider.
	userLoginPath = "/login/oidc"
	// callbackPath is where the provider leads back to.
	callbackPath = config.CallbackPath
	// endedPath is where the provider reports that its sessions have ended.
	endedPath = "/login/oidc/logout"
	// providerCheck bounds how long the login page waits for the provider.
	providerCheck = 2 * time.Second
)

// loggedOutRoute is the route under which logouts by the provider are recorded.
var loggedOutRoute = route.Route{Path: endedPath, Action: "logout"}

// loginProvider is the provider on the login page.
type loginProvider struct {
	// Name is the provider's host, URL where a login begins.
	Name, URL string
	// Problem is why nobody can log in there now.
	Problem string
}

// onward leads the reader on. The browser follows by itself.
type onward struct{ Title, Link, URL string }

// loginProvider returns nil if there is no provider.
func (s *Pages) loginProvider(ctx context.Context, next string) *loginProvider {
	provider := s.Users.Provider
	if provider == nil {
		return nil
	}
	p := &loginProvider{Name: hostOf(provider.Issuer()), URL: provider.Origin() + userLoginPath + "?" + web.Encode("next", cmp.Or(next, "/"))}
	ctx, cancel := context.WithTimeout(ctx, providerCheck)
	defer cancel()
	if err := provider.Check(ctx); err != nil {
		s.Guard.Logger.WarnContext(ctx, "nobody can log in with the provider", "issuer", provider.Issuer(), "error", err)
		p.Problem = p.Name + " does not answer as a provider of OpenID Connect. Log in with a token, or try again later."
	}
	return p
}

func hostOf(address string) string {
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		return u.Host
	}
	return address
}

// beginLogin sends the browser to the provider.
func (s *Pages) beginLogin(w http.ResponseWriter, r *http.Request) {
	next := nextOf(r.URL.Query().Get("next"))
	if strings.HasPrefix(next, "/login") { // would begin again
		next = "/"
	}
	attempt := access.NewLoginAttempt(next)
	address, err := s.Users.Provider.Begin(r.Context(), attempt)
	if err != nil {
		s.writeLogin(w, r, http.StatusServiceUnavailable, loginBody{Next: next})
		return
	}
	http.SetCookie(w, auth.AttemptCookie(r, &attempt))
	http.Redirect(w, r, address, http.StatusSeeOther)
}

// completeLogin opens a session for a user whom the provider sends back.
func (s *Pages) completeLogin(w http.ResponseWriter, r *http.Request) {
	attempt, begun := auth.AttemptOf(r)
	http.SetCookie(w, auth.AttemptCookie(r, nil))
	q := r.URL.Query()
	given := subtle.ConstantTimeCompare([]byte(q.Get("state")), []byte(attempt.State)) == 1
	switch code := q.Get("code"); {
	case !begun || !given:
		s.refuseLogin(w, r, http.StatusBadRequest, "This login was not begun in this browser, or it took too long. Log in again.", "no such attempt")
	case code == "":
		s.refuseLogin(w, r, http.StatusForbidden, hostOf(s.Users.Provider.Issuer())+" did not log you in: "+clip(cmp.Or(q.Get("error_description"), q.Get("error"), "it gave no reason")), "the provider: "+clip(q.Get("error")))
	case s.Auth.Failing(r):
		s.Throttled(w, r)
	default:
		s.openSession(w, r, attempt, code)
	}
}

func (s *Pages) openSession(w http.ResponseWriter, r *http.Request, attempt access.LoginAttempt, code string) {
	login, err := s.Users.Provider.Complete(r.Context(), attempt, code)
	switch {
	case errors.Is(err, access.ErrInvalid):
		s.Guard.Logger.WarnContext(r.Context(), "a login with the provider failed", "issuer", s.Users.Provider.Issuer(), "error", err)
		s.refuseLogin(w, r, http.StatusForbidden, "The provider's answer cannot be accepted. The node's log has the reason. Log in again.", err.Error())
		return
	case err != nil:
		s.Guard.Logger.WarnContext(r.Context(), "a login with the provider failed", "issuer", s.Users.Provider.Issuer(), "error", err)
		s.writeLogin(w, r, http.StatusServiceUnavailable, loginBody{Next: nextOf(attempt.Next)})
		return
	}
	who := login.Holder(s.Users.Groups)
	by := auth.AsCaller(r, who)
	if who.Scope == "" {
		s.RecordRefusedLogin(by, http.StatusForbidden, "no group gives a scope")
		s.Fail(w, r, http.StatusForbidden, s.Users.Lacking(who, strings.Join(login.Groups, ", "), access.Viewer))
		return
	}
	login.Groups = s.Users.Groups.Known(login.Groups)
	session, err := s.Users.Sessions.Open(r.Context(), login)
	if err != nil {
		s.AnswerDatabaseError(w, r, err)
		return
	}
	if !s.RecordDone(w, by, loginRoute.Action, "200 through "+login.Issuer+" with the groups "+who.Groups) {
		return // the login could not be recorded, so the session is not handed out
	}
	http.SetCookie(w, auth.CookieOf(r, session, int(access.SessionLife.Seconds())))
	// A redirect would continue the navigation that began at the provider, in which browsers
	// do not send the strict cookie. A refresh is a navigation of this site.
	s.lead(w, r, onward{Title: "You are logged in", Link: "Continue", URL: nextOf(attempt.Next)})
}

// refuseLogin answers a login that failed. why is for the audit log.
func (s *Pages) refuseLogin(w http.ResponseWriter, r *http.Request, status int, detail, why string) {
	if s.Throttled(w, r) {
		s.RecordRefusedLogin(r, http.StatusTooManyRequests, "")
		return
	}
	s.RecordRefusedLogin(r, status, why)
	s.Fail(w, r, status, detail)
}

// maxReason is the length to which the provider's reason is shown.
const maxReason = 300

func clip(text string) string {
	if len(text) > maxReason {
		text = strings.ToValidUTF8(text[:maxReason], "") + "…"
	}
	return text
}

// lead answers with a page from which the browser continues by itself.
func (s *Pages) lead(w http.ResponseWriter, r *http.Request, to onward) {
	w.Header().Set("Refresh", "0; url="+to.URL)
	s.writeLogin(w, r, http.StatusOK, loginBody{Onward: &to})
}

// logoutUser ends the session of a user, and then the one at the provider.
func (s *Pages) logoutUser(w http.ResponseWriter, r *http.Request, session string) {
	known, err := s.Users.Sessions.Session(r.Context(), session)
	if err != nil && !errors.Is(err, access.ErrInvalid) {
		s.AnswerDatabaseError(w, r, err)
		return
	}
	if err == nil {
		who := known.Holder(s.Users.Groups)
		if !s.RecordDone(w, auth.AsCaller(r, who), "logout", "as "+who.Name) {
			return
		}
		if err := s.Users.Sessions.Close(r.Context(), session); err != nil {
			s.AnswerDatabaseError(w, r, err)
			return
		}
	}
	http.SetCookie(w, auth.CookieOf(r, "", -1))
	if address := s.Users.Provider.LogoutURL(r.Context(), known.IDToken); err == nil && address != "" {
		// The policy of the pages lets no form lead to another site.
		s.lead(w, r, onward{Title: "You are logged out", Link: "Log out of " + hostOf(s.Users.Provider.Issuer()), URL: address})
		return
	}
	http.Redirect(w, r, "/login", http.StatusSeeOther)
}

// endSessions ends the sessions that the provider has ended (back-channel logout).
func (s *Pages) endSessions(w http.ResponseWriter, r *http.Request) {
	fields, ok := s.Form(w, r)
	if !ok {
		return
	}
	subject, session, err := s.Users.Provider.EndedSession(r.Context(), fields.Get("logout_token"))
	switch {
	case errors.Is(err, access.ErrInvalid) && s.Throttled(w, r):
		return
	case errors.Is(err, access.ErrInvalid):
		s.RecordRefused(r, loggedOutRoute, http.StatusBadRequest)
		s.Fail(w, r, http.StatusBadRequest, "The logout token is not valid.")
		return
	case err != nil:
		s.Guard.Logger.WarnContext(r.Context(), "a logout of the provider cannot be checked", "error", err)
		s.Fail(w, r, http.StatusServiceUnavailable, "The logout token cannot be checked now.")
		return
	}
	ended, err := s.Users.Sessions.CloseAll(r.Context(), s.Users.Provider.Issuer(), subject, session)
	if err != nil {
		s.AnswerDatabaseError(w, r, err)
		return
	}
	if s.RecordDone(w, r, loggedOutRoute.Action, "200 "+format.Plural(int(ended), "session was", "sessions were")+" ended by the provider") {
		w.WriteHeader(http.StatusOK)
	}
}
