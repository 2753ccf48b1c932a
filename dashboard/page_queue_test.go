package dashboard

import (
	"html"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/internal/queues"
)

func TestQueuePage(t *testing.T) {
	t.Parallel()
	h := handlerOf(dashboardtest.New())
	odd := "/queues/" + url.PathEscape(dashboardtest.OddQueue)
	for path, wants := range map[string][]string{
		"/queues/bulk": {
			"<h1>bulk</h1>", "paused</span>", "by ada: move &lt;it&gt;. Running jobs continue", "leader does at <b>", ">move &lt;it&gt;</td>", `href="/jobs/42">1m 30s<`, `href="/jobs?queue=bulk&amp;state=available">7<`, `href="/dead?queue=bulk">3&#43;<`,
			`href="/jobs?queue=bulk&amp;kind=send"`, " and others", "none runs that has it in its file", `action="/queues/bulk/resume"`, `href="/crons/held"`, "There are others.",
			`<td data-label="May start now" class="num">0</td>`, `<td class="lead-cell">kind send, args.tenant=a &lt;b&gt;</td>`, "too &lt;much&gt;", "Some jobs are paused: kind send, args.tenant=a &lt;b&gt;. ", `name="key" value="args.tenant=a &lt;b&gt;"`,
			`paused <span class="sub">kind &lt;x&gt;</span>`,
			"In the 15 minutes until 2026-11-20 12:00:00", "<dd>12</dd>", "<dd>3.2</dd>", "<dd>0</dd>", "<dd>500 ms / 500 ms / 1m 30s</dd>", "<dd>– / – / –</dd>",
			"resumed</td>", "<dd>4</dd>", "<dd>no limit</dd>", "<dd>2 unless a job has its own</dd>",
		},
		"/queues/default": {
			"of 3</span>", "2 of at most 3 jobs run now, on 1 node.", `href="/nodes/node-1"`, `title="the limit of the whole cluster"`, "draining</span>", `href="/jobs?queue=default&amp;node=node-1&amp;state=running"`, `action="/queues/default/pause"`, `id="act-pause-for"`, `<option value="2h">2 hours</option>`,
			"No cron inserts jobs into this queue.", "Nobody has paused this queue",
		},
		odd: {"the configuration does not name it", "does not name this queue", `href="/jobs?queue=o%27dd%2F%22q%22%3F%26%3Cb%3E%25&amp;state=available">1<`, `action="` + html.EscapeString(odd) + `/pause"`},
	} {
		w := get(t, h, path)
		page := w.Body.String()
		if w.Code != http.StatusOK {
			t.Fatalf("%s: %d %s", path, w.Code, page)
		}
		for _, want := range wants {
			if !strings.Contains(page, want) {
				t.Errorf("%s does not say %q", path, want)
			}
		}
	}
	if page := get(t, h, "/queues/bulk").Body.String(); strings.Contains(page, `id="act-pause-for"`) {
		t.Error("the page of a paused queue offers to pause it")
	}
	if page := get(t, h, "/queues/default").Body.String(); strings.Contains(page, "No node works this queue") {
		t.Error("the page says that no node works a queue that nodes work")
	}
}

func TestUnknownQueue(t *testing.T) {
	t.Parallel()
	h := handlerOf(dashboardtest.New())
	for path, want := range map[string]string{
		"/queues/nobody": "There is no such queue.", "/queues/defaul": "Did you mean default?", "/api/v1/queues/nobody": "There is no such queue.",
		"/api/v1/queues/bulkk": "Did you mean bulk?",
	} {
		if w := get(t, h, path); w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	if w := get(t, h, "/api/v1/queues/%00"); w.Code != http.StatusBadRequest && w.Code != http.StatusNotFound {
		t.Errorf("a name that is no text: %d %s", w.Code, w.Body)
	}
}

func TestQueueOverAPI(t *testing.T) {
	t.Parallel()
	h := handlerOf(dashboardtest.New())
	report := decode[queues.Report](t, get(t, h, "/api/v1/queues/bulk"))
	if report.Name != "bulk" || report.PausedBy != "ada" || report.Dead != 3 || report.Configured.MaxWorkers != 4 || len(report.Crons) != 2 || report.Wait() != 90*time.Second {
		t.Errorf("%+v", report)
	}
	if report = decode[queues.Report](t, get(t, h, "/api/v1/queues/"+url.PathEscape(dashboardtest.OddQueue))); report.Name != dashboardtest.OddQueue || report.Nodes != 0 {
		t.Errorf("%+v", report)
	}
}

// The form on the page of a queue leads back to it. Who may not operate sees no form.
func TestPauseOnTheQueuePage(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	h := handlerOf(c)
	w := post(t, h, "/queues/bulk/pause", formType, "page=queue&for=2h&reason=+we+move+")
	if diff := cmp.Diff([]string{"pause queue by the dashboard from 127.0.0.1 because we move for 2h0m0s"}, c.Done); diff != "" {
		t.Errorf("did (-want +got):\n%s", diff)
	}
	if location := w.Header().Get("Location"); w.Code != http.StatusSeeOther || location != "/queues/bulk?did=pause" {
		t.Fatalf("%d to %s", w.Code, location)
	}
	if page := get(t, h, "/queues/bulk?did=pause").Body.String(); !strings.Contains(page, "bulk is paused. Running jobs continue.") {
		t.Error("the page does not say that the queue is paused")
	}
	w = post(t, h, "/queues/bulk/resume", formType, "page=queue&kind=send&key=args.tenant%3Da+%3Cb%3E")
	location := w.Header().Get("Location")
	if did := c.Done[len(c.Done)-1]; w.Code != http.StatusSeeOther || did != "resume queue by the dashboard from 127.0.0.1 of kind send, args.tenant=a <b>" {
		t.Errorf("%d; it did %s", w.Code, did)
	}
	if page := get(t, h, location).Body.String(); !strings.Contains(page, "Jobs of bulk (kind send, args.tenant=a &lt;b&gt;) are resumed.") {
		t.Errorf("the page at %s does not say which jobs are resumed", location)
	}
	if w := post(t, h, "/queues/bulk/pause", formType, "page=queue&key=acme"); w.Code != http.StatusUnprocessableEntity || !strings.Contains(w.Body.String(), "No value in &#34;acme&#34;; want KEY=VALUE") {
		t.Errorf("a key without a value: %d", w.Code)
	}
	searched := get(t, h, "/queues/bulk?search=x%3C&sort=waiting").Body.String()
	for _, want := range []string{">only x&lt;waiting</td>", `name="search" maxlength="200" value="x&lt;"`, `href="/queues/bulk?search=x%3C&amp;sort=oldest#h-queue-keys"`} {
		if !strings.Contains(searched, want) {
			t.Errorf("the page with a search lacks %s", want)
		}
	}
	if page := get(t, h, "/queues/bulk?search=behind").Body.String(); !strings.Contains(page, "No running job has such a value, and none of the first 10000 waiting ones.") {
		t.Error("the page does not say which jobs it has searched")
	}
	if w := get(t, h, "/api/v1/queues/bulk?search=x&sort=oldest"); !strings.Contains(w.Body.String(), `"key":"only xoldest"`) {
		t.Errorf("the API says %s", w.Body)
	}
	if w := get(t, h, "/api/v1/queues/bulk?search="+strings.Repeat("x", 201)); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "search: found 201 bytes, want at most 200") {
		t.Errorf("a long search: %d %s", w.Code, w.Body)
	}
	for _, path := range []string{"/queues/bulk?sort=name", "/api/v1/queues/bulk?sort=name"} {
		if w := get(t, h, path); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "one of running, waiting, oldest") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	options := optionsOf(c)
	options.Cluster.QueueOps = nil
	if page := get(t, New(options), "/queues/bulk").Body.String(); strings.Contains(page, `method="post"`) {
		t.Error("a page that cannot do anything has forms")
	}
}

func TestPagesLinkToTheQueue(t *testing.T) {
	t.Parallel()
	h := handlerOf(dashboardtest.New())
	for _, path := range []string{"/queues", "/jobs", "/jobs/42", "/crons/backup", "/"} {
		if page := get(t, h, path).Body.String(); !strings.Contains(page, `href="/queues/default"`) {
			t.Errorf("%s does not link to the page of the queue", path)
		}
	}
}
