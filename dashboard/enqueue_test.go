package dashboard

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/dashboard/web"
)

func TestEnqueueAPI(t *testing.T) {
	t.Parallel()
	for _, step := range []struct {
		body   string
		status int
		want   string
		done   []string
	}{
		{`{"kind": "dump"}`, 201, `{"id":42,"kind":"dump","verdict":"added","state":"available","queue":"default","scheduled_at":"`, []string{"enqueue dump   0  by the API from 127.0.0.1"}},
		{
			`{"kind": "old", "args": {"n": 1}, "queue": "bulk", "priority": 4, "at": "2027-01-01T02:00:00+02:00"}`, 201, `"id":42`,
			[]string{`enqueue old {"n": 1} bulk 4 2027-01-01 00:00:00.000 UTC by the API from 127.0.0.1`},
		},
		{`{"kind": "dump", "unique": "taken"}`, 200, `"existing":true`, nil},
		{
			`{"kind": "dump", "unique_args": ["a", "b"], "replace": true}`, 201, `"verdict":"added"`,
			[]string{`enqueue dump   0  by the API from 127.0.0.1, unique "" {Args:true Queue:false ArgNames:[a b] Period:0s States:[]}, duplicates {Replace:true Debounce:0s MaxWait:0s Throttle:0s}`},
		},
		{
			`{"kind": "dump", "debounce": "5s", "max_wait": "1m"}`, 201, `"verdict":"added"`,
			[]string{`enqueue dump   0  by the API from 127.0.0.1, unique "" {Args:false Queue:false ArgNames:[] Period:0s States:[]}, duplicates {Replace:false Debounce:5s MaxWait:1m Throttle:0s}`},
		},
		{
			`{"kind": "dump", "unique": "k", "throttle": "1h"}`, 200, `"verdict":"throttled","state":"available"`,
			[]string{`enqueue dump   0  by the API from 127.0.0.1, unique "k" {Args:false Queue:false ArgNames:[] Period:0s States:[]}, duplicates {Replace:false Debounce:0s MaxWait:0s Throttle:1h}`},
		},
		{`{"kind": "dump", "unique_args": "a"}`, 422, `unique_args must be true, or a list of names (got \"a\").`, nil},
		{`{"kind": "dump", "unique_args": ["a", 1]}`, 422, `unique_args must be true, or a list of names`, nil},
		{`{"kind": "dump", "debounce": "0s"}`, 422, `debounce: no duration, or out of range (got \"0s\"); want 1s to 30d.`, nil},
		{`{"kind": "dump", "throttle": "367d"}`, 422, `throttle: no duration, or out of range (got \"367d\"); want 1s to 366d.`, nil},
		{`{"kind": "dump", "debounce": "5s", "max_wait": "4s"}`, 422, `max_wait: less than debounce`, nil},
		{`{"kind": "dump", "max_wait": "4s"}`, 422, `max_wait: without debounce`, nil},
		{`{"kind": "dump", "replace": true, "throttle": "4s"}`, 422, `want only one of replace, debounce and throttle`, nil},
		{`{"kind": "dump", "replace": true, "unique_period": "4s"}`, 422, `replace, debounce and throttle only with a key of your own`, nil},
		{`{"kind": "dump", "unique": "misfit"}`, 422, `"args.table: missing."`, nil},
		{`{"kind": "dmp"}`, 422, `kind must be one that a node has a worker for (got \"dmp\"; did you mean \"dump\"?).`, nil},
		{"", 422, "kind is missing.", nil},
		{`{"kind": "dump", "args": [1]}`, 422, "args: not an object", nil},
		{`{"kind": "dump", "args": {"a": {"b": "\u0000"}}}`, 422, "args.a.b: a NUL character", nil},
		{`{"kind": "dump", "args": {"a": "` + strings.Repeat("x", 64<<10) + `"}}`, 422, "args: too large", nil},
		{`{"kind": "dump", "args": {"a": "` + strings.Repeat("x", web.MaxBody) + `"}}`, 413, "The body is larger", nil},
		{`{"kind": "dump", "args": {"a": 1, "a": 2}}`, 422, `the field \"a\" stands twice`, nil},
		{`{"kind": "dump", "priority": 5}`, 422, "priority must be from 1 to 4 (got 5).", nil},
		{`{"kind": "dump", "weight": -1}`, 422, "weight must be from 1 to 1000000 (got -1).", nil},
		{`{"kind": "dump", "queue": "A b"}`, 422, "queue must be", nil},
		{`{"kind": "dump", "at": "2027-01-01T00:00:00"}`, 422, "at must be a time such as", nil},
		{`{"kind": "dump", "at": "9999-12-31T23:59:59-12:00"}`, 422, "at must be a time such as", nil},
		{`{"kind": "dump", "unique": "` + strings.Repeat("k", 1001) + `"}`, 422, "unique may have at most 1000 bytes.", nil},
		{`{"kind": "dump", "command": ["id"]}`, 422, `the field \"command\" is unknown`, nil},
	} {
		c := dashboardtest.New()
		w := post(t, handlerOf(c), "/api/v1/jobs", jsonType, step.body)
		if w.Code != step.status || !strings.Contains(w.Body.String(), step.want) {
			t.Errorf("%.80s: status %d, body %s", step.body, w.Code, w.Body)
		}
		if diff := cmp.Diff(step.done, c.Done); diff != "" {
			t.Errorf("%.80s did (-want +got):\n%s", step.body, diff)
		}
		if got := w.Header().Get("Location"); (got == "/api/v1/jobs/42") != (step.status == 201) {
			t.Errorf("%.80s leads to %q", step.body, got)
		}
	}
}

func TestEnqueueForm(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	h := handlerOf(c)
	if page := get(t, h, "/jobs?kind=dump").Body.String(); !strings.Contains(page, `href="/enqueue?kind=dump"`) {
		t.Error("the page does not lead to the form")
	}
	form := get(t, h, "/enqueue?kind=dump").Body.String()
	for _, want := range []string{
		`method="post" action="/enqueue"`, "<option>backup</option>", "<option selected>dump</option>",
		`table <span class="must">required</span>`, `name="arg.table"`, `<option value="&#34;slow&#34;"`, "How &lt;fast&gt;.",
	} {
		if !strings.Contains(form, want) {
			t.Errorf("the form lacks %s", want)
		}
	}
	if plain := get(t, h, "/enqueue?kind=backup").Body.String(); strings.Contains(plain, "arg.") || !strings.Contains(plain, `name="args"`) {
		t.Error("the form of a kind without a schema does not ask for JSON alone")
	}
	if strings.Contains(form, "<option>old</option>") {
		t.Error("the form offers a kind that no node works now")
	}
	for body, want := range map[string]string{
		"kind=dump&args=%7B%7D&queue=&priority=&at=&unique=":                  "/jobs/42?did=enqueue",
		"kind=dump&args=+%7B%7D+&queue=bulk&priority=2&at=2027-01-01T00%3A00": "/jobs/42?did=enqueue",
		"kind=dump&args=&unique=taken":                                        "/jobs/42?did=same",
		"kind=dump&args=&unique=k&duplicates=replace":                         "/jobs/42?did=enqueue",
		"kind=dump&args=&duplicates=debounce&period=5s&max_wait=1m":           "/jobs/42?did=enqueue",
		"kind=dump&args=&duplicates=throttle&period=1h":                       "/jobs/42?did=throttled",
	} {
		if w := post(t, h, "/enqueue", formType, body); w.Code != http.StatusSeeOther || w.Header().Get("Location") != want {
			t.Errorf("%s: %d to %s %s", body, w.Code, w.Header().Get("Location"), w.Body)
		}
	}
	if len(c.Done) == 0 || !strings.Contains(c.Done[0], " by the dashboard from 127.0.0.1") {
		t.Errorf("it did %v", c.Done)
	}
	for path, want := range map[string]string{
		"/jobs/42?did=enqueue": "It was enqueued.", "/jobs/42?did=same": "Nothing was added.", "/jobs/42?did=replaced": "It has the new arguments.",
		"/jobs/42?did=debounced": "and is due later.", "/jobs/42?did=throttled": "this job was enqueued not long ago.",
	} {
		if !strings.Contains(get(t, h, path).Body.String(), want) {
			t.Errorf("%s does not say %q", path, want)
		}
	}
	c.Done = nil
	for body, want := range map[string]int{
		"kind=dump&args=%5B%5D": 422, "kind=dump&priority=first": 400, "kind=dump&at=tomorrow": 400, "kind=dump&at=9999-12-31T23:59:59-12:00": 400, "kind=nope": 422, "": 422,
		"kind=dump&duplicates=debounce": 422, "kind=dump&duplicates=replace&period=5s": 422, "kind=dump&duplicates=throttle&period=0s": 422,
		"kind=dump&duplicates=throttle&period=1h&max_wait=2h": 422, "kind=dump&period=1h": 422,
	} {
		if w := post(t, h, "/enqueue", formType, body); w.Code != want || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") {
			t.Errorf("%s: %d %s", body, w.Code, w.Header().Get("Content-Type"))
		}
	}
	if len(c.Done) != 0 {
		t.Errorf("it did %v", c.Done)
	}
	if w := post(t, h, "/enqueue", formType, "kind=dump&args=&unique=gone&duplicates=throttle&period=1h"); w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "as job 42, which is past its retention") {
		t.Errorf("dropped in favour of a job that is gone: %d %s", w.Code, w.Body)
	}
	options := optionsOf(c)
	options.Cluster.Enqueuer = nil
	readOnly := New(options)
	if page := get(t, readOnly, "/jobs").Body.String(); strings.Contains(page, "/enqueue") {
		t.Error("a page that cannot do anything has a button")
	}
	if w := post(t, readOnly, "/api/v1/jobs", jsonType, `{"kind": "dump"}`); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("status %d", w.Code)
	}
}
