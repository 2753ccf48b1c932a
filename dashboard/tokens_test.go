package dashboard

import (
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
)

// asAdmin sends a form or a GET with an admin's session.
func asAdmin(t *testing.T, h http.Handler, path string, fields url.Values) *httptest.ResponseRecorder {
	t.Helper()
	if fields == nil {
		return withCookie(t, h, "forge=session-of-admin", path)
	}
	return submit(t, h, path, fields.Encode(), "forge=session-of-admin", "")
}

// The secret of a token is shown once, in the answer to the form that creates it.
func TestTokenIsCreatedOnPage(t *testing.T) {
	t.Parallel()
	c, options := clusterWithTokens()
	h := New(options)
	w := asAdmin(t, h, "/tokens", url.Values{"name": {" cd "}, "scope": {"operator"}, "expires": {"2d"}})
	body := w.Body.String()
	if w.Code != http.StatusCreated || strings.Count(body, "forge_secret") != 1 || !strings.Contains(body, `href="/tokens/cd/revoke"`) {
		t.Fatalf("status %d, %s", w.Code, body)
	}
	checkNothingInline(t, "/tokens", body)
	if want := []string{"token cd operator 48h0m0s by a admin through the dashboard from 192.0.2.1"}; !slices.Equal(c.Done, want) {
		t.Errorf("did %q, want %q", c.Done, want)
	}
	if got := w.Header().Get("Cache-Control"); got != "no-store" {
		t.Errorf("Cache-Control: %s", got)
	}
	for _, line := range c.AuditLines() {
		if strings.Contains(line, "forge_secret") {
			t.Errorf("the audit log has the secret: %s", line)
		}
	}
	if body := asAdmin(t, h, "/tokens", nil).Body.String(); strings.Contains(body, "forge_secret") {
		t.Error("the list has the secret")
	}
}

// A form that is rejected is shown again with what was typed.
func TestInvalidTokensAreRejectedOnPage(t *testing.T) {
	t.Parallel()
	c, options := clusterWithTokens()
	h := New(options)
	for _, test := range []struct {
		fields url.Values
		status int
		says   string
	}{
		{url.Values{"name": {"ci"}}, 409, "A token &#34;ci&#34; exists."},
		{url.Values{"name": {"<b>x"}}, 422, "name: "},
		{url.Values{"name": {"anonymous"}}, 422, "reserved"},
		{url.Values{"name": {""}}, 422, "name: "},
		{url.Values{"name": {"x"}, "scope": {"king"}}, 422, "unknown scope &#34;king&#34;"},
		{url.Values{"name": {"x"}, "expires": {"soon"}}, 422, "expires: want a duration"},
		{url.Values{"name": {strings.Repeat("x", 64)}}, 422, "name: "},
	} {
		w := asAdmin(t, h, "/tokens", test.fields)
		body := w.Body.String()
		typed := html.EscapeString(test.fields.Get("name"))
		if w.Code != test.status || !strings.Contains(body, test.says) || !strings.Contains(body, `value="`+typed) || strings.Contains(body, "forge_secret") {
			t.Errorf("%v: status %d, %s", test.fields, w.Code, body)
		}
	}
	if w := asAdmin(t, h, "/tokens", url.Values{"name": {"a\x00b"}}); w.Code != http.StatusBadRequest {
		t.Errorf("a NUL: status %d", w.Code)
	}
	if len(c.Done) > 0 {
		t.Errorf("did %q", c.Done)
	}
}

func TestTokenIsRevokedOnPage(t *testing.T) {
	t.Parallel()
	c, options := clusterWithTokens()
	c.Ids["admin"] = 3 // as the token backup
	h := New(options)
	if body := asAdmin(t, h, "/tokens", nil).Body.String(); strings.Contains(body, `/tokens/old/revoke`) || !strings.Contains(body, `/tokens/ci/revoke`) {
		t.Error("the list offers to revoke a revoked token, or not to revoke a valid one")
	}
	if body := asAdmin(t, h, "/tokens/ci/revoke", nil).Body.String(); !strings.Contains(body, "Revoke ci?") || !strings.Contains(body, `action="/tokens/ci/revoke"`) {
		t.Errorf("the confirmation: %s", body)
	}
	for _, name := range []string{"old", "nobody", "%3Cb%3E"} {
		if w := asAdmin(t, h, "/tokens/"+name+"/revoke", nil); w.Code != http.StatusNotFound {
			t.Errorf("the confirmation for %s: status %d", name, w.Code)
		}
	}
	if w := asAdmin(t, h, "/tokens/nobody/revoke", url.Values{}); w.Code != http.StatusNotFound {
		t.Errorf("revoke a token that is not there: status %d", w.Code)
	}
	w := asAdmin(t, h, "/tokens/ci/revoke", url.Values{})
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/tokens?did=revoke&token=ci" || !slices.Equal(c.Done, []string{"revoke ci"}) {
		t.Errorf("status %d, to %s, did %q", w.Code, w.Header().Get("Location"), c.Done)
	}
	for token, want := range map[string]bool{"old": true, "ci": false, "nobody": false} { // ci is valid, so nobody revoked it
		if got := strings.Contains(asAdmin(t, h, "/tokens?did=revoke&token="+token, nil).Body.String(), "is revoked."); got != want {
			t.Errorf("the notice for %s is shown: %v, want %v", token, got, want)
		}
	}
}

// Only an admin sees the tokens and the way to them.
func TestOnlyAdminsSeeTokens(t *testing.T) {
	t.Parallel()
	_, options := clusterWithTokens()
	h := New(options)
	for _, scope := range []string{"viewer", "operator", "admin"} {
		admin := scope == "admin"
		if got := withCookie(t, h, "forge=session-of-"+scope, "/tokens").Code == http.StatusOK; got != admin {
			t.Errorf("a %s sees the page: %v", scope, got)
		}
		if got := strings.Contains(withCookie(t, h, "forge=session-of-"+scope, "/jobs").Body.String(), `href="/tokens"`); got != admin {
			t.Errorf("a %s is led to the page: %v", scope, got)
		}
	}
}

// Without tokens, the page says that this node creates none.
func TestTokensWithoutAuthentication(t *testing.T) {
	t.Parallel()
	body := get(t, handlerOf(dashboardtest.New()), "/tokens").Body.String()
	if !strings.Contains(body, "forge token create") || strings.Contains(body, `id="act-create"`) || !strings.Contains(body, "/tokens/ci/revoke") {
		t.Error("the page offers to create a token, or does not list any")
	}
}

// Every page says who reads it and what the reader may do.
func TestPagesNameTheirReader(t *testing.T) {
	t.Parallel()
	_, options := clusterWithTokens()
	h := New(options)
	for _, path := range []string{"/", "/jobs", "/jobs/42", "/nowhere"} {
		for scope, may := range map[string]string{
			"viewer":   "(viewer) and may read everything but tokens and the audit log.",
			"operator": "(operator) and may read everything but tokens and the audit log, and act on crons, jobs, queues, dead letters and alerts.",
			"admin":    "(admin) and may read everything and do everything.",
		} {
			if body := withCookie(t, h, "forge=session-of-"+scope, path).Body.String(); !strings.Contains(body, "You are <b>a "+scope+"</b> "+may) {
				t.Errorf("%s does not say what a %s may do", path, scope)
			}
		}
	}
	if body := get(t, h, "/login").Body.String(); strings.Contains(body, "You are") {
		t.Error("the login names a reader")
	}
	if body := get(t, handlerOf(dashboardtest.New()), "/").Body.String(); !strings.Contains(body, "You are <b>anonymous</b> and may do everything but create tokens") {
		t.Error("a page of a node without tokens does not say that everybody may do everything")
	}
}

// The API names the caller as the pages do.
func TestWhoami(t *testing.T) {
	t.Parallel()
	_, options := clusterWithTokens()
	h := New(options)
	if got, want := requestAs(t, h, "operator", "GET", "/api/v1/whoami").Body.String(), `{"name":"a operator","scope":"operator","token":true}`+"\n"; got != want {
		t.Errorf("an operator gets %s", got)
	}
	if w := requestAs(t, h, "expired", "GET", "/api/v1/whoami"); w.Code != http.StatusUnauthorized {
		t.Errorf("with an expired token: status %d", w.Code)
	}
	if got, want := get(t, handlerOf(dashboardtest.New()), "/api/v1/whoami").Body.String(), `{"name":"anonymous","scope":"admin","token":false}`+"\n"; got != want {
		t.Errorf("without tokens: %s", got)
	}
}

// A reader whose token does not suffice gets back to the page by logging in with another one.
func TestRefusedPagesLeadToLogin(t *testing.T) {
	t.Parallel()
	_, options := clusterWithTokens()
	h := New(options)
	for path, next := range map[string]string{
		"/tokens?x=1":                    "%2Ftokens%3Fx%3D1",
		"/leaders/scheduler/step-down":   "%2Fleaders%2Fscheduler%2Fstep-down",
		"/nodes/node-1/drain?a=b&amp;c=": "%2Fnodes%2Fnode-1%2Fdrain%3Fa%3Db%26amp%3Bc%3D",
	} {
		body := withCookie(t, h, "forge=session-of-viewer", path).Body.String()
		if want := `href="/login?next=` + next + `"`; !strings.Contains(body, want) || !strings.Contains(body, "Log in with another token") {
			t.Errorf("%s lacks %s:\n%s", path, want, body)
		}
	}
	for path, next := range map[string]string{ // the page of the form, not the form's address
		"/crons/backup/pause":      "%2Fcrons%2Fbackup",
		"/queues/default/pause":    "%2Fqueues%2Fdefault",
		"/jobs/42/cancel":          "%2Fjobs%2F42%2Fcancel",
		"/alerts/quiet/unsilence":  "%2Falerts",
		"/crons/a%2Fb%3Fc/pause":   "%2Fcrons%2Fa%252Fb%253Fc",
		"/crons/backup/pause?x=//": "%2Fcrons%2Fbackup",
	} {
		for cookie, words := range map[string]string{"forge=session-of-viewer": "Log in with another token", "": ">Log in<"} {
			body := submit(t, h, path, "", cookie, "").Body.String()
			if want := `href="/login?next=` + next + `"`; !strings.Contains(body, want) || !strings.Contains(body, words) {
				t.Errorf("%s as %q lacks %s or %s:\n%s", path, cookie, want, words, body)
			}
		}
	}
	if body := get(t, handlerOf(dashboardtest.New()), "/nowhere").Body.String(); strings.Contains(body, "/login") {
		t.Error("a node without tokens leads to the login")
	}
}

// The login leads back to where the reader was, and to no other site.
func TestLoginReturnsToOwnPagesOnly(t *testing.T) {
	t.Parallel()
	_, options := clusterWithTokens()
	h := New(options)
	for next, want := range map[string]string{
		"/jobs?state=running": "/jobs?state=running", "": "/", "//evil.example": "/", `/\evil.example`: "/", `\/evil.example`: "/",
		"https://evil.example/": "/", "https:evil.example": "/", "https:/evil.example": "/", "HTTPS://evil.example": "/", "//evil.example/%2e%2e": "/",
		"/\t/evil.example": "/", "\r//evil.example": "/", "javascript:alert(1)": "/", "data:text/html,x": "/", "/\u2028/evil.example": "/%e2%80%a8/evil.example",
		"jobs": "/", "@evil.example": "/", "/./\\evil.example": "/",
		// These lead to pages that this node does not have.
		"/..//evil.example": "/evil.example", "/jobs/..//evil.example": "/evil.example", "/%2e%2e//evil.example": "/%2e%2e/evil.example",
	} {
		w := submit(t, h, "/login", url.Values{"token": {"viewer"}, "next": {next}}.Encode(), "", "")
		if got := w.Header().Get("Location"); w.Code != http.StatusSeeOther || got != want {
			t.Errorf("%q leads to %q, want %q", next, got, want)
		}
		form := get(t, h, "/login?"+url.Values{"next": {next}}.Encode())
		if strings.Contains(form.Body.String(), "evil.example") != strings.Contains(want, "evil.example") {
			t.Errorf("the form keeps %q", next)
		}
	}
}

// The page and the API filter and sort the tokens. The fields of the filter are not those of the
// form that creates a token.
func TestTokensFiltered(t *testing.T) {
	t.Parallel()
	_, options := clusterWithTokens()
	h := New(options)
	for _, path := range []string{"/tokens?filter=token:none", "/tokens?scope=admin&filter=token:none"} {
		page := asAdmin(t, h, path, nil).Body.String()
		for _, want := range []string{"No token matches the filter.", "token:none", `<option value="state:revoked">`, `<option value="viewer" selected>`} {
			if !strings.Contains(page, want) {
				t.Errorf("%s lacks %s", path, want)
			}
		}
	}
	all, none := asAdmin(t, h, "/api/v1/tokens?sort=created", nil).Body.String(), asAdmin(t, h, "/api/v1/tokens?filter=token:none", nil).Body.String()
	if !strings.Contains(all, `"name"`) || strings.Contains(none, `"name"`) {
		t.Errorf("all: %s, none: %s", all, none)
	}
	if w := asAdmin(t, h, "/tokens?filter=scope:root", nil); w.Code != http.StatusBadRequest || !strings.Contains(html.UnescapeString(w.Body.String()), `found "root", want one of`) {
		t.Errorf("an unknown scope: %d", w.Code)
	}
}
