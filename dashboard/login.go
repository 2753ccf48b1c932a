package dashboard

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/forge-scheduler/forge/internal/tokenstore"
)

// The cookie of a session. The prefix of the first binds it to this very host, and
// browsers take it over TLS only.
const (
	secureCookie = "__Host-forge"
	plainCookie  = "forge"
)

// loginRoute names what is refused to who cannot log in.
var loginRoute = route{path: "/login", action: "login"}

// loginBody is the login form.
type loginBody struct {
	Next string
	// Wrong says that the form came back.
	Wrong bool
}

func (s *server) loginPage(w http.ResponseWriter, r *http.Request) {
	next := nextOf(r.URL.Query().Get("next"))
	if r.Header.Get("Sec-Fetch-Site") == "cross-site" {
		// Whoever comes from another site has left their cookie at home, which is
		// strict. From here it is taken along.
		w.Header().Set("Refresh", "0; url="+next)
	}
	s.writeLogin(w, r, http.StatusOK, loginBody{Next: next})
}

func (s *server) writeLogin(w http.ResponseWriter, r *http.Request, status int, b loginBody) {
	s.writePage(w, r, status, view{Kind: "login", Title: "Log in", Self: s.Self, Body: b})
}

func (s *server) formLogin(w http.ResponseWriter, r *http.Request) {
	fields, ok := s.form(w, r)
	if !ok {
		return
	}
	next := nextOf(fields.Get("next"))
	session, who, err := s.Tokens.Login(r.Context(), strings.TrimSpace(fields.Get("token")))
	switch {
	case errors.Is(err, tokenstore.ErrInvalid) && s.throttled(w, r):
		// Only failures count, and only they are refused: whoever has a token gets in,
		// whatever others at the same address do.
		s.refused(r, loginRoute, http.StatusTooManyRequests)
	case errors.Is(err, tokenstore.ErrInvalid):
		s.refused(r, loginRoute, http.StatusUnauthorized)
		s.writeLogin(w, r, http.StatusUnauthorized, loginBody{Next: next, Wrong: true})
	case err != nil:
		s.unreadable(w, r, err)
	case !s.recorded(w, r, loginRoute.action, "303 as "+who.Name):
		// Nobody is given the session.
	default:
		http.SetCookie(w, cookieOf(r, session, int(tokenstore.SessionLife.Seconds())))
		http.Redirect(w, r, next, http.StatusSeeOther)
	}
}

func (s *server) formLogout(w http.ResponseWriter, r *http.Request) {
	if _, ok := s.form(w, r); !ok {
		return
	}
	if session, is := secretOf(r); is {
		who, err := s.door.identify(r)
		if err == nil && !s.recorded(w, r, "logout", "303 as "+who.Name) {
			return
		}
		if err := s.Tokens.Logout(r.Context(), session); err != nil {
			s.unreadable(w, r, err)
			return
		}
	}
	http.SetCookie(w, cookieOf(r, "", -1))
	http.Redirect(w, r, "/login", http.StatusSeeOther)
}

// cookieOf is the session as the browser keeps it. A proxy that speaks TLS says
// so; whoever lies about it only makes their own cookie stricter.
func cookieOf(r *http.Request, session string, seconds int) *http.Cookie {
	cookie := &http.Cookie{
		Name: plainCookie, Value: session, Path: "/", MaxAge: seconds,
		HttpOnly: true, SameSite: http.SameSiteStrictMode,
	}
	if r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" {
		cookie.Name, cookie.Secure = secureCookie, true
	}
	return cookie
}

// nextOf keeps to this site. Browsers take a backslash for a slash, and leave tabs and
// line ends out before they look for the host.
func nextOf(path string) string {
	strange := func(c rune) bool { return c < ' ' || c == 0x7f || c == '\\' || c == utf8.RuneError }
	if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") || strings.ContainsFunc(path, strange) {
		return "/"
	}
	// Something on the way may decode the path.
	if u, err := url.Parse(path); err != nil || strings.HasPrefix(u.Path, "//") {
		return "/"
	}
	return path
}
