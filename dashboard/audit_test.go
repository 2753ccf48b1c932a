package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/internal/auditstore"
)

type fakeAudit struct{ *fakeCluster }

func (f fakeAudit) Begin(_ context.Context, e auditstore.Entry) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return 0, f.err
	}
	e.ID = int64(len(f.audit) + 1)
	f.audit = append(f.audit, e)
	return e.ID, nil
}

func (f fakeAudit) End(_ context.Context, id int64, outcome, detail string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.audit[id-1].Outcome, f.audit[id-1].Detail = outcome, detail
	return f.err
}

func (f fakeAudit) List(_ context.Context, filter auditstore.Filter) ([]auditstore.Entry, error) {
	return read(f.fakeCluster, func() []auditstore.Entry { return f.audit[:min(len(f.audit), filter.Limit)] })
}

// written is the log, one line for each entry.
func (c *fakeCluster) written() (lines []string) {
	for _, e := range c.audit {
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s from %s: %s %s: %s %s", e.Actor, e.Source, e.Action, e.Object, e.Outcome, e.Detail)))
	}
	return lines
}

func TestAuditSaysWhoDidWhat(t *testing.T) {
	t.Parallel()
	c := newCluster()
	h := c.handler()
	post(t, h, "/api/v1/jobs/42/cancel", jsonType, "")
	post(t, h, "/jobs/42/cancel", formType, "")
	post(t, h, "/api/v1/jobs/41/cancel", jsonType, "")
	post(t, h, "/api/v1/jobs", jsonType, `{"kind": "dump"}`)
	post(t, h, "/enqueue", formType, "kind=dump")
	post(t, h, "/api/v1/crons/backup/pause", jsonType, `{"for": "1h"}`)
	post(t, h, "/api/v1/bulk/jobs/cancel", jsonType, `{"kind": "dump"}`)
	post(t, h, "/api/v1/leaders/scheduler/step-down", jsonType, "")
	get(t, h, "/jobs")
	const who = "anonymous from 127.0.0.1: "
	want := []string{
		who + "job.cancel 42: done 200", who + "job.cancel 42: done 303", who + "job.cancel 41: refused 409",
		who + "job.enqueue : done 201 dump, job 42", who + "job.enqueue : done 303 dump, job 42",
		who + "cron.pause backup: refused 422", who + "job.cancel : done 200 state= kind=dump queue= cron=, changed 2",
		who + "leader.step-down scheduler: done 202",
	}
	if diff := cmp.Diff(want, c.written()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Every route that does anything writes it down, before it does it.
func TestEveryActionIsAudited(t *testing.T) {
	t.Parallel()
	c := newCluster()
	h := c.handler()
	for path, r := range addresses(newServer(c)) {
		if r.post == nil {
			continue
		}
		c.audit, c.done = nil, nil
		contentType := formType
		if strings.HasPrefix(path, "/api/") {
			contentType = jsonType
		}
		post(t, h, path, contentType, "")
		if len(c.audit) != 1 || c.audit[0].Action == "" || c.audit[0].Outcome == "" {
			t.Errorf("%s wrote %v", path, c.written())
		}
	}
	c.err, c.done = errors.New("gone"), nil
	if w := post(t, h, "/api/v1/jobs/42/cancel", jsonType, ""); w.Code != http.StatusServiceUnavailable || len(c.done) > 0 {
		t.Errorf("what cannot be written down: status %d, did %v", w.Code, c.done)
	}
}

func TestAuditSaysWhoWasRefused(t *testing.T) {
	t.Parallel()
	c, options := guarded()
	h := New(options)
	askAs(t, h, "viewer", "POST", "/api/v1/crons/backup/pause")
	askAs(t, h, "viewer", "GET", "/api/v1/audit?actor=x")
	askAs(t, h, "expired", "POST", "/api/v1/crons/backup/pause")
	askAs(t, h, "", "GET", "/jobs") // is led to the login
	askAs(t, h, "operator", "POST", "/api/v1/crons/backup/pause")
	submit(t, h, "/login", "token=operator", "", "")
	submit(t, h, "/login", "token=wrong", "", "")
	submit(t, h, "/logout", "", "forge=session-of-operator", "")
	var got []string
	for _, e := range c.audit {
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
	if w := askAs(t, h, "admin", "GET", "/api/v1/audit?limit=2"); w.Code != 200 || !strings.Contains(w.Body.String(), `"actor":"a viewer","source":`) || !strings.Contains(w.Body.String(), `"next":`) {
		t.Errorf("the log: %d %s", w.Code, w.Body)
	}
}

// Strangers cannot fill the table.
func TestStrangersFillNoTable(t *testing.T) {
	t.Parallel()
	c, options := guarded()
	h := New(options)
	for range 3 * strangersAtOnce {
		askAs(t, h, "", "POST", "/api/v1/jobs/42/cancel")
	}
	askAs(t, h, "viewer", "POST", "/api/v1/jobs/42/cancel")
	if len(c.audit) != strangersAtOnce+1 {
		t.Errorf("%d entries", len(c.audit))
	}
}
