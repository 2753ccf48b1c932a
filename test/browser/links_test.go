package browser_test

import (
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/test/nodes"
)

// docs is the page of the API's document; it is long, and made of the same parts.
const docs = "/api/docs"

var (
	links = regexp.MustCompile(`href="(/[^"]*)"`)
	// things are the parts of paths that name one of many.
	things = regexp.MustCompile(`^/(crons|jobs|queues|dead|nodes|leaders|alerts|tokens)/[^/]+`)
	terms  = regexp.MustCompile(`/terms/[^/]+$`)
	// notPages are documents for programs.
	notPages = regexp.MustCompile(`^/(api/(v1|openapi)|metrics|static/|cluster/|healthz|readyz)`)
)

// deeds are those that share a page.
var deeds = strings.NewReplacer("/cancel", "/retry", "/discard", "/retry", "/step-down", "/transfer", "/undrain", "/drain")

// kindOf is what pages of the same kind have in common.
func kindOf(t *testing.T, path string) string {
	t.Helper()
	parsed, err := url.Parse(strings.ReplaceAll(path, "&amp;", "&"))
	if err != nil {
		t.Fatal(err)
	}
	return deeds.Replace(terms.ReplaceAllString(things.ReplaceAllString(parsed.EscapedPath(), "/$1/*"), "/terms/*"))
}

// checkLinks follows what the pages lead to: there is no kind of page that the other
// checks do not look at.
func checkLinks(t *testing.T, n *node) {
	t.Helper()
	known := map[string]bool{docs: true}
	for _, p := range everyPage(n) {
		known[kindOf(t, p.path)] = true
	}
	if len(known) < 20 {
		t.Fatalf("%d kinds of pages are known: %v", len(known), known)
	}
	for _, p := range append(everyPage(n), page{"docs", docs}) {
		_, body, _ := nodes.Get(n.listen, p.path)
		for _, link := range links.FindAllStringSubmatch(string(body), -1) {
			if kind := kindOf(t, link[1]); !notPages.MatchString(kind) && !known[kind] {
				t.Errorf("%s leads to %s, a page that no check looks at", p.path, link[1])
			}
		}
	}
}

// deadGroup is the page of the group of the jobs of a kind that have died for good,
// empty while there is none.
func deadGroup(n *node, kind string) string {
	var list struct {
		Items []struct{ Group, Kind string }
	}
	_ = n.get("/api/v1/dead", &list) // none, then
	for _, group := range list.Items {
		if group.Kind == kind {
			return "/dead/" + group.Group
		}
	}
	return ""
}

// deadJob is a job of the kind that has died for good, 0 while there is none.
func deadJob(n *node, kind string) int64 {
	var list struct {
		Items []job
	}
	if n.get("/api/v1/jobs?state=discarded&limit=1&kind="+url.QueryEscape(kind), &list) != nil || len(list.Items) == 0 {
		return 0
	}
	return list.Items[0].ID
}
