package dashboard

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/access"
)

// clusterWithTokens returns a cluster that requires tokens. Three tokens are valid; others
// have expired or were revoked.
func clusterWithTokens() (c *dashboardtest.Cluster, options Options) {
	c = dashboardtest.New()
	c.Scopes = map[string]access.Scope{"viewer": access.Viewer, "operator": access.Operator, "admin": access.Admin}
	c.Ids = map[string]int64{"viewer": 1, "operator": 2, "admin": 3}
	options = optionsOf(c)
	options.Auth.Tokens = dashboardtest.Tokens{Cluster: c}
	return c, options
}

// requestAs sends a request with a token, or without one if token is empty, from an address
// of its own.
func requestAs(t *testing.T, h http.Handler, token, method, path string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, "http://127.0.0.1:8080"+path, nil)
	r.RemoteAddr = "[" + url.QueryEscape(t.Name()+path+method+token) + "]:1"
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	checkDocumented(t, r, w)
	return w
}

// Every route is requested with every scope. It answers the scopes that cover its own, and
// reveals nothing to others.
func TestEveryRouteWithEveryScope(t *testing.T) {
	t.Parallel()
	c, options := clusterWithTokens()
	h := New(options)
	all := makeServer(options)
	for path, r := range addresses(all) {
		for _, way := range []struct {
			method string
			needs  access.Scope
			there  bool
		}{{http.MethodHead, r.Read, r.Get != nil}, {http.MethodPost, r.Write, r.Post != nil}} {
			if !way.there {
				continue
			}
			if way.needs != route.Open && !access.Admin.Covers(way.needs) {
				t.Errorf("%s %s declares the scope %q", way.method, r.Path, way.needs)
			}
			for _, token := range []string{"", "viewer", "operator", "admin", "expired", "revoked"} {
				c.Done = nil
				w := requestAs(t, h, token, way.method, path)
				if want := refusalOf(r.Path, way.method, way.needs, c.Scopes[token]); want == 0 {
					if w.Code == http.StatusUnauthorized || w.Code == http.StatusForbidden || strings.HasPrefix(w.Header().Get("Location"), "/login?") {
						if path != "/login" { // the login form has its token in the body
							t.Errorf("%s %s as %q: status %d", way.method, path, token, w.Code)
						}
					}
				} else if w.Code != want || len(c.Done) > 0 || !refusedInGeneral(w, way.needs, c.Scopes[token]) {
					t.Errorf("%s %s as %q: status %d, want %d; did %v; %.200s", way.method, path, token, w.Code, want, c.Done, w.Body)
				}
			}
		}
	}
}

// refusedInGeneral reports whether a refusal says nothing but the scopes: that of the route,
// and that of the caller.
func refusedInGeneral(w *httptest.ResponseRecorder, needs, has access.Scope) bool {
	body := w.Body.String()
	if w.Code != http.StatusForbidden {
		return !strings.Contains(body, "detail") && !strings.Contains(body, "needs the scope")
	}
	named := fmt.Sprintf("This needs the scope %s. The token a %s has the scope %s.", needs, has, has)
	header := fmt.Sprintf(`Bearer realm="forge", error="insufficient_scope", scope=%q`, needs)
	page := strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") && strings.Contains(body, "<p>"+named+"</p>")
	problem := fmt.Sprintf(`{"type":"about:blank","title":"Forbidden","status":403,"detail":%q}`+"\n", named)
	return w.Header().Get("WWW-Authenticate") == header && (page || body == problem)
}

// refusalOf returns the status for a caller without the required scope, and 0 for a caller
// with it.
func refusalOf(path, method string, needs, has access.Scope) int {
	switch {
	case needs == route.Open || has.Covers(needs):
		return 0
	case has != "":
		return http.StatusForbidden
	case method == http.MethodHead && !web.ForPrograms(path):
		return http.StatusSeeOther
	default:
		return http.StatusUnauthorized
	}
}

// Anonymous callers get the same answer for a missing resource as for one that they may not
// see.
func TestRefusalsDoNotRevealResources(t *testing.T) {
	t.Parallel()
	_, options := clusterWithTokens()
	h := New(options)
	for _, c := range []struct {
		token, method, there, not string
		status                    int
	}{
		{"", "GET", "/api/v1/jobs/42", "/api/v1/jobs/99", 401},
		{"", "GET", "/api/v1/jobs/42", "/api/v1/nowhere", 401},
		{"", "DELETE", "/api/v1/jobs/42", "/api/v1/nowhere", 401},
		{"expired", "POST", "/api/v1/jobs/42/cancel", "/api/v1/jobs/99/cancel", 401},
		{"viewer", "POST", "/api/v1/jobs/42/cancel", "/api/v1/jobs/99/cancel", 403},
		{"viewer", "POST", "/api/v1/crons/backup/pause", "/api/v1/crons/nobody/pause", 403},
	} {
		there, not := requestAs(t, h, c.token, c.method, c.there), requestAs(t, h, c.token, c.method, c.not)
		if there.Code != c.status || not.Code != c.status || there.Body.String() != not.Body.String() {
			t.Errorf("%s as %q: %d %s and %d %s", c.there, c.token, there.Code, there.Body, not.Code, not.Body)
		}
	}
	w := requestAs(t, h, "", "GET", "/api/v1/jobs")
	if got := w.Header().Get("WWW-Authenticate"); got != `Bearer realm="forge"` {
		t.Errorf("WWW-Authenticate: %s", got)
	}
	if want := `{"type":"about:blank","title":"Unauthorized","status":401}` + "\n"; w.Body.String() != want {
		t.Errorf("body %s", w.Body)
	}
}

// submit sends the form of the login or the logout like a browser.
func submit(t *testing.T, h http.Handler, path, form, cookie, proto string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1:8080"+path, strings.NewReader(form))
	r.Header.Set("Content-Type", formType)
	r.Header.Set("Cookie", cookie)
	r.Header.Set("X-Forwarded-Proto", proto)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	checkDocumented(t, r, w)
	return w
}

func TestLogin(t *testing.T) {
	t.Parallel()
	c, options := clusterWithTokens()
	h := New(options)
	if w := requestAs(t, h, "", "GET", "/jobs?state=running"); w.Code != 303 || w.Header().Get("Location") != "/login?next=%2Fjobs%3Fstate%3Drunning" {
		t.Fatalf("%d to %s", w.Code, w.Header().Get("Location"))
	}
	form := requestAs(t, h, "", "GET", "/login?next=%2Fjobs%3Fstate%3Drunning").Body.String()
	if !strings.Contains(form, `value="/jobs?state=running"`) || strings.Contains(form, "Log out") {
		t.Error("the form does not lead on, or lets somebody out who is not in")
	}
	checkNothingInline(t, "/login", form)
	w := submit(t, h, "/login", "token=+viewer+&next=%2Fjobs%3Fstate%3Drunning", "", "")
	if w.Code != 303 || w.Header().Get("Location") != "/jobs?state=running" ||
		w.Header().Get("Set-Cookie") != "forge=session-of-viewer; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict" {
		t.Errorf("%d to %s with %s", w.Code, w.Header().Get("Location"), w.Header().Get("Set-Cookie"))
	}
	cookie := "forge=session-of-viewer"
	if page := withCookie(t, h, cookie, "/jobs"); page.Code != 200 || !strings.Contains(page.Body.String(), `title="Logged in as a viewer"`) {
		t.Errorf("in: %d", page.Code)
	}
	w = submit(t, h, "/logout", "", "__Host-"+cookie, "https")
	if w.Code != 303 || w.Header().Get("Set-Cookie") != "__Host-forge=; Path=/; Max-Age=0; HttpOnly; Secure; SameSite=Strict" || c.Done[0] != "log out session-of-viewer" {
		t.Errorf("out: %d with %s, did %v", w.Code, w.Header().Get("Set-Cookie"), c.Done)
	}
	delete(c.Scopes, "viewer")
	if page := withCookie(t, h, cookie, "/jobs"); page.Code != 303 {
		t.Errorf("with the session of a token that is no longer good: %d", page.Code)
	}
	if w := submit(t, h, "/login", "token=wrong", "", ""); w.Code != 401 || w.Header().Get("Set-Cookie") != "" || !strings.Contains(w.Body.String(), "That token is not valid.") {
		t.Errorf("a wrong token: %d", w.Code)
	}
	if w := submit(t, h, "/login", "token=admin", "", "https"); !strings.HasPrefix(w.Header().Get("Set-Cookie"), "__Host-forge=session-of-admin; Path=/; Max-Age=43200; HttpOnly; Secure; SameSite=Strict") {
		t.Errorf("over TLS: %s", w.Header().Get("Set-Cookie"))
	}
}

func withCookie(t *testing.T, h http.Handler, cookie, path string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:8080"+path, nil)
	r.Header.Set("Cookie", cookie)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	checkDocumented(t, r, w)
	return w
}

// A session is not accepted as a bearer token, and a token is not accepted as a session.
func TestSessionsAndTokensAreNotInterchangeable(t *testing.T) {
	t.Parallel()
	_, options := clusterWithTokens()
	h := New(options)
	if w := requestAs(t, h, "session-of-admin", "GET", "/api/v1/jobs"); w.Code != 401 {
		t.Errorf("a session as a token: %d", w.Code)
	}
	if w := withCookie(t, h, "forge=admin", "/api/v1/jobs"); w.Code != 401 {
		t.Errorf("a token as a session: %d", w.Code)
	}
}

func TestWrongTokensAreThrottled(t *testing.T) {
	t.Parallel()
	_, options := clusterWithTokens()
	now := dashboardtest.Epoch
	options.Cluster.Now = func() time.Time { return now }
	h := New(options)
	guess := func() *httptest.ResponseRecorder { return submit(t, h, "/login", "token=wrong", "", "") }
	for i := range auth.MaxFailures {
		if w := guess(); w.Code != 401 {
			t.Fatalf("attempt %d: %d", i, w.Code)
		}
	}
	if w := guess(); w.Code != 429 || w.Header().Get("Retry-After") != "7" {
		t.Errorf("status %d, Retry-After %q", w.Code, w.Header().Get("Retry-After"))
	}
	for range 2 * auth.MaxFailures {
		if w := submit(t, h, "/login", "token=viewer", "", ""); w.Code != 303 {
			t.Fatalf("who has a token is kept out by the failures of others at the same address: %d", w.Code)
		}
	}
	now = now.Add(7 * time.Second)
	if w := guess(); w.Code != 401 {
		t.Errorf("later: %d", w.Code)
	}
	bearer := func(token string) int {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:8080/api/v1/jobs", nil)
		r.RemoteAddr = "192.0.2.7:1"
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		checkDocumented(t, r, w)
		return w.Code
	}
	for range auth.MaxFailures {
		bearer("wrong")
	}
	if got := bearer("wrong"); got != 429 {
		t.Errorf("a bearer who guesses: %d", got)
	}
	if got := bearer("viewer"); got != 200 {
		t.Errorf("one who does not, at the same address: %d", got)
	}
}

// Metrics and pages are needed most during an outage of the database.
func TestReadsWorkDuringDatabaseOutage(t *testing.T) {
	t.Parallel()
	c, options := clusterWithTokens()
	now := dashboardtest.Epoch
	options.Cluster.Now = func() time.Time { return now }
	h := New(options)
	ask := func(token, method, path string) int { return requestAs(t, h, token, method, path).Code }
	if got := ask("operator", "GET", "/metrics"); got != 200 {
		t.Fatal(got)
	}
	c.Err = errors.New("gone")
	now = now.Add(auth.GraceWithoutDatabase - time.Second)
	for _, step := range []struct {
		token, method, path string
		want                int
	}{
		{"operator", "GET", "/metrics", 200},
		{"viewer", "GET", "/metrics", 503},
		{"", "GET", "/metrics", 401},
		{"operator", "POST", "/api/v1/jobs/42/cancel", 503},
	} {
		if got := ask(step.token, step.method, step.path); got != step.want {
			t.Errorf("%s %s as %q: %d, want %d", step.method, step.path, step.token, got, step.want)
		}
	}
	now = now.Add(2 * time.Second)
	if got := ask("operator", "GET", "/metrics"); got != 503 {
		t.Errorf("in the end: %d", got)
	}
}

func TestStreamsEndWithTheirAdmission(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*dashboardtest.Cluster){
		"token revoked": func(c *dashboardtest.Cluster) { delete(c.Scopes, "admin") },
		"scope smaller": func(c *dashboardtest.Cluster) { c.Scopes["admin"] = access.Viewer },
		"no scope":      func(c *dashboardtest.Cluster) { c.Scopes["admin"] = "" },
		"other caller":  func(c *dashboardtest.Cluster) { c.Ids["admin"] = 4 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, options := clusterWithTokens()
				s := makeServer(options).guard
				r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/events", nil)
				r.Header.Set("Authorization", "Bearer admin")
				who, err := s.Auth.Identify(r)
				if err != nil {
					t.Fatal(err)
				}
				lasting, stop := s.WhileAdmitted(auth.AsCaller(r, who))
				defer stop()
				time.Sleep(time.Hour)
				if err := lasting.Context().Err(); err != nil {
					t.Fatalf("ended while the token is good: %v", err)
				}
				c.Mu.Lock()
				change(c)
				c.Mu.Unlock()
				time.Sleep(auth.Recheck + time.Second)
				if lasting.Context().Err() == nil {
					t.Error("the stream continues")
				}
			})
		})
	}
}

func TestCookieOfOtherHostsDoesNotLogIn(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cookie, proto, want string
	}{
		{"forge", "", "secret"},
		{"forge", "https", ""},
		{"__Host-forge", "https", "secret"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.AddCookie(&http.Cookie{Name: c.cookie, Value: "secret"})
		if c.proto != "" {
			r.Header.Set("X-Forwarded-Proto", c.proto)
		}
		if got, _ := auth.SecretOf(r); got != c.want {
			t.Errorf("cookie %s over %q: secret %q, want %q", c.cookie, c.proto, got, c.want)
		}
	}
}

// A browser sends the credentials of a proxy in front with every request.
func TestSessionBesideOtherCredentials(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]string{"Basic YTpi": "session", "Negotiate": "session", "": "session", "Bearer token": "token", "bearer": ""} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.AddCookie(&http.Cookie{Name: "forge", Value: "session"})
		r.Header.Set("Authorization", header)
		if got, _ := auth.SecretOf(r); got != want {
			t.Errorf("%q: secret %q, want %q", header, got, want)
		}
	}
}
