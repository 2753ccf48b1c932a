package pages

import (
	"errors"
	"net/http"
	"net/url"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/access"
)

// loginRoute is the route under which failed logins are recorded.
var loginRoute = route.Route{Path: "/login", Action: "login"}

// loginBody is the login form.
type loginBody struct {
	Next string
	// Wrong reports that the submitted token was invalid.
	Wrong bool
	// Provider is where users log in; nil if only tokens do.
	Provider *loginProvider
	// Onward is shown in place of the form.
	Onward *onward
}

func (s *Pages) loginPage(w http.ResponseWriter, r *http.Request) {
	next := nextOf(r.URL.Query().Get("next"))
	if r.Header.Get("Sec-Fetch-Site") == "cross-site" {
		// The session cookie is strict, so a browser that comes from another site did not
		// send it. After the refresh it does.
		w.Header().Set("Refresh", "0; url="+next)
	}
	s.writeLogin(w, r, http.StatusOK, loginBody{Next: next})
}

func (s *Pages) writeLogin(w http.ResponseWriter, r *http.Request, status int, b loginBody) {
	if b.Onward == nil && b.Provider == nil {
		b.Provider = s.loginProvider(r.Context(), b.Next)
	}
	s.writePage(w, r, status, view{Kind: "login", Title: "Log in", Self: s.Self, Body: b})
}

func (s *Pages) formLogin(w http.ResponseWriter, r *http.Request) {
	fields, ok := s.Form(w, r)
	if !ok {
		return
	}
	next := nextOf(fields.Get("next"))
	session, who, err := s.Tokens.Login(r.Context(), strings.TrimSpace(fields.Get("token")))
	switch {
	case errors.Is(err, access.ErrInvalid) && s.Throttled(w, r):
		// Only failed attempts count, and only they are refused: a valid token is accepted
		// even if other clients at the same address fail.
		s.RecordRefused(r, loginRoute, http.StatusTooManyRequests)
	case errors.Is(err, access.ErrInvalid):
		s.RecordRefused(r, loginRoute, http.StatusUnauthorized)
		s.writeLogin(w, r, http.StatusUnauthorized, loginBody{Next: next, Wrong: true})
	case err != nil:
		s.AnswerDatabaseError(w, r, err)
	case !s.RecordDone(w, r, loginRoute.Action, "303 as "+who.Name):
		// The login could not be recorded, so the session is not handed out.
	default:
		http.SetCookie(w, auth.CookieOf(r, session, int(access.SessionLife.Seconds())))
		http.Redirect(w, r, next, http.StatusSeeOther)
	}
}

func (s *Pages) formLogout(w http.ResponseWriter, r *http.Request) {
	if _, ok := s.Form(w, r); !ok {
		return
	}
	session, is := auth.SecretOf(r)
	if is && access.IsUserSession(session) && s.Users.Provider != nil {
		s.logoutUser(w, r, session)
		return
	}
	if is {
		who, err := s.Auth.Identify(r)
		if err == nil && !s.RecordDone(w, r, "logout", "303 as "+who.Name) {
			return
		}
		if err := s.Tokens.Logout(r.Context(), session); err != nil {
			s.AnswerDatabaseError(w, r, err)
			return
		}
	}
	http.SetCookie(w, auth.CookieOf(r, "", -1))
	http.Redirect(w, r, "/login", http.StatusSeeOther)
}

// loginFor returns the address of the login page that leads back to where a refused reader
// was, or an empty string if another token would not help.
func (s *Pages) loginFor(r *http.Request, status int) string {
	if s.Tokens == nil || status != http.StatusUnauthorized && status != http.StatusForbidden {
		return ""
	}
	if strings.HasPrefix(r.URL.Path, userLoginPath) {
		return "/login"
	}
	return "/login?" + web.Encode("next", s.returnAddress(r))
}

// returnAddress returns the page that a request came for. A form leads back to the
// innermost page above its address that can be read.
func (s *Pages) returnAddress(r *http.Request) string {
	if web.IsRead(r.Method) {
		return r.URL.RequestURI()
	}
	for at := r.URL.EscapedPath(); at != "/" && at != "."; at = path.Dir(at) {
		to, err := url.Parse(at)
		if err != nil {
			break
		}
		if _, pattern := s.readable().Handler(&http.Request{Method: http.MethodGet, URL: to}); pattern != "" {
			return at
		}
	}
	return "/"
}

// readablePages returns a router of the pages that can be read. It serves nothing.
func (s *Pages) readablePages() *http.ServeMux {
	mux := http.NewServeMux()
	for _, of := range s.Routes() {
		if of.Get != nil && !web.ForPrograms(of.Path) {
			mux.HandleFunc("GET "+of.Path, http.NotFound)
		}
	}
	return mux
}

// nextOf returns the path to continue at after the login, or "/" if path could lead to
// another site. Browsers treat a backslash as a slash, and remove tabs and line ends before
// they look for the host.
func nextOf(path string) string {
	strange := func(c rune) bool { return c < ' ' || c == 0x7f || c == '\\' || c == utf8.RuneError }
	if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") || strings.ContainsFunc(path, strange) {
		return "/"
	}
	// A proxy may decode the path.
	if u, err := url.Parse(path); err != nil || strings.HasPrefix(u.Path, "//") {
		return "/"
	}
	return path
}
