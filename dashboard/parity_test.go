package dashboard

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
)

var (
	// docsRow matches a row of a table, requestIn an address in it.
	docsRow   = regexp.MustCompile(`(?m)^\| .*$`)
	requestIn = regexp.MustCompile("`(GET|POST) (/[^`]*)`")
)

// docs/api.md names exactly the API routes. The tests of the commands check which command
// does the same.
func TestEveryRequestIsDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	documented, there := map[string]bool{}, map[string]bool{}
	for _, row := range docsRow.FindAllString(string(page), -1) {
		for _, request := range requestIn.FindAllStringSubmatch(row, -1) {
			documented[request[1]+" "+request[2]] = true
		}
	}
	s := newServer(dashboardtest.New())
	for _, r := range s.routes() {
		if r.Gets != nil {
			there["GET "+r.Path] = true
		}
		if r.Posts != nil {
			there["POST "+r.Path] = true
		}
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(there)), slices.Sorted(maps.Keys(documented))); diff != "" {
		t.Errorf("docs/api.md (-routes +documented):\n%s", diff)
	}
}

// For each form of a page there is an API request with the same effect, apart from the one that
// changes the reader's browser alone.
func TestEveryFormHasItsRequest(t *testing.T) {
	t.Parallel()
	s := newServer(dashboardtest.New())
	posts := map[string]bool{}
	for _, r := range s.api.Routes() {
		posts[r.Path] = r.Post != nil
	}
	for _, r := range s.pages.Routes() {
		if r.Post == nil || r.Path == "/views" {
			continue
		}
		twin := "/api/v1" + r.Path
		switch {
		case r.Path == "/enqueue":
			twin = "/api/v1/jobs"
		case strings.HasPrefix(r.Path, "/dead/{group}/"):
			twin = "/api/v1/bulk/dead/" + strings.TrimPrefix(r.Path, "/dead/{group}/")
		}
		if !posts[twin] {
			t.Errorf("the form at %s does what no POST to %s does", r.Path, twin)
		}
	}
}

// testdata/forms.txt lists the actions of the forms. test/browser submits each of them.
func TestEveryFormIsListed(t *testing.T) {
	t.Parallel()
	listed, err := os.ReadFile("testdata/forms.txt")
	if err != nil {
		t.Fatal(err)
	}
	options := optionsOf(dashboardtest.New())
	options.Auth.Tokens = dashboardtest.Tokens{}
	s := makeServer(options)
	var forms []string
	for _, r := range s.pages.Routes() {
		if r.Post != nil {
			forms = append(forms, r.Path)
		}
	}
	slices.Sort(forms)
	if diff := cmp.Diff(forms, strings.Fields(string(listed))); diff != "" {
		t.Errorf("testdata/forms.txt (-routes +listed):\n%s", diff)
	}
}
