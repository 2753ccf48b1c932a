package dashboard

import (
	"html"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/dashboard/web"
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
	want := []string{"plan to cancel dump to 41", "cancel all dump to 41 by the dashboard from 127.0.0.1"}
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/jobs?did=cancel&kind=dump&n=1" || !cmp.Equal(c.Done, want) {
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

// The list, its tabs, its next page and its actions keep the whole filter, whether it comes
// from the bar or from the fields of the form.
func TestJobsAreFiltered(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	for i, kind := range []string{"send_mail", "send_sms", "report"} {
		c.Jobs = append(c.Jobs, jobstore.Job{ID: int64(30 + i), Kind: kind, State: "discarded", Queue: "bulk"})
	}
	h := handlerOf(c)
	for path, want := range map[string][]string{
		"/jobs?filter=kind:send*":                  {"#31", "#30", `value="kind:send*"`, `href="/jobs?filter=kind%3Asend%2A&amp;state=running"`, `href="/bulk/jobs/retry?filter=kind%3Asend%2A"`},
		"/jobs?kind=send*":                         {"#31", "#30", `value="kind:send*"`, `href="/jobs?filter=kind%3Asend%2A&amp;state=running"`},
		"/jobs?filter=queue:bulk&kind=*sms":        {"#31", `value="queue:bulk kind:*sms"`},
		"/jobs?filter=kind:report":                 {"#32", `value="kind:report"`, `href="/jobs?kind=report&amp;state=running"`},
		"/jobs?filter=state:discarded+kind:report": {"#32", `value="kind:report"`, `name="state" value="discarded"`},
		"/jobs?kind=send":                          {"No job matches the filter", `href="/jobs?filter=kind%3A%2Asend%2A">Kinds that contain send</a>`},
		"/bulk/jobs/retry?filter=kind:send*":       {"<dt>Filter</dt><dd>kind:send*</dd>", `name="filter" value="kind:send*"`},
	} {
		page := get(t, h, path).Body.String()
		for _, text := range want {
			if !strings.Contains(page, text) {
				t.Errorf("%s lacks %s", path, text)
			}
		}
		for _, id := range []string{"#30", "#31", "#32", "#42"} {
			if strings.HasPrefix(path, "/jobs") && strings.Contains(page, ">"+id+"<") && !slices.Contains(want, id) {
				t.Errorf("%s lists %s", path, id)
			}
		}
	}
	const mistake = `filter, character 6: found "10s", want > or < and a duration, such as took:>10s`
	for path, want := range map[string]string{
		"/jobs?filter=took:10s": mistake, "/jobs?took=10s": mistake, "/api/v1/jobs?filter=took:10s": mistake, "/bulk/jobs/retry?filter=took:10s": mistake,
		"/api/v1/jobs?filter=knd:a": `filter, character 1: found the key "knd", want "kind"`,
	} {
		w := get(t, h, path)
		if said := html.UnescapeString(w.Body.String()); w.Code != http.StatusBadRequest || !strings.Contains(strings.NewReplacer(`\"`, `"`, `\u003e`, ">", `\u003c`, "<").Replace(said), want) {
			t.Errorf("%s: %d %s", path, w.Code, said)
		}
	}
	if got := decode[web.List[jobstore.Job]](t, get(t, h, "/api/v1/jobs?filter=kind:send*")); len(got.Items) != 2 {
		t.Errorf("the API lists %d jobs", len(got.Items))
	}
	w := post(t, h, "/api/v1/bulk/jobs/retry", jsonType, `{"filter": "took:10s"}`)
	if got := decode[web.Problem](t, w); w.Code != http.StatusUnprocessableEntity || len(got.Errors) != 1 || got.Errors[0].Pointer != "#/filter" || got.Errors[0].Detail != mistake {
		t.Errorf("%d %+v", w.Code, got)
	}
	if w := post(t, h, "/api/v1/bulk/jobs/retry", jsonType, `{"filter": "kind:send*"}`); w.Code != http.StatusOK {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := post(t, h, "/bulk/jobs/retry", formType, "filter=kind:send*&up_to=42"); w.Header().Get("Location") != "/jobs?did=retry&filter=kind%3Asend%2A&n=2" {
		t.Errorf("%d to %s", w.Code, w.Header().Get("Location"))
	}
}
