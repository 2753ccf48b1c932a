package dashboard

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/internal/access"
)

// userSite is a listener on which users log in.
type userSite struct {
	t        *testing.T
	cluster  *dashboardtest.Cluster
	provider *dashboardtest.Provider
	sessions *dashboardtest.UserSessions
	handler  http.Handler
	// from is the address of requests, cookies are those of the browser.
	from    string
	cookies map[string]*http.Cookie
}

func newUserSite(t *testing.T) *userSite {
	t.Helper()
	c, options := clusterWithTokens()
	s := &userSite{t: t, cluster: c, sessions: &dashboardtest.UserSessions{}, from: "10.0.0.1:1", cookies: map[string]*http.Cookie{}}
	s.provider = &dashboardtest.Provider{Login: access.Login{
		User:            access.User{Issuer: dashboardtest.Issuer, Subject: "42", Name: "ann@example.com", Groups: []string{"staff", "platform"}},
		ProviderSession: "s1", Valid: time.Hour, RefreshToken: "r", IDToken: "i",
	}}
	options.Auth.Users = auth.Users{
		Groups:   access.GroupScopes{"platform": access.Operator, "readers": access.Viewer},
		Provider: s.provider, Sessions: s.sessions,
		Proxy: auth.ProxyHeaders{User: "X-Forwarded-User", Groups: "X-Forwarded-Groups", Trusted: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}},
	}
	s.handler = New(options)
	return s
}

// send sends a request with the browser's cookies and keeps those of the answer.
func (s *userSite) send(method, path string, header http.Header, form url.Values) *httptest.ResponseRecorder {
	s.t.Helper()
	r := httptest.NewRequestWithContext(s.t.Context(), method, dashboardtest.Origin+path, strings.NewReader(form.Encode()))
	if header != nil {
		r.Header = header
	}
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	r.RemoteAddr = s.from
	for _, cookie := range s.cookies {
		r.AddCookie(cookie)
	}
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	for _, cookie := range w.Result().Cookies() {
		if s.cookies[cookie.Name] = cookie; cookie.MaxAge < 0 {
			delete(s.cookies, cookie.Name)
		}
	}
	return w
}

func (s *userSite) get(path string) *httptest.ResponseRecorder {
	s.t.Helper()
	return s.send(http.MethodGet, path, nil, nil)
}

// begin begins a login and returns its state.
func (s *userSite) begin(next string) (state string) {
	s.t.Helper()
	w := s.get("/login/oidc?" + url.Values{"next": {next}}.Encode())
	_, state, _ = strings.Cut(w.Header().Get("Location"), "?state=")
	if w.Code != http.StatusSeeOther || state == "" {
		s.t.Fatalf("begin: %d %v", w.Code, w.Header())
	}
	return state
}

func (s *userSite) complete(state, code string) *httptest.ResponseRecorder {
	s.t.Helper()
	return s.get("/login/oidc/callback?" + url.Values{"state": {state}, "code": {code}}.Encode())
}

func (s *userSite) logIn() {
	s.t.Helper()
	if w := s.complete(s.begin("/crons"), "good"); w.Code != http.StatusOK || w.Header().Get("Refresh") != "0; url=/crons" {
		s.t.Fatalf("log in: %d %v\n%s", w.Code, w.Header(), w.Body)
	}
}

// actions are the audit log in short.
func (s *userSite) actions() (all []string) {
	for _, e := range s.cluster.Audit {
		all = append(all, strings.Join([]string{e.Actor, e.Subject, e.Action, e.Outcome}, " "))
	}
	return all
}

func TestUserLogsIn(t *testing.T) {
	t.Parallel()
	s := newUserSite(t)
	if w := s.get("/login?next=/crons"); !strings.Contains(w.Body.String(), dashboardtest.Origin+"/login/oidc?next=%2Fcrons") {
		t.Errorf("the login page has no link:\n%s", w.Body)
	}
	s.logIn()
	cookie := s.cookies["forge"]
	if cookie == nil || !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode {
		t.Errorf("the cookie is %v", cookie)
	}
	want := `{"name":"user:ann@example.com","scope":"operator","token":false,"subject":"42","issuer":"https://login.example.com","groups":"platform"}` + "\n"
	if got := s.get("/api/v1/whoami").Body.String(); got != want {
		t.Errorf("whoami: %s", got)
	}
	if w := s.send(http.MethodPost, "/crons/backup/pause", nil, url.Values{}); w.Code != http.StatusSeeOther {
		t.Errorf("pause: %d\n%s", w.Code, w.Body)
	}
	if w := s.get("/tokens"); w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "ann@example.com has the scope operator") {
		t.Errorf("tokens: %d\n%s", w.Code, w.Body)
	}
	if done := strings.Join(s.cluster.Done, "\n"); !strings.Contains(done, "user:ann@example.com") {
		t.Errorf("the action is done by %s", done)
	}
	w := s.send(http.MethodPost, "/logout", nil, url.Values{})
	if w.Code != http.StatusOK || w.Header().Get("Refresh") != "0; url="+dashboardtest.Issuer+"/end?id_token_hint=i" || len(s.sessions.All) != 0 {
		t.Errorf("log out: %d %v", w.Code, w.Header())
	}
	const ann = "user:ann@example.com 42 "
	if diff := cmp.Diff([]string{ann + "login done", ann + "cron.pause done", ann + "read refused", ann + "logout done"}, s.actions()); diff != "" {
		t.Errorf("audit log (-want +got):\n%s", diff)
	}
}

func TestLoginAttemptsBelongToTheirBrowser(t *testing.T) {
	t.Parallel()
	s := newUserSite(t)
	state := s.begin("/")
	if cookie := s.cookies["forge-login"]; !cookie.HttpOnly || cookie.SameSite != http.SameSiteLaxMode || cookie.MaxAge > 600 {
		t.Errorf("the cookie is %v", cookie)
	}
	kept := *s.cookies["forge-login"]
	refused := func(what string, code int, w *httptest.ResponseRecorder) {
		t.Helper()
		if w.Code != code || len(s.sessions.All) > 0 || s.cookies["forge"] != nil {
			t.Errorf("%s: %d, sessions %v", what, w.Code, s.sessions.All)
		}
		if link := w.Body.String(); strings.Contains(link, "next=%2Flogin") {
			t.Errorf("%s: leads back to the callback", what)
		}
	}
	refused("another state", http.StatusBadRequest, s.complete("x"+state, "good"))
	refused("a state that was used", http.StatusBadRequest, s.complete(state, "good"))
	state = s.begin("/")
	refused("no state", http.StatusBadRequest, s.complete("", "good"))
	s.cookies["forge-login"] = &http.Cookie{Name: "forge-login", Value: "e30"}
	refused("an empty cookie", http.StatusBadRequest, s.complete("", "good"))
	s.cookies["forge-login"] = &http.Cookie{Name: "forge-login", Value: "!"}
	refused("a broken cookie", http.StatusBadRequest, s.complete(state, "good"))
	state = s.begin("/")
	refused("a code that was used", http.StatusForbidden, s.complete(state, "used"))
	state = s.begin("/")
	s.cookies["forge-login"] = &kept
	refused("the cookie of another login", http.StatusBadRequest, s.complete(state, "good"))
	state = s.begin("/")
	refused("a refusal of the provider", http.StatusForbidden, s.get("/login/oidc/callback?error=access_denied&error_description=%3Cb%3Eno&state="+state))
	s.provider.Err = errors.New("broken")
	if w := s.get("/login/oidc"); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "does not answer") {
		t.Errorf("without the provider: %d\n%s", w.Code, w.Body)
	}
	s.provider.Err = nil
	for range auth.MaxFailures {
		s.complete("x", "good")
	}
	if w := s.complete(s.begin("/"), "good"); w.Code != http.StatusTooManyRequests {
		t.Errorf("after many failures: %d", w.Code)
	}
}

func TestUserLoginReturnsToOwnPagesOnly(t *testing.T) {
	t.Parallel()
	s := newUserSite(t)
	for next, want := range map[string]string{
		"/jobs?state=failed": "/jobs?state=failed", "https://evil.example.com/": "/", "//evil.example.com": "/", `/\evil.example.com`: "/",
		"/login/oidc": "/", "/login?next=/": "/", "/" + strings.Repeat("a", 3000): "/",
	} {
		if w := s.complete(s.begin(next), "good"); w.Header().Get("Refresh") != "0; url="+want {
			t.Errorf("%.50s leads to %s", next, w.Header().Get("Refresh"))
		}
	}
	s.cookies["forge-login"] = auth.AttemptCookie(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil),
		&access.LoginAttempt{State: "s", Nonce: "n", Verifier: "v", Next: "//evil.example.com"})
	if w := s.complete("s", "good"); w.Header().Get("Refresh") != "0; url=/" {
		t.Errorf("a forged cookie leads to %s", w.Header().Get("Refresh"))
	}
}

func TestUserWithoutScope(t *testing.T) {
	t.Parallel()
	s := newUserSite(t)
	s.provider.Login.Groups = []string{"<b>visitors"}
	w := s.complete(s.begin("/"), "good")
	if w.Code != http.StatusForbidden || len(s.sessions.All) > 0 {
		t.Fatalf("%d", w.Code)
	}
	for _, text := range []string{"platform, readers", "&lt;b&gt;visitors", "ann@example.com has no scope", `href="/login"`} {
		if !strings.Contains(w.Body.String(), text) {
			t.Errorf("the page lacks %q:\n%s", text, w.Body)
		}
	}
	if diff := cmp.Diff([]string{"user:ann@example.com 42 login refused"}, s.actions()); diff != "" {
		t.Errorf("audit log (-want +got):\n%s", diff)
	}
}

func TestUserSessionsEndWithTheProviders(t *testing.T) {
	t.Parallel()
	s := newUserSite(t)
	status := func(want int) {
		t.Helper()
		if w := s.get("/api/v1/whoami"); w.Code != want {
			t.Errorf("%d, want %d: %s", w.Code, want, w.Body)
		}
	}
	s.logIn()
	s.sessions.Elapsed = 2 * time.Hour
	s.provider.Login.Groups = []string{"readers"}
	if w := s.get("/api/v1/whoami"); w.Code != 200 || !strings.Contains(w.Body.String(), `"scope":"viewer"`) || s.provider.Refreshed != 1 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	status(200)
	s.sessions.Elapsed = 4 * time.Hour
	s.provider.Err = errors.New("does not answer")
	status(401)
	s.provider.Err = nil
	status(200)
	s.provider.Login.Groups = nil
	s.sessions.Elapsed = 6 * time.Hour
	status(403)
	s.sessions.Elapsed = 8 * time.Hour
	s.provider.Err = access.ErrInvalid
	status(401)
	s.provider.Err = nil
	status(401)
	if len(s.sessions.All) > 0 {
		t.Errorf("sessions %v", s.sessions.All)
	}

	s.provider.Login.Groups, s.provider.Login.RefreshToken = []string{"platform"}, ""
	s.logIn()
	status(200)
	s.sessions.Elapsed = 10 * time.Hour
	refreshed := s.provider.Refreshed
	if status(401); s.provider.Refreshed != refreshed {
		t.Error("refreshed without a token")
	}
}

func TestUserSessionOfAnotherProvider(t *testing.T) {
	t.Parallel()
	s := newUserSite(t)
	s.logIn()
	for name, of := range s.sessions.All {
		of.Issuer = "https://before.example.com"
		s.sessions.All[name] = of
	}
	if w := s.get("/api/v1/whoami"); w.Code != http.StatusUnauthorized {
		t.Errorf("a session of another provider: %d", w.Code)
	}
	s.cookies["forge"].Value = "forgeuser_of-another-cluster"
	if w := s.get("/api/v1/whoami"); w.Code != http.StatusUnauthorized {
		t.Errorf("a session of another cluster: %d", w.Code)
	}
	s.cookies = map[string]*http.Cookie{}
	if w := s.send(http.MethodGet, "/api/v1/whoami", http.Header{"Authorization": {"Bearer forgeuser_0"}}, nil); w.Code != http.StatusUnauthorized {
		t.Errorf("a session in place of a token: %d", w.Code)
	}
}

func TestProviderEndsSessions(t *testing.T) {
	t.Parallel()
	s := newUserSite(t)
	s.logIn()
	end := func(token string) int {
		return s.send(http.MethodPost, "/login/oidc/logout", nil, url.Values{"logout_token": {token}}).Code
	}
	cookies := s.cookies
	s.cookies = map[string]*http.Cookie{} // the provider has none
	if code := end("invalid"); code != http.StatusBadRequest {
		t.Errorf("an invalid token: %d", code)
	}
	if code := end("42 another"); code != http.StatusOK || len(s.sessions.All) != 1 {
		t.Errorf("another session: %d", code)
	}
	if code := end("42 s1"); code != http.StatusOK || len(s.sessions.All) != 0 {
		t.Errorf("the session: %d", code)
	}
	s.cookies = cookies
	if w := s.get("/api/v1/whoami"); w.Code != http.StatusUnauthorized {
		t.Errorf("after the end: %d", w.Code)
	}
}

func TestProxyNamesUsers(t *testing.T) {
	t.Parallel()
	s := newUserSite(t)
	for name, c := range map[string]struct {
		from   string
		header http.Header
		want   int
		who    string
	}{
		"trusted":           {"10.9.0.1:1", http.Header{"X-Forwarded-User": {"bob"}, "X-Forwarded-Groups": {"staff, platform"}}, 200, `"name":"user:bob","scope":"operator","token":false,"subject":"bob","issuer":"proxy","groups":"platform"`},
		"from outside":      {"10.0.0.1:1", http.Header{"X-Forwarded-User": {"bob"}, "X-Forwarded-Groups": {"platform"}}, 401, ""},
		"forwarded":         {"10.0.0.1:1", http.Header{"X-Forwarded-For": {"10.9.0.1"}, "X-Forwarded-User": {"bob"}, "X-Forwarded-Groups": {"platform"}}, 401, ""},
		"two users":         {"10.9.0.1:1", http.Header{"X-Forwarded-User": {"bob", "ann"}, "X-Forwarded-Groups": {"platform"}}, 401, ""},
		"groups twice":      {"10.9.0.1:1", http.Header{"X-Forwarded-User": {"bob"}, "X-Forwarded-Groups": {"readers", "platform"}}, 401, ""},
		"no user":           {"10.9.0.1:1", http.Header{"X-Forwarded-Groups": {"platform"}}, 401, ""},
		"a long user":       {"10.9.0.1:1", http.Header{"X-Forwarded-User": {strings.Repeat("u", 300)}, "X-Forwarded-Groups": {"platform"}}, 401, ""},
		"no group":          {"10.9.0.1:1", http.Header{"X-Forwarded-User": {"bob"}, "X-Forwarded-Groups": {"visitors"}}, 403, "The user's groups: visitors"},
		"no groups":         {"10.9.0.1:1", http.Header{"X-Forwarded-User": {"bob"}}, 403, "none that is known here"},
		"a token is better": {"10.9.0.1:1", http.Header{"Authorization": {"Bearer admin"}, "X-Forwarded-User": {"bob"}, "X-Forwarded-Groups": {"platform"}}, 200, `"name":"a admin"`},
	} {
		s.from = c.from
		if w := s.send(http.MethodGet, "/api/v1/whoami", c.header, nil); w.Code != c.want || !strings.Contains(w.Body.String(), c.who) {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
	s.from = "10.9.0.1:1"
	bob := func() http.Header {
		return http.Header{"X-Forwarded-User": {"bob"}, "X-Forwarded-Groups": {"platform"}}
	}
	if w := s.send(http.MethodGet, "/", bob(), nil); w.Code != http.StatusOK || strings.Contains(w.Body.String(), `action="/logout"`) || !strings.Contains(w.Body.String(), "<b>bob</b>") {
		t.Errorf("the overview: %d\n%s", w.Code, w.Body)
	}
	s.cluster.Audit = nil
	if w := s.send(http.MethodPost, "/crons/backup/pause", bob(), url.Values{}); w.Code != http.StatusSeeOther {
		t.Errorf("pause: %d", w.Code)
	}
	foreign := bob()
	foreign.Set("Sec-Fetch-Site", "cross-site")
	if w := s.send(http.MethodPost, "/crons/backup/resume", foreign, url.Values{}); w.Code != http.StatusForbidden {
		t.Errorf("from another site: %d", w.Code)
	}
	if diff := cmp.Diff([]string{"user:bob bob cron.pause done", "anonymous  write refused"}, s.actions()); diff != "" {
		t.Errorf("audit log (-want +got):\n%s", diff)
	}
}
