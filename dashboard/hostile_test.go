package dashboard

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
)

// hostilePaths returns the pages of the hostile cluster, and requests to the API.
func hostilePaths(c *dashboardtest.Cluster) (pages, answers []string) {
	fill := strings.NewReplacer("{$}", "", "{session}", "aaaaaaaaaaaaaaaa", "{id}", "42", "{role}", "scheduler", "{term}", "7", "{group}", dashboardtest.DeadGroup, "{tick}", "2026-11-20T02:00:00Z", "{hash}", dashboardtest.OldHash,
		"{name}", dashboardtest.AttackName, "{node}", dashboardtest.AttackName, "{alert}", dashboardtest.AttackName, "{file}", "app.css")
	for _, r := range newServer(c).routes() {
		path := fill.Replace(r.Path)
		switch {
		case r.Get == nil || path == "/events" || strings.HasPrefix(path, "/static/"):
		case r.Gets == nil:
			pages = append(pages, path)
		case r.Gets.Media == "":
			answers = append(answers, path)
		}
	}
	return pages, answers
}

// Text from a job, a file or a receiver stays text on every page, in every attribute and in
// every part of a stream.
func TestHostileTextStaysText(t *testing.T) {
	t.Parallel()
	c := dashboardtest.Hostile()
	h := handlerOf(c)
	pages, _ := hostilePaths(c)
	query := url.QueryEscape(dashboardtest.Attack)
	for _, path := range append(pages, "/jobs?kind="+query+"&queue="+query+"&cron="+query, "/crons?q="+query, "/enqueue?kind="+query, "/bulk/jobs/cancel?kind="+query,
		"/queues?did=pause&queue="+query, "/alerts?did=silence&alert="+query, "/nodes/"+dashboardtest.AttackName+"?did=drain", "/leaders?did=transfer&of="+query+"&to="+query,
		"/jobs?state="+query, "/login?next="+query, "/"+dashboardtest.AttackName) {
		w := get(t, h, path)
		dashboardtest.CheckHarmless(t, path, w.Body.Bytes())
		checkNothingInline(t, path, w.Body.String())
		if w.Code >= http.StatusInternalServerError {
			t.Errorf("%s: status %d", path, w.Code)
		}
	}
	_, output, _ := strings.Cut(get(t, h, "/jobs/42").Body.String(), "data-follow")
	output, _, _ = strings.Cut(output, "</pre>")
	if !strings.Contains(output, "alert(1)") || strings.Contains(output, "[31m") || strings.Contains(output, "]0;") {
		t.Errorf("the output is %q", output)
	}
	h = handlerOf(dashboardtest.Hostile()) // a cluster without counts
	for _, path := range []string{"/", "/leaders", "/nodes", "/nodes/" + dashboardtest.AttackName, "/crons", "/crons/" + dashboardtest.AttackName, "/jobs", "/jobs/42", "/queues", "/queues/bulk", "/alerts", "/storage", "/activity", "/activity?text=" + query, "/dead", "/dead/" + dashboardtest.DeadGroup, "/settings", "/enqueue?kind=" + query} {
		if w := get(t, h, path); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "&lt;script&gt;alert(1)") {
			t.Errorf("%s: status %d, and the attack is not among what it shows", path, w.Code)
		}
	}
}

// Answers to programs are JSON without characters that browsers or terminals interpret,
// even if the text in them is long or invalid.
func TestHostileTextInAnswers(t *testing.T) {
	t.Parallel()
	c := dashboardtest.Hostile()
	c.Logs[0].Chunk = strings.Repeat("<x>", 1<<18)
	h := handlerOf(c)
	_, paths := hostilePaths(c)
	found := 0
	for _, path := range paths {
		w := get(t, h, path)
		if body := w.Body.String(); !json.Valid(w.Body.Bytes()) || strings.ContainsAny(strings.TrimSuffix(body, "\n"), "<>\x1b\x07\r\n") {
			t.Errorf("%s: %.300q", path, body)
		} else if strings.Contains(body, `\u003cscript`) {
			found++
		}
		if w.Header().Get("X-Content-Type-Options") != "nosniff" || !strings.HasSuffix(w.Header().Get("Content-Type"), "json") {
			t.Errorf("%s is %v", path, w.Header())
		}
	}
	if found < 15 {
		t.Errorf("only %d answers have the text", found)
	}
	c.Hostile, c.Logs[0].Chunk = false, dashboardtest.Broken
	if lines := get(t, h, "/api/v1/jobs/42/logs?follow=true&attempt=1").Body.String(); strings.ContainsAny(lines, "<>\x1b") || strings.Count(lines, "\n") != 1 {
		t.Errorf("followed: %.300q", lines)
	}
}
