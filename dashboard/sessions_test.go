package dashboard

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/access"
)

const (
	annsSession = "/sessions/aaaaaaaaaaaaaaaa/end"
	bobsSession = "/sessions/bbbbbbbbbbbbbbbb/end"
)

// A user sees and ends only the user's own sessions.
func TestUserEndsOwnSessions(t *testing.T) {
	t.Parallel()
	s := newUserSite(t)
	s.logIn()
	page := s.get("/sessions").Body.String()
	for _, want := range []string{"<dd>ann@example.com</dd>", "<dd>operator</dd>", "user of " + strings.TrimPrefix(dashboardtest.Issuer, "https://"), "<dd>platform</dd>", "<dd>42</dd>", "Your sessions", `action="` + annsSession + `"`, `<span class="chip">you</span>`} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not have %q", want)
		}
	}
	if strings.Contains(page, "bob &lt;b&gt;") {
		t.Error("a user sees the sessions of another")
	}
	if !strings.Contains(page, `<a class="quiet" href="/sessions"><b>ann@example.com</b></a>`) {
		t.Error("the name does not lead to the page")
	}
	if got := decode[web.List[access.OpenSession]](t, s.get("/api/v1/sessions")).Items; len(got) != 1 || got[0].Subject != "42" {
		t.Errorf("the API lists %+v", got)
	}
	for _, path := range []string{bobsSession, "/sessions/x/end"} {
		if w := s.send(http.MethodPost, path, nil, url.Values{}); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d", path, w.Code)
		}
		if w := s.send(http.MethodPost, "/api/v1"+path, http.Header{"Content-Type": {"application/json"}}, nil); w.Code != http.StatusNotFound {
			t.Errorf("/api/v1%s: %d", path, w.Code)
		}
	}
	w := s.send(http.MethodPost, annsSession, nil, url.Values{})
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/sessions?did=end&user=ann%40example.com" {
		t.Errorf("%d to %s", w.Code, w.Header().Get("Location"))
	}
	if diff := cmp.Diff([]string{"end the session of ann@example.com"}, s.cluster.Done); diff != "" {
		t.Errorf("did (-want +got):\n%s", diff)
	}
	if !slices.Contains(s.actions(), "user:ann@example.com 42 session.end done") {
		t.Errorf("the audit log has %q", s.actions())
	}
}

// An admin sees and ends the sessions of all users; other tokens have none.
func TestAdminEndsSessionsOfUsers(t *testing.T) {
	t.Parallel()
	c, options := clusterWithTokens()
	h := New(options)
	page := asAdmin(t, h, "/sessions", nil).Body.String()
	for _, want := range []string{"Sessions of all users", "bob &lt;b&gt;", `action="` + bobsSession + `"`, `action="` + annsSession + `"`} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not have %q", want)
		}
	}
	if w := asAdmin(t, h, bobsSession, url.Values{}); w.Code != http.StatusSeeOther {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if page := asAdmin(t, h, "/sessions?did=end&user=bob", nil).Body.String(); !strings.Contains(page, "The session of bob has ended.") {
		t.Error("the page does not say that the session has ended")
	}
	if diff := cmp.Diff([]string{"end the session of bob <b>"}, c.Done); diff != "" {
		t.Errorf("did (-want +got):\n%s", diff)
	}
}
