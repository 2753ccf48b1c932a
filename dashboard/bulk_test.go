package dashboard

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

// The confirmation page counts the jobs that match the filter. The form changes those jobs
// and no later ones.
func TestBulkForms(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	c.Jobs = append(c.Jobs, jobstore.Job{ID: 40, Kind: "dump", State: "discarded", Queue: "bulk"}, jobstore.Job{ID: 39, Kind: "send", State: "running", Queue: "mail"})
	for i := range int64(60) {
		c.Jobs = append(c.Jobs, jobstore.Job{ID: 38 - i, Kind: "many", State: "completed"})
	}
	h := handlerOf(c)
	page := get(t, h, "/jobs?kind=dump&state=retryable").Body.String()
	for _, action := range []string{"cancel", "retry", "discard"} {
		if !strings.Contains(page, `href="/bulk/jobs/`+action+`?kind=dump&amp;state=retryable"`) {
			t.Errorf("the page has no button to %s what it lists", action)
		}
	}
	for path, want := range map[string]int{
		"/jobs": 0, "/jobs?kind=dump": 3, "/jobs?state=completed": 1, "/jobs?state=running": 1,
		// Nothing matches, or nothing that the action can change.
		"/jobs?kind=nothing": 0, "/jobs?state=scheduled": 0, "/jobs?kind=send": 1,
		// More jobs follow on the next page.
		"/jobs?kind=many": 3,
	} {
		if got := strings.Count(get(t, h, path).Body.String(), `href="/bulk/jobs/`); got != want {
			t.Errorf("%s has %d buttons for all, want %d", path, got, want)
		}
	}

	asks := get(t, h, "/bulk/jobs/cancel?kind=dump&state=retryable").Body.String()
	for _, want := range []string{
		"Cancel 3 jobs?", "<dt>Kind</dt><dd>dump</dd>", "<dt>State</dt><dd>retryable</dd>", `method="post" action="/bulk/jobs/cancel"`,
		`name="kind" value="dump"`, `name="state" value="retryable"`, `name="up_to" value="42"`,
	} {
		if !strings.Contains(asks, want) {
			t.Errorf("the question lacks %s", want)
		}
	}
	if asks := get(t, h, "/bulk/jobs/retry?kind=dump").Body.String(); !strings.Contains(asks, "<dt>State</dt><dd>discarded</dd>") {
		t.Error("it does not say that a retry means the discarded jobs")
	}
	if asks := get(t, h, "/bulk/jobs/retry?queue=vast").Body.String(); strings.Contains(asks, "<form") || !strings.Contains(asks, "The filter matches more than 20000 jobs") {
		t.Error("it offers more than one request can do")
	}
	c.Done = nil
	w := post(t, h, "/bulk/jobs/cancel", formType, "kind=dump&state=&queue=&cron=&up_to=41")
	want := []string{"plan to cancel dump", "cancel all dump to 41 by the dashboard from 127.0.0.1"}
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/jobs?did=cancel&kind=dump&n=2" || !cmp.Equal(c.Done, want) {
		t.Fatalf("%d to %s, did %v", w.Code, w.Header().Get("Location"), c.Done)
	}
	if page := get(t, h, "/jobs?did=cancel&kind=dump&n=2").Body.String(); !strings.Contains(page, "2 jobs were cancelled.") {
		t.Error("the page does not say what was done")
	}
}

func TestBulkFormsRefuse(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	h := handlerOf(c)
	for path, want := range map[string]string{
		"/bulk/jobs/cancel":                 "A filter is required",
		"/bulk/jobs/cancel?state=lost":      "state must be one of",
		"/bulk/jobs/cancel?state=completed": "it is completed already",
	} {
		if w := get(t, h, path); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d, no %q", path, w.Code, want)
		}
	}
	for body, want := range map[string]int{
		"kind=dump":                  http.StatusBadRequest, // no count
		"kind=dump&up_to=-1":         http.StatusBadRequest,
		"up_to=42":                   http.StatusUnprocessableEntity,
		"queue=vast&up_to=42":        http.StatusUnprocessableEntity,
		"state=completed&up_to=9999": http.StatusUnprocessableEntity,
	} {
		if w := post(t, h, "/bulk/jobs/cancel", formType, body); w.Code != want || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") {
			t.Errorf("%s: %d %s", body, w.Code, w.Header().Get("Content-Type"))
		}
	}
	if len(c.Done) != 0 {
		t.Errorf("it did %v", c.Done)
	}
	options := optionsOf(c)
	options.Cluster.JobOps = nil
	readOnly := New(options)
	if page := get(t, readOnly, "/jobs?kind=dump").Body.String(); strings.Contains(page, "/bulk/") {
		t.Error("a page that cannot do anything has buttons")
	}
	if w := get(t, readOnly, "/bulk/jobs/cancel?kind=dump"); w.Code != http.StatusNotFound {
		t.Errorf("status %d", w.Code)
	}
}
