package dashboard

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

// addresses turns the routes into addresses that exist.
func addresses(s *server) []string {
	fill := strings.NewReplacer("{$}", "", "{name}", "backup", "{id}", "42", "{role}", "scheduler", "{file}", s.assets.hashed["app.css"])
	var all []string
	for _, r := range s.routes() {
		path := fill.Replace(r.path)
		if path == "/events" {
			path += "?page=overview"
		}
		all = append(all, path)
	}
	return append(all, "/nowhere", "/api/v1/nowhere")
}

func newServer(c *fakeCluster) *server { return &server{Options: c.options(), assets: loadAssets()} }

func TestEveryRoute(t *testing.T) {
	t.Parallel()
	c := newCluster()
	h := c.handler()
	for _, path := range addresses(newServer(c)) {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			w := ask(t, h, http.MethodHead, path)
			if want := map[bool]int{true: 404, false: 200}[strings.Contains(path, "nowhere")]; w.Code != want {
				t.Errorf("HEAD: status %d, want %d", w.Code, want)
			}
			checkHeaders(t, w.Header(), strings.HasPrefix(path, "/static/"))
			if strings.Contains(path, "nowhere") {
				return
			}
			for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
				w := ask(t, h, method, path)
				if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
					t.Errorf("%s: status %d, Allow %q", method, w.Code, w.Header().Get("Allow"))
				}
				checkHeaders(t, w.Header(), false)
			}
		})
	}
}

func checkHeaders(t *testing.T, h http.Header, cached bool) {
	t.Helper()
	want := map[string]string{
		"Content-Security-Policy": contentSecurityPolicy,
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

func TestHostAllowList(t *testing.T) {
	t.Parallel()
	h := newCluster().handler()
	for host, status := range map[string]int{
		"127.0.0.1:8080": 200, "localhost:8080": 200, "LOCALHOST": 200, "[::1]:8080": 200, "[::1]": 200, "localhost.:8080": 200,
		"evil.example:8080": 421, "127.0.0.1.evil.example": 421, "evil.example": 421, "": 421, "localhost.evil.example:80": 421,
	} {
		for _, path := range []string{"/", "/healthz", "/api/v1/jobs", "/events?page=overview", "/metrics"} {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodHead, path, nil)
			r.Host = host
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != status {
				t.Errorf("Host %q on %s: status %d, want %d", host, path, w.Code, status)
			}
		}
	}
}

func TestWithoutAllowListEveryHostIsAnswered(t *testing.T) {
	t.Parallel()
	opts := newCluster().options()
	opts.AllowedHosts = nil
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://forge.example/healthz", nil)
	w := httptest.NewRecorder()
	New(opts).ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		t.Errorf("status %d", w.Code)
	}
}

func TestCrossOriginWritesAreRefused(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost:8080/api/v1/jobs", nil)
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	w := httptest.NewRecorder()
	newCluster().handler().ServeHTTP(w, r)
	if w.Code != http.StatusForbidden || w.Header().Get("Content-Type") != "application/problem+json" {
		t.Errorf("status %d, content type %q", w.Code, w.Header().Get("Content-Type"))
	}
}

var pages = []string{"/", "/leaders", "/leaders?role=scheduler", "/crons", "/crons?q=back", "/crons/backup", "/jobs", "/jobs?state=running", "/jobs/42", "/nowhere"}

var (
	ownScript      = regexp.MustCompile(`<script src="/static/[a-z.-]+\.[0-9a-f]{10}\.js"(?: defer)?></script>`)
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
	h := newCluster().handler()
	for _, path := range pages {
		checkNothingInline(t, path, get(t, h, path).Body.String())
	}
}

// checkNothingInline looks at the markup without the values of its attributes:
// the templates escape every quote in text, so that a quote bounds a value.
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

func TestHostileTextStaysText(t *testing.T) {
	t.Parallel()
	const attack = `"><script>alert(1)</script><img src=x onerror=alert(1)>` + "\r\nevent: pulse\r\ndata: forged\x1b]0;title\x07\u202e"
	c := newCluster()
	c.crons[0].Name, c.crons[0].Spec.Job, c.crons[0].Spec.Schedule = attack, attack, attack
	c.crons[0].Spec.Args = []byte(attack)
	c.ticks[attack] = c.ticks["backup"]
	c.ticks[attack][1].Reason = attack
	c.nodes[1].NodeID, c.nodes[1].Version, c.nodes[1].ConfigHash, c.nodes[1].APIURL = attack, attack, attack, "javascript:alert(1)"
	c.leaders[0].NodeID, c.leaders[0].APIURL = attack, "javascript:alert(1)"
	c.tenures[1].NodeID, c.tenures[1].EndReason = attack, attack
	job := &c.jobs[0]
	job.Kind, job.Cron, job.NodeID, job.LastError, job.Queue, job.Args = attack, attack, attack, attack, attack, []byte(attack)
	job.Attempts[0].Error, job.Attempts[0].NodeID = attack, attack
	c.logs[0].Chunk = attack

	h := c.handler()
	for _, path := range append(pages, cronPath(attack), "/jobs?kind="+strings.TrimPrefix(cronPath(attack), "/crons/"), "/crons?q="+strings.TrimPrefix(cronPath(attack), "/crons/")) {
		html := get(t, h, path).Body.String()
		if strings.Contains(html, "<script>") || strings.Contains(html, "<img") {
			t.Errorf("%s lets markup through", path)
		}
		checkNothingInline(t, path, html)
	}
	output := get(t, h, "/jobs/42").Body.String()
	_, output, _ = strings.Cut(output, "data-follow")
	for _, bad := range []string{"\x1b", "\x07", "\u202e", "\r"} {
		if strings.Contains(output, bad) {
			t.Errorf("output holds %q", bad)
		}
	}
}
