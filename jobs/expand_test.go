package jobs_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

// Values of the run are inserted into texts. One argument stays one argument for any
// value.
func TestRunValuesAreExpanded(t *testing.T) {
	t.Parallel()
	seen := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		seen <- fmt.Sprintf("%s %s %s", r.RequestURI, r.Header.Get("X-Attempt"), body)
	}))
	t.Cleanup(server.Close)
	n := startNode(t, map[string]config.Job{
		"command": once(config.Job{
			Kind: config.KindShell, Command: []string{"sh", "-c", `printf '%s|' "$@" "$DAY"`, "sh", "${run:tick:%F %T}", "${run:job}-${run:attempt}-${run:node}"},
			Env: map[string]string{"DAY": "${run:tick-1d:%j}"},
		}),
		"request": once(config.Job{
			Kind: config.KindHTTP, URL: server.URL + "/${run:tick:%F %T&}?job=${run:job_id}", Body: `{"term": ${run:term}}`,
			Headers: map[string]string{"X-Attempt": "${run:attempt}"},
		}),
	})
	done := n.finish(t, n.work(t, jobstore.NewJob{Kind: "command", Metadata: tickMetadata}), "completed", "discarded")
	if got, want := n.logs(t, done.ID, 1, jobstore.StreamStdout), "2026-11-20 03:00:00|command-1-node-a|323|"; got != want {
		t.Errorf("the command saw %q, want %q: %s", got, want, done.LastError)
	}
	done = n.finish(t, n.work(t, jobstore.NewJob{Kind: "request", Metadata: tickMetadata}), "completed", "discarded")
	if done.State != "completed" {
		t.Fatalf("got %+v", done)
	}
	if got, want := <-seen, fmt.Sprintf(`/2026-11-20%%2003%%3A00%%3A00%%26?job=%d 1 {"term": 7}`, done.ID); got != want {
		t.Errorf("the server saw %s, want %s", got, want)
	}
	for kind, want := range map[string]string{
		"command": `command[4]: there is no tick: no cron fired this job (got "${run:tick:%F %T}")`,
		"request": `build the request: url: there is no tick: no cron fired this job (got "${run:tick:%F %T&}")`,
	} {
		if job := n.finish(t, n.work(t, jobstore.NewJob{Kind: kind}), "discarded"); job.LastError != want {
			t.Errorf("%s without a tick: %q, want %q", kind, job.LastError, want)
		}
	}
}
