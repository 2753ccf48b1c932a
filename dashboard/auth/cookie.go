package auth

import (
	"net/http"
)

// The session cookies. The prefix of secureCookie binds it to this host, and browsers
// accept it only over TLS.
const (
	secureCookie = "__Host-forge"
	plainCookie  = "forge"
)

// CookieOf returns the session cookie. A proxy that terminates TLS reports it in a header;
// a client that forges the header only makes its own cookie stricter.
func CookieOf(r *http.Request, session string, seconds int) *http.Cookie {
	cookie := &http.Cookie{
		Name: plainCookie, Value: session, Path: "/", MaxAge: seconds,
		HttpOnly: true, SameSite: http.SameSiteStrictMode,
	}
	if r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" {
		cookie.Name, cookie.Secure = secureCookie, true
	}
	return cookie
}
