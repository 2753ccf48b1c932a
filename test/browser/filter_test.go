package browser_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
)

// checkViews saves the filter of a list under a name, finds it again and removes it, with and
// without scripts.
func checkViews(t *testing.T, n *node) {
	t.Helper()
	scripted := newTab(t)
	for _, tab := range []context.Context{scripted, newPlainTab(t)} {
		const name, query = "What <b>dies</b> & how", "/jobs?filter=kind%3Alasting&state=discarded"
		open(t, tab, n.url(query))
		press(t, tab, ".views summary")
		do(t, tab, chromedp.SetValue(chromedp.CSS(".views [name=name]"), name))
		press(t, tab, ".views details button")
		awaitTrue(t, tab, fmt.Sprintf(`location.pathname + location.search === %q && document.querySelector(".views a[aria-current]")?.textContent === %q`, query, name))
		open(t, tab, n.url("/jobs"))
		if tab == scripted {
			for _, v := range violations(t, axed(t, tab), everyRule) {
				t.Errorf("%s (%s)", v.Help, v.ID)
			}
		}
		press(t, tab, ".views[role=group] a")
		awaitTrue(t, tab, fmt.Sprintf(`location.pathname + location.search === %q`, query))
		press(t, tab, `.views button[title="Remove this view"]`)
		awaitTrue(t, tab, `location.pathname === "/jobs" && !document.querySelector(".views button[title]")`)
	}
}

// checkFilter filters the jobs by the fields of the form, without scripts, and by the bar,
// which suggests terms for its last word.
func checkFilter(t *testing.T, n *node) {
	t.Helper()
	n.enqueue(t, `{"kind": "order", "args": {"customer": "Eve"}, "at": "2099-01-01T00:00:00Z"}`)
	const onlyOrders = `(() => {
		const kinds = [...document.querySelectorAll("main tbody td[data-label=Kind]")];
		return document.querySelector("[name=filter]")?.value === "kind:ord*" && kinds.length > 0 && kinds.every((kind) => kind.title === "order");
	})()`
	plain := newPlainTab(t)
	open(t, plain, n.url("/jobs"))
	do(t, plain, chromedp.Click(chromedp.CSS(".fields summary")), chromedp.SetValue(chromedp.CSS("[name=kind]"), "ord*"))
	press(t, plain, ".filter button")
	awaitTrue(t, plain, onlyOrders)

	tab := newTab(t)
	do(t, tab, chromedp.Navigate(n.url("/jobs")), live())
	if got := eval[bool](t, tab, `(() => {
		const field = document.querySelector("[name=filter]");
		field.value = "kind:ord* sta";
		field.dispatchEvent(new Event("input"));
		const terms = [...field.list.options].map((option) => option.value);
		return terms.includes("kind:ord* state:running") && terms.includes("kind:ord* node:north");
	})()`); !got {
		t.Error("the filter suggests no terms after the first one")
	}
	do(t, tab, chromedp.SetValue(chromedp.CSS("[name=filter]"), "kind:ord*"))
	press(t, tab, ".filter button")
	awaitTrue(t, tab, onlyOrders)
}
