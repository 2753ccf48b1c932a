package browser_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"

	"github.com/forge-scheduler/forge/test/nodes"
)

// press clicks an element by itself and not at a place: pages that live move.
func press(t *testing.T, tab context.Context, selector string) { //nolint:revive // the test comes first
	t.Helper()
	do(t, tab, chromedp.WaitVisible(chromedp.CSS(selector)))
	eval[bool](t, tab, fmt.Sprintf(`(document.querySelector(%q).click(), true)`, selector))
}

// awaitTrue waits until an expression holds in the page, which may be the next one.
func awaitTrue(t *testing.T, tab context.Context, expression string) { //nolint:revive // the test comes first
	t.Helper()
	nodes.Eventually(t, patience, expression, func() bool {
		holds, err := chromedp.Run(tab, chromedp.Evaluate[bool](expression))
		return err == nil && holds // between two pages there is none to ask
	})
}

// hit presses a key as a keyboard does.
func hit(t *testing.T, tab context.Context, key string) { //nolint:revive // the test comes first
	t.Helper()
	for _, kind := range []input.DispatchKeyEventType{input.DispatchKeyEventTypeKeyDown, input.DispatchKeyEventTypeKeyUp} {
		if _, err := chromedp.Call(tab, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: kind, Key: key, Text: textOf(kind, key)}); err != nil {
			t.Fatal(err)
		}
	}
}

func textOf(kind input.DispatchKeyEventType, key string) string {
	if kind == input.DispatchKeyEventTypeKeyDown {
		return key
	}
	return ""
}

// checkKeys walks the pages by keys, and pauses one.
func checkKeys(t *testing.T, n *node) {
	t.Helper()
	tab := newTab(t)
	do(t, tab, chromedp.Navigate(n.url("/")), live())
	hit(t, tab, "?")
	awaitTrue(t, tab, `document.querySelector("#keys").open`)
	hit(t, tab, "?")
	awaitTrue(t, tab, `!document.querySelector("#keys").open`)
	hit(t, tab, "g")
	hit(t, tab, "c")
	awaitTrue(t, tab, `location.pathname === "/crons" && document.querySelector("#conn")?.dataset.state === "live"`)
	hit(t, tab, "j")
	hit(t, tab, "j")
	hit(t, tab, "k")
	awaitTrue(t, tab, `document.activeElement === document.querySelector("tbody tr a")`)
	hit(t, tab, "/")
	awaitTrue(t, tab, `document.activeElement.name === "q"`)
	hit(t, tab, "p") // typed into the field, and no pause
	if got := eval[string](t, tab, `document.activeElement.value + document.querySelector("#conn").dataset.state`); got != "plive" {
		t.Errorf("p in a field: %q", got)
	}
	eval[bool](t, tab, `(document.activeElement.blur(), true)`)
	hit(t, tab, "p")
	awaitTrue(t, tab, `document.querySelector("#conn").dataset.state === "paused" && document.querySelector("#conn").getAttribute("aria-pressed") === "true"`)
	press(t, tab, "#conn")
	awaitTrue(t, tab, `document.querySelector("#conn").dataset.state === "live"`)
}
