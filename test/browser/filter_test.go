package browser_test

import (
	"testing"

	"github.com/chromedp/chromedp"
)

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
