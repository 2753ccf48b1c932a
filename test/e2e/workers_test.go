package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/test/nodes"
)

// The programs of docs/workers.md, word for word, report to a node; the command, the page and
// the API show it.
func TestProgramsReportToNode(t *testing.T) {
	t.Parallel()
	document := readFile(t, "docs/workers.md")
	dir := t.TempDir()
	program := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := nodes.WriteProgram(path, strings.NewReader(strings.ReplaceAll(text, "/data/ready", dir+"/ready"))); err != nil {
			t.Fatal(err)
		}
		return path
	}
	response := theBlock(t, strings.ReplaceAll(document, "```\nHTTP/1.1", "```http\nHTTP/1.1"), "http")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		head, body, _ := strings.Cut(response, "\n\n")
		for _, line := range strings.Split(head, "\n")[1:] {
			name, value, _ := strings.Cut(line, ": ")
			w.Header().Set(name, value)
		}
		if r.URL.Path == "/busy" {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte(body))
	}))
	defer server.Close()
	toml := strings.Replace(theBlock(t, document, "toml"), "/opt/jobs/import", program("import", theBlock(t, document, "sh")), 1)
	c := newCluster(t, toml+fmt.Sprintf(`
[http]
allow_private_targets = true
[jobs.python]
kind = "shell"
command = ["/usr/bin/python3", %q]
[jobs.fetch]
kind = "http"
url = "%s/"
[jobs.busy]
kind = "http"
url = "%s/busy"
`, program("pages.py", theBlock(t, document, "python")), server.URL, server.URL))
	c.start("a")
	listen := c.nodes["a"].listen()

	id := c.enqueued("import")
	c.awaitState(id, "scheduled")
	c.demand(0, "snoozed       once", "job", "show", id)
	if err := os.WriteFile(dir+"/ready", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c.demand(0, "available", "job", "retry", id)
	c.awaitState(id, "completed")
	for _, want := range []string{"progress      100%: file 1 of 2", `result        {"rows": 1200}`} {
		c.demand(0, want, "job", "show", id)
	}
	job := decode[jobstore.Job](t, c.demand(0, "", "job", "show", id, "-o", "json"))
	if result := strings.Join(strings.Fields(string(job.Result)), ""); job.Progress.Text() != "100%: file 1 of 2" || result != `{"rows":1200}` {
		t.Errorf("got %+v, %s", job.Progress, job.Result)
	}
	_, page, _ := get(listen, "/jobs/"+id)
	for _, want := range []string{"<dt>Progress</dt><dd>100%: file 1 of 2</dd>", `aria-label="Result"`, "1200"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	_, body, _ := get(listen, "/api/v1/jobs/"+id)
	for _, want := range []string{`"percent":100`, `"rows":1200`} {
		if !strings.Contains(strings.ReplaceAll(string(body), " ", ""), want) {
			t.Errorf("the API does not say %q: %s", want, body)
		}
	}

	kinds := []string{"fetch", "python"}
	if _, err := os.Stat("/usr/bin/python3"); err != nil {
		pgtest.LeftOut(t, "python", "python3", "Debian: apt-get install python3")
		kinds = kinds[:1]
	}
	for _, kind := range kinds {
		id = c.enqueued(kind)
		c.awaitState(id, "completed")
		c.demand(0, "progress      100%: page 1 of 2", "job", "show", id)
		c.demand(0, `result        {"pages": 2}`, "job", "show", id)
	}
	id = c.enqueued("busy")
	c.awaitState(id, "scheduled")
	c.demand(0, "snoozed       once", "job", "show", id)
}

// enqueued enqueues a job with SQL and returns its id.
func (c *cluster) enqueued(kind string) string {
	c.t.Helper()
	return fmt.Sprint(c.number(`SELECT forge_enqueue($1)`, kind))
}
