package dashboard

import (
	"errors"
	"net/http"
	"strings"

	"github.com/forge-scheduler/forge/internal/tokenstore"
)

// The cookie of a session. The prefix of the first binds it to this very host, and
// browsers take it over TLS only.
const (
	secureCookie = "__Host-forge"
	plainCookie  = "forge"
)

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
	if !ok || s.throttled(w, r) {
		return
	}
	next := nextOf(fields.Get("next"))
	session, who, err := s.Tokens.Login(r.Context(), strings.TrimSpace(fields.Get("token")))
	switch {
	case errors.Is(err, tokenstore.ErrInvalid):
		s.writeLogin(w, r, http.StatusUnauthorized, loginBody{Next: next, Wrong: true})
	case err != nil:
		s.unreadable(w, r, err)
	default:
		noteDown(r.Context(), "as "+who.Name)
		http.SetCookie(w, cookieOf(r, session, int(tokenstore.SessionLife.Seconds())))
		http.Redirect(w, r, next, http.StatusSeeOther)
	}
}

func (s *server) formLogout(w http.ResponseWriter, r *http.Request) {
	if _, ok := s.form(w, r); !ok {
		return
	}
	if session, is := secretOf(r); is {
		if who, err := s.door.identify(r); err == nil {
			noteDown(r.Context(), "as "+who.Name)
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

// nextOf keeps to this site.
func nextOf(path string) string {
	if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") || strings.ContainsAny(path, "\\\r\n") {
		return "/"
	}
	return path
}
