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
	things = regexp.MustCompile(`^/(crons|jobs|dead|nodes|leaders|alerts)/[^/]+`)
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
	return deeds.Replace(things.ReplaceAllString(parsed.EscapedPath(), "/$1/*"))
}

// checkLinks follows what the pages lead to: there is no kind of page that the other
// checks do not look at.
func checkLinks(t *testing.T, n *node) {
	t.Helper()
	known := map[string]bool{docs: true}
	for _, path := range everyPage(n) {
		known[kindOf(t, path)] = true
	}
	if len(known) < 20 {
		t.Fatalf("%d kinds of pages are known: %v", len(known), known)
	}
	for _, path := range everyPage(n) {
		_, body, _ := nodes.Get(n.listen, path)
		for _, link := range links.FindAllStringSubmatch(string(body), -1) {
			if kind := kindOf(t, link[1]); !notPages.MatchString(kind) && !known[kind] {
				t.Errorf("%s leads to %s, a page that no check looks at", path, link[1])
			}
		}
	}
}

// deadGroup is the page of the group of the job that has died for good, empty while
// there is none.
func deadGroup(n *node) string {
	_, body, _ := nodes.Get(n.listen, "/dead")
	found := regexp.MustCompile(`href="(/dead/[^"/]+)">lasting<`).FindStringSubmatch(string(body))
	if found == nil {
		return ""
	}
	return found[1]
}
