package browser_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
)

// checkTime narrows the time of drawings by dragging, and by the form without scripts.
func checkTime(t *testing.T, n *node) {
	t.Helper()
	tab := newTab(t)
	for path, drawing := range map[string]string{"/leaders?span=1h": ".lane-svg", "/leaders?span=6h": ".plot-svg, .lane-svg"} {
		do(t, tab, chromedp.Navigate(n.url(path)), live())
		eval[bool](t, tab, fmt.Sprintf(`(document.querySelector(%q).scrollIntoView({block: "center"}), true)`, drawing))
		box := eval[[]float64](t, tab, fmt.Sprintf(`(() => { const b = document.querySelector(%q).getBoundingClientRect(); return [b.left, b.top + b.height / 2, b.width]; })()`, drawing))
		width := eval[float64](t, tab, fmt.Sprintf(`(() => { const d = document.querySelector(%q).closest("[data-from]").dataset; window.began = +d.from; return d.to - d.from; })()`, drawing))
		began := eval[float64](t, tab, `window.began`)
		mouse(t, tab, input.DispatchMouseEventTypeMousePressed, box[0]+.25*box[2], box[1])
		mouse(t, tab, input.DispatchMouseEventTypeMouseMoved, box[0]+.4*box[2], box[1])
		mouse(t, tab, input.DispatchMouseEventTypeMouseMoved, box[0]+.5*box[2], box[1])
		if !eval[bool](t, tab, `!!document.querySelector(".drag")`) {
			t.Errorf("%s does not show what is dragged", path)
		}
		mouse(t, tab, input.DispatchMouseEventTypeMouseReleased, box[0]+.5*box[2], box[1])
		awaitTrue(t, tab, `new URLSearchParams(location.search).has("from") && !!document.querySelector(".range[open]")`)
		if got := eval[bool](t, tab, fmt.Sprintf(`(() => {
			const at = new URLSearchParams(location.search), near = (text, place) => Math.abs(Date.parse(text) - (%f + place * %f)) < .02 * %[2]f;
			return near(at.get("from"), .25) && near(at.get("to"), .5);
		})()`, began, width)); !got {
			t.Errorf("%s: dragging leads to %s", path, eval[string](t, tab, `location.search`))
		}
	}
	if own := eval[string](t, tab, `Intl.DateTimeFormat().resolvedOptions().timeZone`); own != "UTC" {
		press(t, tab, "[data-own]")
		awaitTrue(t, tab, fmt.Sprintf(`new URLSearchParams(location.search).get("zone") === %q && document.querySelector(".range-form").textContent.includes(%[1]q)`, own))
	}

	plain := newPlainTab(t)
	for _, path := range []string{"/leaders?span=1h", "/charts?span=6h", "/jobs?kind=order", "/crons/pulse"} {
		open(t, plain, n.url(path))
		do(t, plain, chromedp.Click(chromedp.CSS(".range summary")))
		eval[bool](t, plain, `(() => {
			const form = document.querySelector(".range-form");
			form.elements.from.value = "2026-01-01T10:00";
			form.elements.to.value = "2026-01-01T12:30:15";
			form.querySelector("button").click();
			return true;
		})()`)
		awaitTrue(t, plain, `location.search.includes("from=2026-01-01T10%3A00") && document.querySelector(".range summary")?.textContent.startsWith("2026-01-01 10:00 to 12:30:15")`)
	}
	open(t, plain, n.url("/leaders"))
	do(t, plain, chromedp.SetValue(chromedp.CSS("#led-at [name=at]"), "2026-01-01T10:00"))
	press(t, plain, "#led-at button")
	awaitTrue(t, plain, `[...document.querySelectorAll("#led-at tbody tr")].length > 0 && document.querySelector("#led-at").textContent.includes("2026-01-01 10:00:00 UTC")`)
}

// mouse moves, presses or releases the first button of a mouse.
func mouse(t *testing.T, tab context.Context, kind input.DispatchMouseEventType, x, y float64) { //nolint:revive // the test comes first
	t.Helper()
	params := input.DispatchMouseEventParams{Type: kind, X: x, Y: y, Button: input.MouseButtonLeft, ClickCount: 1, PointerType: input.DispatchMouseEventPointerTypeMouse}
	if kind == input.DispatchMouseEventTypeMouseMoved {
		params.ClickCount, params.Buttons = 0, 1
	}
	if _, err := chromedp.Call(tab, input.DispatchMouseEvent, params); err != nil {
		t.Fatal(err)
	}
}
