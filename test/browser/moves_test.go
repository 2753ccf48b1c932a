package browser_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/test/browser"
	"github.com/forge-scheduler/forge/test/nodes"
)

// press clicks an element by itself and not at a place: pages that live move.
func press(t *testing.T, tab context.Context, selector string) { //nolint:revive // the test comes first
	t.Helper()
	do(t, tab, chromedp.WaitVisible(chromedp.CSS(selector)))
	// Links in drawings have no method for it. Until the next page comes, this one must not pass
	// for it with what an earlier form has come to.
	eval[bool](t, tab, fmt.Sprintf(`(() => {
		for (const earlier of document.querySelectorAll(".said")) earlier.classList.remove("said");
		document.querySelector(%q).dispatchEvent(new MouseEvent("click", {bubbles: true, cancelable: true, view: window}));
		return true;
	})()`, selector))
}

// isWhole says whether the page has come to its end: what is visible may be all of it so far.
const isWhole = `document.readyState === "complete"`

// awaitTrue waits until an expression holds in the page, which may be the next one.
func awaitTrue(t *testing.T, tab context.Context, expression string) { //nolint:revive // the test comes first
	t.Helper()
	nodes.Eventually(t, waitTimeout, expression, func() bool {
		holds, err := chromedp.Run(tab, chromedp.Evaluate[bool](expression))
		return err == nil && holds // between two pages there is none to ask
	})
}

// hit presses a key as a keyboard does.
func hit(t *testing.T, tab context.Context, key string) { //nolint:revive // the test comes first
	t.Helper()
	awaitTrue(t, tab, `!document.querySelector("#theme").hidden`) // what hears keys is there
	for _, kind := range []input.DispatchKeyEventType{input.DispatchKeyEventTypeKeyDown, input.DispatchKeyEventTypeKeyUp} {
		if _, err := chromedp.Call(tab, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: kind, Key: key, Text: textOf(kind, key)}); err != nil {
			t.Fatal(err)
		}
	}
}

func textOf(kind input.DispatchKeyEventType, key string) string {
	switch {
	case kind != input.DispatchKeyEventTypeKeyDown:
		return ""
	case key == "Enter":
		return "\r"
	case len(key) > 1: // the name of a key that writes nothing
		return ""
	default:
		return key
	}
}

// checkKeys walks the pages by keys, as docs/dashboard.md and the page's own list of
// keys have them.
func checkKeys(t *testing.T, n *node) {
	t.Helper()
	tab := newTab(t)
	do(t, tab, chromedp.Navigate(n.url("/")), live())
	hit(t, tab, "?")
	awaitTrue(t, tab, `document.querySelector("#keys").open`)
	listed := eval[[]string](t, tab, `[...document.querySelectorAll("#keys dt")].map((dt) => dt.textContent)`)
	hit(t, tab, "?")
	awaitTrue(t, tab, `!document.querySelector("#keys").open`)
	press(t, tab, "#help")
	awaitTrue(t, tab, `document.querySelector("#keys").open`)
	press(t, tab, "#keys-close")
	awaitTrue(t, tab, `!document.querySelector("#keys").open`)
	for key, path := range map[string]string{
		"c": "/crons", "j": "/jobs", "q": "/queues", "d": "/dead", "n": "/nodes", "l": "/leaders",
		"a": "/alerts", "m": "/charts", "t": "/storage", "e": "/activity", "s": "/settings", "k": "/tokens", "o": "/",
	} {
		if !slices.Contains(listed, "g "+key) {
			t.Errorf("g %s is not among the keys %q", key, listed)
		}
		open(t, tab, n.url("/nothing"))
		hit(t, tab, "g")
		hit(t, tab, key)
		awaitTrue(t, tab, fmt.Sprintf(`location.pathname === %q && !!document.querySelector("main h1")`, path))
	}
	do(t, tab, chromedp.Navigate(n.url("/crons")), live())
	focus := func(row int) string {
		return fmt.Sprintf(`document.activeElement === document.querySelectorAll("tbody tr a")[%d]`, row)
	}
	hit(t, tab, "j")
	awaitTrue(t, tab, `document.activeElement.closest("tr") === document.querySelector("tbody tr:first-child")`)
	hit(t, tab, "j")
	awaitTrue(t, tab, `document.activeElement.closest("tr") === document.querySelector("tbody tr:nth-child(2)")`)
	hit(t, tab, "k")
	awaitTrue(t, tab, focus(0))
	first := eval[string](t, tab, `document.activeElement.getAttribute("href")`)
	hit(t, tab, "/")
	awaitTrue(t, tab, `document.activeElement.name === "filter"`)
	hit(t, tab, "p") // typed into the field, and no pause
	if got := eval[string](t, tab, `document.activeElement.value + document.querySelector("#conn").dataset.state`); got != "plive" {
		t.Errorf("p in a field: %q", got)
	}
	eval[bool](t, tab, `(document.activeElement.blur(), true)`)
	hit(t, tab, "j")
	awaitTrue(t, tab, focus(0))
	hit(t, tab, "Enter")
	awaitTrue(t, tab, fmt.Sprintf(`location.pathname === %q && !!document.querySelector("main h1")`, first))
	hit(t, tab, "/") // a page without a field
	awaitTrue(t, tab, `location.pathname === "/crons" && document.activeElement.name === "filter"`)
}

// checkTheme wants light and dark to be chosen by key and by button, and kept.
func checkTheme(t *testing.T, n *node) {
	t.Helper()
	tab := newTab(t)
	is := func(theme string) {
		t.Helper()
		awaitTrue(t, tab, fmt.Sprintf(isColoured, theme))
	}
	do(t, tab, browser.Scheme("dark"))
	open(t, tab, n.url("/crons"))
	is("dark")
	do(t, tab, browser.Scheme("light"))
	is("light")
	hit(t, tab, "t")
	is("dark")
	open(t, tab, n.url("/jobs"))
	is("dark")
	press(t, tab, "#theme")
	is("light")
}

// checkPause wants a page that is paused, by key and by button, to stay as it is, and
// to say so.
func checkPause(t *testing.T, n *node) {
	t.Helper()
	tab := newTab(t)
	do(t, tab, chromedp.Navigate(n.url("/")), live())
	const (
		says = `document.querySelector("#conn").dataset.state + " " + document.querySelector("#conn").getAttribute("aria-pressed") + " " + document.querySelector("#conn-text").textContent`
		seen = `document.querySelector("#pulse").innerHTML + document.querySelector("main").innerHTML`
	)
	for _, toggle := range []func(){
		func() { hit(t, tab, "p") },
		func() { press(t, tab, "#conn") },
	} {
		toggle()
		awaitTrue(t, tab, says+` === "paused true Paused"`)
		before, newest := eval[string](t, tab, seen), lastJob(n)
		nodes.Eventually(t, waitTimeout, "newer jobs have run", func() bool { return lastJob(n) > newest+2 })
		if after := eval[string](t, tab, seen); after != before {
			t.Errorf("the paused page has changed:\n%s", cmp.Diff(before, after))
		}
		toggle()
		awaitTrue(t, tab, says+` === "live false Live"`)
		awaitTrue(t, tab, fmt.Sprintf(`+document.querySelector("#jobs tbody tr").id.replace("job-", "") > %d`, newest))
	}
}
