package dashboard

import (
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
)

// reader is a browser that keeps the cookie of the saved views.
type reader struct {
	http.Handler

	views *http.Cookie
}

func (b *reader) request(t *testing.T, method, path string, fields url.Values) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, "http://127.0.0.1:8080"+path, strings.NewReader(fields.Encode()))
	if method == http.MethodPost {
		r.Header.Set("Content-Type", formType)
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	if b.views != nil {
		r.AddCookie(b.views)
	}
	w := httptest.NewRecorder()
	b.ServeHTTP(w, r)
	for _, cookie := range w.Result().Cookies() {
		if cookie.Name == "forge-views" {
			b.views = cookie
		}
	}
	return w
}

func viewFields(name, list, query string) url.Values {
	return url.Values{"name": {name}, "list": {list}, "query": {query}}
}

// A reader names the address of a list, finds it again in the list, and removes it.
func TestSavedViews(t *testing.T) {
	t.Parallel()
	b := &reader{Handler: handlerOf(dashboardtest.New())}
	const query = "filter=job%3Adu%2A&sort=next"
	page := b.request(t, http.MethodGet, "/crons?did=pause&sort=next&after=&filter=job:du*", nil).Body.String()
	if !strings.Contains(page, "Save view") || !strings.Contains(page, `name="query" value="filter=job%3Adu%2A&amp;sort=next"`) {
		t.Fatalf("the list does not offer to save the view: %s", page)
	}
	if page := b.request(t, http.MethodGet, "/crons", nil).Body.String(); strings.Contains(page, "Save view") {
		t.Error("the list as it always is can be saved")
	}
	for _, name := range []string{"Next <b>dumps</b>", "other", "other"} {
		w := b.request(t, http.MethodPost, "/views", viewFields(" "+name+" ", "/crons", query+"&before=3&unknown=1"))
		if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/crons?"+query {
			t.Fatalf("%d to %s", w.Code, w.Header().Get("Location"))
		}
	}
	if !b.views.HttpOnly || b.views.SameSite != http.SameSiteStrictMode {
		t.Errorf("the cookie is %s", b.views)
	}
	page = b.request(t, http.MethodGet, "/crons", nil).Body.String()
	if link := `<a href="/crons?filter=job%3Adu%2A&amp;sort=next">Next &lt;b&gt;dumps&lt;/b&gt;</a>`; !strings.Contains(page, link) || strings.Count(page, ">other</a>") != 1 {
		t.Errorf("the list lacks the views: %s", page)
	}
	if page := b.request(t, http.MethodGet, "/crons?"+query, nil).Body.String(); !strings.Contains(page, `aria-current="true">other</a>`) {
		t.Error("the view that is shown is not marked")
	}
	if page := b.request(t, http.MethodGet, "/jobs", nil).Body.String(); strings.Contains(page, ">other</a>") {
		t.Error("a view is in another list")
	}
	w := b.request(t, http.MethodPost, "/views", url.Values{"remove": {"other"}, "list": {"/crons"}, "query": {"sort=next"}})
	page = b.request(t, http.MethodGet, "/crons", nil).Body.String()
	if w.Header().Get("Location") != "/crons?sort=next" || strings.Contains(page, ">other</a>") || !strings.Contains(page, "dumps") {
		t.Errorf("after removal to %s: %s", w.Header().Get("Location"), page)
	}
}

// What a browser sends is checked, and what it keeps is bounded.
func TestSavedViewsAreBounded(t *testing.T) {
	t.Parallel()
	h := handlerOf(dashboardtest.New())
	for _, fields := range []url.Values{
		viewFields("", "/jobs", "sort=slowest"), viewFields(strings.Repeat("ä", 41), "/jobs", ""), viewFields("a", "//evil.example", ""),
		viewFields("a", "/jobs/1", ""), viewFields("a", "/jobs", "%zz"),
		{},
		viewFields("a", "/jobs", "filter="+strings.Repeat("x", 4000)),
	} {
		b := &reader{Handler: h}
		if w := b.request(t, http.MethodPost, "/views", fields); w.Code != http.StatusUnprocessableEntity || b.views != nil {
			t.Errorf("%.80v: %d %v", fields, w.Code, b.views)
		}
	}
	b := &reader{Handler: h}
	for i := range 100 {
		if w := b.request(t, http.MethodPost, "/views", viewFields(strings.Repeat("v", i%40+1), "/jobs", "filter=kind:"+strings.Repeat("k", i))); w.Code == http.StatusUnprocessableEntity {
			if i < 5 || !strings.Contains(w.Body.String(), "Remove one first.") {
				t.Errorf("view %d: %s", i, w.Body)
			}
			break
		}
		if i == 99 || len(b.views.String()) > 4096 {
			t.Fatalf("after %d views the cookie has %d bytes", i, len(b.views.String()))
		}
	}
	for _, cookie := range []string{
		"!", base64.RawURLEncoding.EncodeToString([]byte(`{"no": "list"}`)), strings.Repeat("a", 9000),
		base64.RawURLEncoding.EncodeToString([]byte(`[{"name": "bad", "list": "https://evil.example", "query": ""}, {"name": "bad", "list": "/crons", "query": "unknown=1"}]`)),
	} {
		b := &reader{Handler: h, views: &http.Cookie{Name: "forge-views", Value: cookie}}
		if w := b.request(t, http.MethodGet, "/crons?sort=next", nil); w.Code != http.StatusOK || strings.Contains(w.Body.String(), ">bad</a>") || strings.Contains(w.Body.String(), "evil") {
			t.Errorf("with the cookie %.60s: %d %s", cookie, w.Code, w.Body)
		}
	}
}
