package browser_test

import (
	"context"
	"fmt"
	"strings"
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

// What operators do to leaders and nodes is asked for once more, and done.
func TestRolesMoveByThePages(t *testing.T) {
	t.Parallel()
	newTab(t) // not run without a browser, before there are nodes
	n := startNodes(t, "north", "south")[0]
	tab := newTab(t)
	old := leader(n)
	do(t, tab, chromedp.Navigate(n.url("/leaders")))
	press(t, tab, `#leader-scheduler a[href$="/step-down"]`)
	press(t, tab, "#act-move button")
	if got := said(t, tab); !strings.HasPrefix(got, "The leader of scheduler was asked to step down.") {
		t.Errorf("after the step down: %s", got)
	}
	nodes.Eventually(t, patience, "another node leads", func() bool { now := leader(n); return now != "" && now != old })
	state := func(id string) string {
		var list struct {
			Items []struct {
				ID    string `json:"node_id"`
				State string `json:"state"`
			}
		}
		_ = n.get("/api/v1/nodes", &list) // none, then
		for _, item := range list.Items {
			if item.ID == id {
				return item.State
			}
		}
		return ""
	}
	for _, step := range []struct{ verb, state string }{{"drain", "draining"}, {"undrain", "active"}} {
		do(t, tab, chromedp.Navigate(n.url("/nodes")))
		press(t, tab, `#node-south a[href$="/`+step.verb+`"]`)
		press(t, tab, "#act-move button")
		if got := said(t, tab); !strings.HasPrefix(got, "south ") {
			t.Errorf("after %s: %s", step.verb, got)
		}
		nodes.Eventually(t, patience, "south is "+step.state, func() bool { return state("south") == step.state })
	}
}
