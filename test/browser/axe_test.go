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

// checkAxe wants nothing found on any page in light colours, and enough contrast on
// every page in dark ones: nothing else of a page differs.
func checkAxe(t *testing.T, n *node) {
	t.Helper()
	tab := newTab(t)
	for _, path := range everyPage(n) {
		do(t, tab, browser.Scheme("light"), chromedp.Navigate(n.url(path)), chromedp.WaitVisible(chromedp.CSS("main")))
		for scheme, found := range violations(t, tab) {
			for _, v := range found {
				for _, where := range v.Nodes {
					t.Errorf("%s, %s: %s (%s)\n%s\n%s", path, scheme, v.Help, v.ID, where.HTML, where.FailureSummary)
				}
			}
		}
	}
}

// violations are those of the page as it is, and then of its dark colours.
func violations(t *testing.T, tab context.Context) (found map[string][]violation) { //nolint:revive // the test comes first
	t.Helper()
	do(t, tab, chromedp.Evaluate[chromedp.Void](axe+`;
		const look = (more) => axe.run(document, {resultTypes: ["violations"], preload: false, iframes: false, ...more}).then((all) => all.violations);
		(async () => {
			const light = await look({});
			document.documentElement.dataset.theme = "dark";
			window.found = JSON.stringify({light, dark: await look({runOnly: ["color-contrast"]})});
		})();`))
	text, err := chromedp.Run(tab, chromedp.Poll[string](`window.found`))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(text), &found); err != nil {
		t.Fatal(err)
	}
	return found
}
