package dashboard

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/cronstore"
)

func postWithKey(t *testing.T, h http.Handler, token, path, body string, keys ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1:8080/api/v1/"+path, strings.NewReader(body))
	r.Header.Set("Content-Type", jsonType)
	r.Header.Set("Authorization", "Bearer "+token)
	for _, key := range keys {
		r.Header.Add(route.KeyHeader, key)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	checkDocumented(t, r, w)
	return w
}

func TestIdempotencyKeys(t *testing.T) {
	t.Parallel()
	c, options := clusterWithTokens()
	options.API.Once = dashboardtest.Once{}
	h := New(options)
	const asks, key, used = `{"kind": "dump"}`, "8e03978e-40d5-43dd-bc93-6894a57f9324", "The Idempotency-Key was used for another request. Use a new one."
	for _, step := range []struct {
		name, token, path, body, key string
		status                       int
		repeated                     bool
		detail                       string
	}{
		{"is refused", "operator", "jobs", `{"kind": ""}`, key, 422, false, "kind is missing."},
		{"is done", "operator", "jobs", asks, key, 201, false, ""},
		{"is repeated", "operator", "jobs", asks, key, 201, true, ""},
		{"is repeated in quotes", "operator", "jobs", asks, `"` + key + `"`, 201, true, ""},
		{"has another body", "operator", "jobs", `{"kind": "backup"}`, key, 409, false, used},
		{"has another address", "operator", "crons/backup/trigger", asks, key, 409, false, used},
		{"has another caller", "admin", "jobs", asks, key, 201, false, ""},
		{"comes too early", "operator", "jobs", asks, "busy", 409, false, "A request with this Idempotency-Key is still running. Try again in a moment."},
		{"is of one who may not", "viewer", "jobs", asks, key, 403, false, "This needs the scope operator. The token a viewer has the scope viewer."},
	} {
		before := len(c.Done)
		w := postWithKey(t, h, step.token, step.path, step.body, step.key)
		if w.Code != step.status || (w.Header().Get(route.RepeatHeader) == "true") != step.repeated || decode[web.Problem](t, w).Detail != step.detail {
			t.Errorf("%s: %d, repeated %q: %s", step.name, w.Code, w.Header().Get(route.RepeatHeader), w.Body)
		}
		if did := len(c.Done) > before; did != (step.status == 201 && !step.repeated) {
			t.Errorf("%s: did %v", step.name, c.Done[before:])
		}
	}
	first, again := postWithKey(t, h, "operator", "jobs", asks, "k"), postWithKey(t, h, "operator", "jobs", asks, "k")
	if diff := cmp.Diff(first.Body.String(), again.Body.String()); diff != "" || again.Header().Get("Location") != "/api/v1/jobs/42" || again.Header().Get("Content-Type") != jsonType {
		t.Errorf("the repeat, with %v (-want +got):\n%s", again.Header(), diff)
	}
	last := c.Audit[len(c.Audit)-1]
	c.Ids["operator"] = 9 // a new token of the same name is a different caller
	if w := postWithKey(t, h, "operator", "jobs", asks, "k"); w.Code != 201 || w.Header().Get(route.RepeatHeader) != "" {
		t.Errorf("a new token of the same name: %d, repeated %q", w.Code, w.Header().Get(route.RepeatHeader))
	}
	if last.Outcome != "done" || last.Detail != "201 a repeat" {
		t.Errorf("the audit log has %+v", last)
	}
}

func TestBadIdempotencyKeys(t *testing.T) {
	t.Parallel()
	c, options := clusterWithTokens()
	options.API.Once = dashboardtest.Once{}
	h := New(options)
	for _, keys := range [][]string{{""}, {`""`}, {"a b"}, {`a"b`}, {"ä"}, {strings.Repeat("k", 256)}, {"a", "b"}, {"a\x00"}} {
		w := postWithKey(t, h, "operator", "jobs/42/cancel", "", keys...)
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "Idempotency-Key must be one text") || len(c.Done) > 0 {
			t.Errorf("%q: %d %s", keys, w.Code, w.Body)
		}
	}
}

// Every POST of the API accepts a key. A repeat gets the same answer and changes nothing;
// another body is rejected. A secret is returned only once.
func TestEveryWriteTakesAKey(t *testing.T) {
	t.Parallel()
	c, options := clusterWithTokens()
	c.Crons = append(c.Crons, cronstore.Cron{Name: "held", PausedAt: dashboardtest.Epoch})
	kept := dashboardtest.Once{}
	options.API.Once = kept
	h := New(options)
	for path, r := range addresses(makeServer(options)) {
		if r.Post == nil || !strings.HasPrefix(path, "/api/") {
			continue
		}
		path, body := strings.TrimPrefix(path, "/api/v1/"), bodyFor(path)
		before := len(c.Done)
		first := postWithKey(t, h, "admin", path, body, path)
		if first.Code >= 300 || len(c.Done) == before {
			t.Errorf("%s %s: %d %s", path, body, first.Code, first.Body)
			continue
		}
		did := len(c.Done)
		again, other := postWithKey(t, h, "admin", path, body, path), postWithKey(t, h, "admin", path, body+" ", path)
		if again.Code != first.Code || again.Header().Get(route.RepeatHeader) != "true" || other.Code != http.StatusConflict || len(c.Done) != did {
			t.Errorf("%s: the repeat %d, another body %d; did %v", path, again.Code, other.Code, c.Done)
		}
		told := decode[map[string]any](t, first)
		if secret := told[r.Posts.Secret]; r.Posts.Secret != "" {
			keeps := string(kept["token:3 "+path].Body)
			if delete(told, r.Posts.Secret); secret != "forge_secret" || keeps == "" || strings.Contains(keeps, "forge_secret") {
				t.Errorf("%s tells the secret %v, and keeps %s", path, secret, keeps)
			}
		}
		if diff := cmp.Diff(told, decode[map[string]any](t, again)); diff != "" {
			t.Errorf("%s: the repeat (-first +again):\n%s", path, diff)
		}
	}
}
