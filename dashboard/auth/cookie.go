package auth

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"time"

	"github.com/forge-scheduler/forge/internal/access"
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
	if encrypted(r) {
		cookie.Name, cookie.Secure = secureCookie, true
	}
	return cookie
}

func encrypted(r *http.Request) bool {
	return r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https"
}

// The cookies of a login that the provider has not yet sent back.
const (
	secureAttempt = "__Host-forge-login"
	plainAttempt  = "forge-login"
	// attemptLife is how long a login may take.
	attemptLife = 10 * time.Minute
	// maxNext is the length from which the page to continue at is left out: browsers refuse
	// long cookies.
	maxNext = 1500
)

// AttemptCookie returns the cookie of a login attempt; nil ends the attempt. Browsers send it
// when the provider leads back, which a strict cookie would prevent.
func AttemptCookie(r *http.Request, attempt *access.LoginAttempt) *http.Cookie {
	cookie := &http.Cookie{Name: plainAttempt, Path: "/", MaxAge: -1, HttpOnly: true, SameSite: http.SameSiteLaxMode}
	if encrypted(r) {
		cookie.Name, cookie.Secure = secureAttempt, true
	}
	if attempt != nil {
		kept := *attempt
		if len(kept.Next) > maxNext {
			kept.Next = "/"
		}
		text, _ := json.Marshal(kept) // texts always encode
		cookie.Value, cookie.MaxAge = base64.RawURLEncoding.EncodeToString(text), int(attemptLife.Seconds())
	}
	return cookie
}

// AttemptOf returns the login attempt of the browser; ok is false if there is none.
func AttemptOf(r *http.Request) (attempt access.LoginAttempt, ok bool) {
	name := plainAttempt
	if encrypted(r) {
		name = secureAttempt
	}
	cookie, err := r.Cookie(name)
	if err != nil {
		return attempt, false
	}
	text, err := base64.RawURLEncoding.DecodeString(cookie.Value)
	if err != nil || json.Unmarshal(text, &attempt) != nil {
		return attempt, false
	}
	return attempt, attempt.State != "" && attempt.Nonce != "" && attempt.Verifier != ""
}
