package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/access"
)

func TestAuditSaysWhoDidWhat(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	h := handlerOf(c)
	post(t, h, "/api/v1/jobs/42/cancel", jsonType, "")
	post(t, h, "/jobs/42/cancel", formType, "")
	post(t, h, "/api/v1/jobs/41/cancel", jsonType, "")
	post(t, h, "/api/v1/jobs", jsonType, `{"kind": "dump"}`)
	post(t, h, "/enqueue", formType, "kind=dump")
	post(t, h, "/api/v1/crons/backup/pause", jsonType, `{"for": "1h"}`)
	post(t, h, "/api/v1/bulk/jobs/cancel", jsonType, `{"kind": "dump"}`)
	post(t, h, "/api/v1/bulk/dead/discard", jsonType, `{"error": "disk", "older_than": "2d"}`)
	post(t, h, "/api/v1/leaders/scheduler/step-down", jsonType, "")
	get(t, h, "/jobs")
	const who = "anonymous from 127.0.0.1: "
	want := []string{
		who + "job.cancel 42: done 200", who + "job.cancel 42: done 303", who + "job.cancel 41: refused 409",
		who + "job.enqueue : done 201 dump, job 42", who + "job.enqueue : done 303 dump, job 42",
		who + "cron.pause backup: refused 422", who + "job.cancel : done 200 state= kind=dump queue= cron=, changed 2",
		who + `dead.discard : done 200 ids=[] group= kind= error="disk" older_than=48h0m0s newer_than=0s, changed 2`,
		who + "leader.step-down scheduler: done 202",
	}
	if diff := cmp.Diff(want, c.AuditLines()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Every route that changes something in the cluster records the action before it carries it out.
func TestEveryActionIsAudited(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	h := handlerOf(c)
	for path, r := range addresses(newServer(c)) {
		if r.Post == nil || path == "/views" { // which changes the reader's browser alone
			continue
		}
		c.Audit, c.Done = nil, nil
		contentType := formType
		if strings.HasPrefix(path, "/api/") {
			contentType = jsonType
		}
		post(t, h, path, contentType, "")
		if len(c.Audit) != 1 || c.Audit[0].Action == "" || c.Audit[0].Outcome == "" {
			t.Errorf("%s wrote %v", path, c.AuditLines())
		}
	}
	c.Err, c.Done = errors.New("gone"), nil
	if w := post(t, h, "/api/v1/jobs/42/cancel", jsonType, ""); w.Code != http.StatusServiceUnavailable || len(c.Done) > 0 {
		t.Errorf("what cannot be written down: status %d, did %v", w.Code, c.Done)
	}
}

func TestAuditSaysWhoWasRefused(t *testing.T) {
	t.Parallel()
	c, options := clusterWithTokens()
	h := New(options)
	requestAs(t, h, "viewer", "POST", "/api/v1/crons/backup/pause")
	requestAs(t, h, "viewer", "GET", "/api/v1/audit?actor=x")
	requestAs(t, h, "expired", "POST", "/api/v1/crons/backup/pause")
	requestAs(t, h, "", "GET", "/jobs") // redirects to the login
	requestAs(t, h, "operator", "POST", "/api/v1/crons/backup/pause")
	submit(t, h, "/login", "token=operator", "", "")
	submit(t, h, "/login", "token=wrong", "", "")
	submit(t, h, "/logout", "", "forge=session-of-operator", "")
	var got []string
	for _, e := range c.Audit {
		got = append(got, strings.TrimSpace(e.Actor+": "+e.Action+" "+e.Object+": "+e.Outcome+" "+e.Detail))
	}
	want := []string{
		"a viewer: cron.pause backup: refused 403", "a viewer: read /api/v1/audit: refused 403", "anonymous: cron.pause backup: refused 401",
		"a operator: cron.pause backup: done 200", "anonymous: login : done 303 as a operator", "anonymous: login : refused 401",
		"anonymous: logout : done 303 as a operator",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if w := requestAs(t, h, "admin", "GET", "/api/v1/audit?limit=2"); w.Code != 200 || !strings.Contains(w.Body.String(), `"actor":"a viewer","source":`) || !strings.Contains(w.Body.String(), `"next":`) {
		t.Errorf("the log: %d %s", w.Code, w.Body)
	}
}

// Neither named nor anonymous callers can fill the table with refusals. Refusals above the
// limit are counted.
func TestRecordedRefusalsAreLimited(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]func(h http.Handler){
		"anonymous": func(h http.Handler) { requestAs(t, h, "", "POST", "/api/v1/jobs/42/cancel") },
		"a viewer":  func(h http.Handler) { requestAs(t, h, "viewer", "POST", "/api/v1/jobs/42/cancel") },
		"a login":   func(h http.Handler) { submit(t, h, "/login", "token=wrong", "", "") },
		"elsewhere": func(h http.Handler) {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1:8080/login", nil)
			r.Header.Set("Sec-Fetch-Site", "cross-site")
			h.ServeHTTP(httptest.NewRecorder(), r)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, options := clusterWithTokens()
			now := dashboardtest.Epoch
			options.Cluster.Now = func() time.Time { return now }
			h := New(options)
			const asked = 3 * auth.RefusalsAtOnce
			for range asked {
				refuse(h)
			}
			if len(c.Audit) != auth.RefusalsAtOnce {
				t.Errorf("%d entries, want %d", len(c.Audit), auth.RefusalsAtOnce)
			}
			requestAs(t, h, "operator", "POST", "/api/v1/jobs/42/cancel")
			if got := c.Audit[len(c.Audit)-1]; got.Actor != "a operator" || got.Outcome != access.Done {
				t.Errorf("what another does: %+v", got)
			}
			h.server.guard.WriteSums(t.Context())
			h.server.guard.WriteSums(t.Context()) // nothing is left to write
			sum := c.Audit[auth.RefusalsAtOnce+1:]
			want := fmt.Sprintf("%d more refusals were not recorded from 2026-", asked-auth.RefusalsAtOnce)
			if len(sum) != 1 || sum[0].Action != auth.LeftOutAction || sum[0].Outcome != access.Refused || !strings.HasPrefix(sum[0].Detail, want) {
				t.Errorf("the sum: %+v, want one of %s", sum, want)
			}
			now = now.Add(auth.RefusalEvery)
			refuse(h)
			if got := c.Audit[len(c.Audit)-1]; got.Action == auth.LeftOutAction {
				t.Error("later refusals are not recorded")
			}
		})
	}
}

// A change is recorded before it is checked, so a caller with too many refused changes must
// wait.
func TestRefusedChangesAreLimited(t *testing.T) {
	t.Parallel()
	c, options := clusterWithTokens()
	options.Cluster.Now = func() time.Time { return dashboardtest.Epoch }
	h := New(options)
	for range 2 * auth.RefusedChangesAtOnce {
		requestAs(t, h, "operator", "POST", "/api/v1/jobs/41/cancel") // the job has finished
	}
	if len(c.Audit) != auth.RefusedChangesAtOnce {
		t.Fatalf("%d entries, want %d", len(c.Audit), auth.RefusedChangesAtOnce)
	}
	h.server.guard.WriteSums(t.Context())
	want := fmt.Sprintf("%d more refusals were not recorded", auth.RefusedChangesAtOnce)
	if sum := c.Audit[auth.RefusedChangesAtOnce:]; len(sum) != 1 || sum[0].Action != auth.LeftOutAction || !strings.HasPrefix(sum[0].Detail, want) {
		t.Errorf("the sum: %+v, want one of %s", sum, want)
	}
	if w := requestAs(t, h, "operator", "POST", "/api/v1/jobs/42/cancel"); w.Code != http.StatusTooManyRequests || w.Header().Get(web.RetryHeader) == "" {
		t.Errorf("status %d", w.Code)
	}
	if w := requestAs(t, h, "admin", "POST", "/api/v1/jobs/42/cancel"); w.Code != http.StatusOK {
		t.Errorf("another: status %d", w.Code)
	}
}

// A logout without a session is not recorded, and a login that cannot be recorded fails.
func TestLoginsAreRecorded(t *testing.T) {
	t.Parallel()
	c, options := clusterWithTokens()
	h := New(options)
	submit(t, h, "/logout", "", "", "")
	submit(t, h, "/logout", "", "forge=nobody", "")
	if len(c.Audit) > 0 {
		t.Errorf("logging out: %v", c.AuditLines())
	}
	options.Auth.Audit = brokenAudit{options.Auth.Audit}
	if w := submit(t, New(options), "/login", "token=operator", "", ""); w.Code != http.StatusServiceUnavailable || w.Header().Get("Set-Cookie") != "" {
		t.Errorf("an unrecorded login: status %d, cookie %q", w.Code, w.Header().Get("Set-Cookie"))
	}
}

// brokenAudit fails to record anything.
type brokenAudit struct{ auth.Audit }

func (brokenAudit) Begin(context.Context, access.AuditEntry) (int64, error) {
	return 0, errors.New("gone")
}
