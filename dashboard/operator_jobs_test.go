package dashboard

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/dashboard/pages"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

func TestJobAPI(t *testing.T) {
	t.Parallel()
	const kind = `{"kind": "dump"}`
	for _, step := range []struct {
		path, body string
		status     int
		want       string
		done       []string
	}{
		{"jobs/42/cancel", "", 200, `"was":"retryable","state":"changed"`, []string{"cancel job 42 by the API from 127.0.0.1"}},
		{"jobs/42/discard", "{}", 200, `"id":42`, []string{"discard job 42 by the API from 127.0.0.1"}},
		{"jobs/41/retry", "", 200, `"was":"completed"`, []string{"retry job 41 by the API from 127.0.0.1"}},
		{"jobs/41/cancel", "", 409, "The job cannot be cancelled: it is completed already.", nil},
		{"jobs/99/cancel", "", 404, "There is no such job.", nil},
		{"jobs/many/cancel", "", 404, "There is no such job.", nil},
		{"jobs/42/cancel", `{"force": true}`, 422, `the field \"force\" is unknown`, nil},
		{"bulk/jobs/cancel", kind, 200, `{"action":"cancel","jobs":3,"changed":2,"up_to":42,"dry_run":false}`, []string{"plan to cancel dump", "cancel all dump to 42 by the API from 127.0.0.1"}},
		{"bulk/jobs/retry", `{"kind": "dump", "dry_run": true}`, 200, `{"action":"retry","jobs":3,"changed":0,"up_to":42,"dry_run":true}`, []string{"plan to retry dump"}},
		{"bulk/jobs/retry", `{"queue": "vast"}`, 422, "The filter matches more than 20000 jobs", nil},
		{"bulk/jobs/cancel", `{"kind": "dump", "up_to": 41}`, 200, `"jobs":2,"changed":1,"up_to":41,`, []string{"plan to cancel dump to 41", "cancel all dump to 41 by the API from 127.0.0.1"}},
		{"bulk/jobs/cancel", `{"kind": "dump", "up_to": -1}`, 422, "up_to must be the id of a job", nil},
		{"bulk/jobs/retry", "", 422, "A filter is required", nil},
		{"bulk/jobs/retry", `{"state": "lost"}`, 422, "state must be one of", nil},
		{"bulk/jobs/cancel", `{"state": "completed"}`, 422, "it is completed already", nil},
	} {
		c := dashboardtest.New()
		w := post(t, handlerOf(c), "/api/v1/"+step.path, jsonType, step.body)
		if w.Code != step.status || !strings.Contains(w.Body.String(), step.want) {
			t.Errorf("%s %s: status %d, body %s", step.path, step.body, w.Code, w.Body)
		}
		if diff := cmp.Diff(step.done, c.Done); diff != "" {
			t.Errorf("%s %s did (-want +got):\n%s", step.path, step.body, diff)
		}
	}
	h := handlerOf(dashboardtest.New())
	if w := get(t, h, "/api/v1/jobs/42/explain"); w.Code != 200 || !strings.Contains(w.Body.String(), `"reason":"capability","detail":"lacks capability gpu"`) {
		t.Errorf("explain: %d %s", w.Code, w.Body)
	}
	if w := get(t, h, "/api/v1/jobs/99/explain"); w.Code != 404 {
		t.Errorf("explain of no job: %d", w.Code)
	}
}

// A button leads to a confirmation page, and only its form changes anything.
func TestJobForms(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	h := handlerOf(c)
	page := get(t, h, "/jobs/42").Body.String()
	for want, there := range map[string]bool{
		`href="/jobs/42/cancel"`: true, `href="/jobs/42/retry"`: true, `href="/jobs/42/discard"`: true, `method="post"`: false,
	} {
		if strings.Contains(page, want) != there {
			t.Errorf("on the page of a job that waits: %q is %v", want, !there)
		}
	}
	asks := get(t, h, "/jobs/42/cancel").Body.String()
	if !strings.Contains(asks, `method="post" action="/jobs/42/cancel"`) || !strings.Contains(asks, "It will not run.") || len(c.Done) != 0 {
		t.Errorf("the question is not asked, or was answered: %v", c.Done)
	}
	w := post(t, h, "/jobs/42/cancel", formType, "")
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/jobs/42?did=cancel" || !cmp.Equal(c.Done, []string{"cancel job 42 by the dashboard from 127.0.0.1"}) {
		t.Fatalf("%d to %s, did %v", w.Code, w.Header().Get("Location"), c.Done)
	}
	if page := get(t, h, "/jobs/42?did=cancel").Body.String(); !strings.Contains(page, "It was cancelled.") || len(c.Done) != 1 {
		t.Error("the page does not say so, or did it again")
	}
	if asks := get(t, h, "/jobs/41/cancel").Body.String(); strings.Contains(asks, "<form") || !strings.Contains(asks, "That cannot be done: it is completed already.") {
		t.Error("it offers what is impossible")
	}
	if page := get(t, h, "/jobs/41").Body.String(); strings.Contains(page, "/jobs/41/cancel") || !strings.Contains(page, "/jobs/41/retry") {
		t.Error("the page of a completed job offers to cancel it, or not to retry it")
	}
	for path, want := range map[string]int{"/jobs/41/cancel": 409, "/jobs/99/retry": 404} {
		if w := post(t, h, path, formType, ""); w.Code != want || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") {
			t.Errorf("%s: %d %s", path, w.Code, w.Header().Get("Content-Type"))
		}
	}
	if w := get(t, h, "/jobs/99/retry"); w.Code != http.StatusNotFound {
		t.Errorf("status %d", w.Code)
	}
	options := optionsOf(c)
	options.Cluster.JobOps = nil
	readOnly := New(options)
	if page := get(t, readOnly, "/jobs/42").Body.String(); strings.Contains(page, `href="/jobs/42/`) {
		t.Error("a page that cannot do anything has buttons")
	}
	if w := post(t, readOnly, "/api/v1/jobs/42/cancel", jsonType, ""); w.Code != http.StatusNotFound {
		t.Errorf("status %d", w.Code)
	}
}

func TestJobPageExplainsThePlacement(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	page := get(t, handlerOf(c), "/jobs/42").Body.String()
	for _, want := range []string{"no node has capability gpu; nodes have &lt;none&gt;.", "is draining; lacks capability gpu", "3 of 50", "chosen"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	for _, state := range []string{"running", "completed"} {
		c.Jobs[0].State = state
		if page := get(t, handlerOf(c), "/jobs/42").Body.String(); strings.Contains(page, "h-placement") {
			t.Errorf("the page of a job that is %s says where it goes", state)
		}
	}
	for _, action := range jobstore.Actions {
		if cluster.PastTense[action] == "" || pages.Icons[action] == "" {
			t.Errorf("%s has no words or no icon", action)
		}
	}
}
