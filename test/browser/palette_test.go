package browser_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"

	"github.com/forge-scheduler/forge/test/browser"
)

const (
	// isOpen says whether the palette is there and has the focus in its field.
	isOpen = `document.querySelector("#palette").open && document.activeElement.id === "palette-field"`
	// isChosen says whether the option at a place is the one that a screen reader speaks.
	isChosen = `(() => {
		const all = [...document.querySelectorAll("#palette [role=option]")];
		const at = (%d + all.length) %% all.length;
		return all.length > 0 && all.every((option, i) => (option.getAttribute("aria-selected") === "true") === (i === at)) &&
			document.activeElement.getAttribute("aria-activedescendant") === all[at].id;
	})()`
)

// ctrlK presses the keys of the palette.
func ctrlK(t *testing.T, tab context.Context) { //nolint:revive // the test comes first
	t.Helper()
	const ctrl = 2
	for _, kind := range []input.DispatchKeyEventType{input.DispatchKeyEventTypeRawKeyDown, input.DispatchKeyEventTypeKeyUp} {
		if _, err := chromedp.Call(tab, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: kind, Key: "k", Code: "KeyK", Modifiers: ctrl, WindowsVirtualKeyCode: 'K'}); err != nil {
			t.Fatal(err)
		}
	}
}

// checkPalette opens the palette by key and by pointer, moves in it by keys alone, and goes to
// what it finds. Nothing in it acts.
func checkPalette(t *testing.T, n *node) {
	t.Helper()
	tab := newTab(t)
	do(t, tab, chromedp.Navigate(n.url("/jobs")), live())
	ctrlK(t, tab)
	awaitTrue(t, tab, isOpen)
	awaitTrue(t, tab, fmt.Sprintf(isChosen, 0))
	do(t, tab, chromedp.Evaluate[chromedp.Void](axe))
	for _, scheme := range []string{"light", "dark"} {
		do(t, tab, browser.Scheme(scheme))
		awaitTrue(t, tab, fmt.Sprintf(isColoured, scheme))
		for _, v := range violations(t, tab, everyRule) {
			t.Errorf("the open palette, %s: %s (%s)\n%+v", scheme, v.Help, v.ID, v.Nodes)
		}
		takePicture(t, tab, "palette-desktop-"+scheme, desktop)
	}
	for _, step := range []struct {
		key string
		at  int
	}{{"ArrowDown", 1}, {"ArrowDown", 2}, {"ArrowUp", 1}, {"ArrowUp", 0}, {"ArrowUp", -1}, {"ArrowDown", 0}} {
		stroke(t, tab, step.key)
		awaitTrue(t, tab, fmt.Sprintf(isChosen, step.at))
	}
	for range 3 { // nothing else in the dialog takes the focus, and nothing outside of it
		stroke(t, tab, "Tab")
		if !eval[bool](t, tab, `document.activeElement === document.body || !!document.activeElement.closest("#palette")`) {
			t.Error("the focus left the palette")
		}
	}
	stroke(t, tab, "Escape")
	awaitTrue(t, tab, `!document.querySelector("#palette").open && !document.querySelector("#palette [role=option]")`)
	press(t, tab, "#find")
	awaitTrue(t, tab, isOpen)
	do(t, tab, chromedp.KeyEvent("pause "+seldom))
	stroke(t, tab, "Enter")                                                                                                       // at once: it waits for the results
	awaitTrue(t, tab, `location.pathname === "/crons/`+seldom+`" && document.activeElement?.closest("form")?.id === "act-pause"`) // not paused, but asked
	do(t, tab, live())
	ctrlK(t, tab)
	awaitTrue(t, tab, isOpen)
	do(t, tab, chromedp.KeyEvent("g"), chromedp.KeyEvent("j"), chromedp.KeyEvent("?")) // typed
	awaitTrue(t, tab, `document.activeElement.value === "gj?" && !document.querySelector("#keys").open && location.pathname === "/crons/`+seldom+`"`)
	checkPaletteOnPhone(t, n)
}

// checkPaletteOnPhone wants the palette to fit the smallest screen, with the longest names.
func checkPaletteOnPhone(t *testing.T, n *node) {
	t.Helper()
	tab := newTab(t)
	do(t, tab, chromedp.EmulateViewport(small.width, small.height, small.emulate...), chromedp.Navigate(n.url("/")), live())
	press(t, tab, "#find")
	awaitTrue(t, tab, isOpen)
	do(t, tab, chromedp.KeyEvent("a"))
	awaitTrue(t, tab, `document.querySelectorAll("#palette [role=option]").length > 3`)
	wantFits(t, tab, "the palette on a small screen", small.width)
	if got := eval[float64](t, tab, `Math.max(...[...document.querySelectorAll("#palette *")].map((el) => el.getBoundingClientRect().right))`); got > float64(small.width) {
		t.Errorf("the palette reaches %v pixels on a screen of %d", got, small.width)
	}
}

// stroke presses a key that types nothing.
func stroke(t *testing.T, tab context.Context, key string) { //nolint:revive // the test comes first
	t.Helper()
	codes := map[string]int64{"ArrowDown": 40, "ArrowUp": 38, "Escape": 27, "Enter": 13, "Tab": 9}
	for _, kind := range []input.DispatchKeyEventType{input.DispatchKeyEventTypeRawKeyDown, input.DispatchKeyEventTypeKeyUp} {
		if _, err := chromedp.Call(tab, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: kind, Key: key, Code: key, WindowsVirtualKeyCode: codes[key]}); err != nil {
			t.Fatal(err)
		}
	}
}
