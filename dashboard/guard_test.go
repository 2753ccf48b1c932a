package dashboard

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/dashboard/route"
)

// addresses fills in the paths of the routes with existing objects.
func addresses(s *server) map[string]route.Route {
	fill := strings.NewReplacer("{$}", "", "{session}", "aaaaaaaaaaaaaaaa", "{name}", "backup", "{id}", "42", "{group}", dashboardtest.DeadGroup, "{role}", "scheduler", "{term}", "7", "{kind}", "dump", "{node}", "node-1", "{alert}", "no_scheduler_leader", "{file}", s.pages.Assets.Hashed["app.css"],
		"{tick}", "2026-11-20T02:00:00Z", "{hash}", dashboardtest.OldHash)
	all := map[string]route.Route{}
	for _, r := range s.routes() {
		path := fill.Replace(r.Path)
		if path == "/events" {
			path += "?page=overview"
		}
		if strings.HasPrefix(path, "/bulk/") && !strings.HasPrefix(path, "/bulk/crons/") {
			path += "?kind=dump"
		}
		if path == "/api/v1/next" {
			path += "?schedule=@hourly"
		}
		if path == "/api/v1/leaders/at" {
			path += "?at=2026-11-20T11:00:00Z"
		}
		if path == "/api/v1/metrics/range" {
			path += "?metric=forge_job_running"
		}
		if path == "/api/v1/metrics/breakdown" {
			path += "?by=kind"
		}
		all[path] = r
	}
	if len(all) == 0 {
		panic("no routes: whoever goes through them would find nothing wrong")
	}
	return all
}

func newServer(c *dashboardtest.Cluster) *server { return makeServer(optionsOf(c)) }

func TestEveryRoute(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	h := handlerOf(c)
	for path, r := range addresses(newServer(c)) {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			for _, method := range []string{http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
				w := ask(t, h, method, path)
				checkHeaders(t, w.Header(), strings.HasPrefix(path, "/static/") && method == http.MethodHead)
				switch {
				case method == http.MethodHead && r.Get != nil:
					if w.Code != http.StatusOK {
						t.Errorf("HEAD: status %d", w.Code)
					}
				case method == http.MethodPost && r.Post != nil:
					if w.Code == http.StatusMethodNotAllowed || w.Code == http.StatusNotFound || w.Code >= 500 {
						t.Errorf("POST: status %d", w.Code)
					}
				case w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != r.Allow():
					t.Errorf("%s: status %d, Allow %q", method, w.Code, w.Header().Get("Allow"))
				}
			}
		})
	}
	for _, path := range []string{"/nowhere", "/api/v1/nowhere"} {
		if w := ask(t, h, http.MethodHead, path); w.Code != http.StatusNotFound {
			t.Errorf("%s: status %d", path, w.Code)
		}
	}
}

// No GET changes anything, whatever its address.
func TestOnlyPostsChange(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	h := handlerOf(c)
	for path, r := range addresses(newServer(c)) {
		if r.Get != nil && !strings.HasPrefix(path, "/events") {
			get(t, h, path+"?from=2026-11-19T00:00&to=2026-11-20T00:00&at=2026-11-19T02:00:00Z")
		}
	}
	for _, what := range c.Done {
		if !strings.HasPrefix(what, "plan ") {
			t.Errorf("a GET did: %s", what)
		}
	}
}

func checkHeaders(t *testing.T, h http.Header, cached bool) {
	t.Helper()
	want := map[string]string{
		"Content-Security-Policy": auth.ContentSecurityPolicy,
		"X-Content-Type-Options":  "nosniff",
		"Referrer-Policy":         "no-referrer",
		"X-Frame-Options":         "DENY",
		"Cache-Control":           "no-store",
	}
	if cached {
		want["Cache-Control"] = "public, max-age=31536000, immutable"
	}
	for name, value := range want {
		if h.Get(name) != value {
			t.Errorf("%s is %q, want %q", name, h.Get(name), value)
		}
	}
}

// The content security policy allows pages only resources of their own origin, and all of
// those that they use.
func TestContentSecurityPolicyAllowsOnlyOwnOrigin(t *testing.T) {
	t.Parallel()
	policy := map[string]string{}
	for directive := range strings.SplitSeq(auth.ContentSecurityPolicy, "; ") {
		name, sources, _ := strings.Cut(directive, " ")
		policy[name] = sources
	}
	for _, name := range []string{"default-src", "base-uri", "frame-ancestors"} {
		if policy[name] != "'none'" {
			t.Errorf("%s is %q", name, policy[name])
		}
		delete(policy, name)
	}
	if policy["form-action"] == "" {
		t.Error("forms may be sent anywhere")
	}
	for name, sources := range policy {
		if sources != "'self'" {
			t.Errorf("%s is %q", name, sources)
		}
	}
}

func TestHostAllowList(t *testing.T) {
	t.Parallel()
	h := handlerOf(dashboardtest.New())
	for host, status := range map[string]int{
		"127.0.0.1:8080": 200, "localhost:8080": 200, "LOCALHOST": 200, "[::1]:8080": 200, "[::1]": 200, "localhost.:8080": 200,
		"evil.example:8080": 421, "127.0.0.1.evil.example": 421, "evil.example": 421, "": 421, "localhost.evil.example:80": 421,
	} {
		for _, path := range []string{"/", "/healthz", "/api/v1/jobs", "/events?page=overview", "/metrics"} {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodHead, path, nil)
			r.Host = host
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			checkDocumented(t, r, w)
			if w.Code != status {
				t.Errorf("Host %q on %s: status %d, want %d", host, path, w.Code, status)
			}
		}
	}
}

// A node that listens on all addresses cannot list them, so AnyAddress allows all: a web
// site can attack only with a name.
func TestAnyAddressAllowsOnlyAddresses(t *testing.T) {
	t.Parallel()
	opts := optionsOf(dashboardtest.New())
	opts.Auth.AllowedHosts = []string{auth.AnyAddress, "forge.example"}
	h := New(opts)
	for host, status := range map[string]int{
		"192.0.2.7:8080": 200, "[2001:db8::1]:8080": 200, "203.0.113.9": 200, "forge.example": 200,
		"evil.example": 421, "192.0.2.7.evil.example": 421, "192.0.2": 421, auth.AnyAddress: 421, "": 421,
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/healthz", nil)
		r.Host = host
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		checkDocumented(t, r, w)
		if w.Code != status {
			t.Errorf("Host %q: status %d, want %d", host, w.Code, status)
		}
	}
}

func TestWithoutAllowListEveryHostIsAnswered(t *testing.T) {
	t.Parallel()
	opts := optionsOf(dashboardtest.New())
	opts.Auth.AllowedHosts = nil
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://forge.example/healthz", nil)
	w := httptest.NewRecorder()
	New(opts).ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		t.Errorf("status %d", w.Code)
	}
}

func TestCrossOriginWritesAreRefused(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	h := handlerOf(c)
	for path, r := range addresses(newServer(c)) {
		if r.Post == nil {
			continue
		}
		for _, header := range [][2]string{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "http://evil.example"}, {"Origin", "null"}} {
			request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost:8080"+path, nil)
			request.Header.Set(header[0], header[1])
			w := httptest.NewRecorder()
			h.ServeHTTP(w, request)
			checkDocumented(t, request, w)
			if w.Code != http.StatusForbidden {
				t.Errorf("%s with %s: status %d", path, header, w.Code)
			}
		}
		rebound := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://evil.example:8080"+path, nil)
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, rebound); w.Code != http.StatusMisdirectedRequest {
			t.Errorf("%s under another name: status %d", path, w.Code)
		}
	}
	if len(c.Done) != 0 {
		t.Errorf("done all the same: %v", c.Done)
	}
}

// Requests that are rejected before authentication are recorded too.
func TestRejectedRequestsAreRecorded(t *testing.T) {
	t.Parallel()
	c, options := clusterWithTokens()
	h := New(options)
	for _, ask := range []struct{ method, host, site, token string }{
		{http.MethodPost, "localhost", "cross-site", ""}, {http.MethodPost, "evil.example", "", ""}, {http.MethodGet, "evil.example", "", ""},
	} {
		r := httptest.NewRequestWithContext(t.Context(), ask.method, "http://"+ask.host+"/api/v1/jobs/42/cancel", nil)
		r.Header.Set("Sec-Fetch-Site", ask.site)
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	for range auth.MaxFailures + 1 {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/metrics", nil)
		r.Header.Set("Authorization", "Bearer wrong")
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	got := c.AuditLines()
	const who, where = "anonymous from 192.0.2.1: ", " /api/v1/jobs/42/cancel: refused "
	want := []string{who + "write" + where + "403 from another site", who + "write" + where + "421 under another name", who + "read" + where + "421 under another name"}
	if diff := cmp.Diff(want, got[:min(3, len(got))]); diff != "" || got[len(got)-1] != who+"read /metrics: refused 429" {
		t.Errorf("(-want +got):\n%s, and at last %s", diff, got[len(got)-1])
	}
}

var pagePaths = []string{
	"/", "/leaders", "/leaders?role=scheduler", "/crons", "/crons?q=back", "/crons/backup", "/crons/backup/backfill",
	"/crons/backup/backfill?from=2026-11-19T00:00&to=2026-11-20T00:00", "/queues", "/queues?did=pause&queue=bulk", "/queues/bulk", "/queues/bulk?span=6h", "/alerts", "/alerts?did=silence&alert=quiet", "/alerts/quiet/silence", "/alerts/no_scheduler_leader/test", "/charts", "/charts?span=30d", "/charts?by=kind&span=5m", "/storage", "/activity", "/activity?filter=type:config_*+by:ada", "/jobs", "/jobs?state=running", "/jobs?kind=dump&did=cancel&n=3", "/bulk/jobs/cancel?kind=dump", "/enqueue?kind=dump", "/jobs/42?did=same", "/jobs/42", "/nowhere",
}

var (
	ownScript      = regexp.MustCompile(`<script src="/static/[a-z.-]+\.[0-9a-f]{10}\.js" async data-scripts="(?: ?/static/[a-z.-]+\.[0-9a-f]{10}\.js)+"></script>`)
	attributeValue = regexp.MustCompile(`="[^"]*"`)
	faults         = map[string]*regexp.Regexp{
		"a script":           regexp.MustCompile(`(?i)<script`),
		"a style element":    regexp.MustCompile(`(?i)<style`),
		"a style attribute":  regexp.MustCompile(`(?i)<[^>]+\sstyle\s*=`),
		"an event attribute": regexp.MustCompile(`(?i)<[a-z][^>]*\son[a-z]+\s*=`),
	}
	faultyValues = regexp.MustCompile(`(?i)="\s*javascript:|ZgotmplZ`)
)

func TestPagesHoldNothingInline(t *testing.T) {
	t.Parallel()
	h := handlerOf(dashboardtest.New())
	for _, path := range pagePaths {
		checkNothingInline(t, path, get(t, h, path).Body.String())
	}
}

// checkNothingInline examines the markup without the values of attributes. The templates
// escape every quote in text, so a quote ends a value.
func checkNothingInline(t *testing.T, path, html string) {
	t.Helper()
	if found := faultyValues.FindString(html); found != "" {
		t.Errorf("%s holds the value %s", path, found)
	}
	html = attributeValue.ReplaceAllString(ownScript.ReplaceAllString(html, ""), `=""`)
	for what, pattern := range faults {
		if found := pattern.FindString(html); found != "" {
			t.Errorf("%s holds %s: %s", path, what, found)
		}
	}
}
