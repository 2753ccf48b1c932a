package pages

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
)

// noticeCookie holds the hash of the address whose notice was shown last.
const noticeCookie = "forge-notice"

// redirectWithNotice answers a form with the address of a page that reports what was done.
// The redirect makes a reload harmless.
func redirectWithNotice(w http.ResponseWriter, r *http.Request, to string) {
	setNoticeCookie(w, "", -1)
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// showNoticeOnce removes the notice from a request for a page that has shown it, so that a
// reload does not report the same action again.
func showNoticeOnce(w http.ResponseWriter, r *http.Request, req *request) {
	if !req.Values.Has("did") {
		return
	}
	sum := sha256.Sum256([]byte(r.URL.RequestURI()))
	address := hex.EncodeToString(sum[:8])
	if shown, err := r.Cookie(noticeCookie); err == nil && shown.Value == address {
		req.Values.Del("did")
		return
	}
	setNoticeCookie(w, address, 0)
}

func setNoticeCookie(w http.ResponseWriter, value string, maxAge int) {
	http.SetCookie(w, &http.Cookie{Name: noticeCookie, Value: value, Path: "/", MaxAge: maxAge, HttpOnly: true, SameSite: http.SameSiteStrictMode})
}
