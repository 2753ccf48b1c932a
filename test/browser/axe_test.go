package browser_test

import (
	"context"
	_ "embed"
	"encoding/json"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/forge-scheduler/forge/test/browser"
)

// axe looks for what keeps people from reading and using a page.
//
//go:embed testdata/axe-core/axe.min.js
var axe string

// violation is a rule of axe that a page breaks, and where.
type violation struct {
	ID, Help string
	Nodes    []struct{ HTML, FailureSummary string }
}

// checkAxe wants nothing found on any page in light colours, nor in the dark ones
// of those that have every part of the pages between them.
func checkAxe(t *testing.T, n *node) {
	t.Helper()
	tab := newTab(t)
	for _, path := range everyPage(n) {
		checkPageByAxe(t, tab, n, path, "light")
	}
	for _, path := range []string{"/", "/leaders", "/alerts"} {
		checkPageByAxe(t, tab, n, path, "dark")
	}
}

func checkPageByAxe(t *testing.T, tab context.Context, n *node, path, scheme string) { //nolint:revive // the test comes first
	t.Helper()
	do(t, tab, browser.Scheme(scheme), chromedp.Navigate(n.url(path)), chromedp.WaitVisible(chromedp.CSS("main")))
	for _, v := range violations(t, tab) {
		for _, where := range v.Nodes {
			t.Errorf("%s, %s: %s (%s)\n%s\n%s", path, scheme, v.Help, v.ID, where.HTML, where.FailureSummary)
		}
	}
}

func violations(t *testing.T, tab context.Context) (found []violation) { //nolint:revive // the test comes first
	t.Helper()
	do(t, tab, chromedp.Evaluate[chromedp.Void](axe+`;
		axe.run(document, {resultTypes: ["violations"], preload: false, iframes: false}).then((found) => { window.found = JSON.stringify(found.violations); });`))
	text, err := chromedp.Run(tab, chromedp.Poll[string](`window.found`))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(text), &found); err != nil {
		t.Fatal(err)
	}
	return found
}
