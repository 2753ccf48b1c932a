package browser_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
)

// boxes are the texts of the crosshair, one for each drawing.
const boxes = `[...document.querySelectorAll(".cross-box")].map((box) => [...box.children].map((line) => line.textContent).join("|"))`

// places are where everything that is drawn is on the page.
const places = `JSON.stringify([document.documentElement.scrollHeight, ...[...document.querySelectorAll("main *:not(title)")].map((el) => el.getBoundingClientRect().top)])`

// pastHour is the address of a page in the hour for which addHistory has metrics.
func pastHour(n *node, page string) string {
	return n.url(page + "?from=" + noon().Format(time.RFC3339) + "&to=" + noon().Add(time.Hour).Format(time.RFC3339))
}

// checkCrosshair reads the charts of a page at an instant, by mouse, keyboard and touch.
func checkCrosshair(t *testing.T, n *node) {
	t.Helper()
	tab := newTab(t)
	do(t, tab, chromedp.Navigate(pastHour(n, "/charts")+"&zone=Asia/Kolkata"), live())
	box := placeOf(t, tab, "#chart-work .chart-svg")
	before := eval[string](t, tab, places)
	point(t, tab, box[0]+.29*box[2], box[1])
	day := noon().Format(time.DateOnly)
	wantBoxes(t, tab, day+" 17:45 IST|started 10 a minute|completed 0 a minute|failed 0 a minute", day+" 17:45 IST|p50 41 ms|p95 212 ms|p99 242 ms")
	if lines := eval[int](t, tab, `new Set([...document.querySelectorAll(".cross-line")].map((line) => line.style.top + line.style.left)).size`); lines != 2 {
		t.Errorf("the charts have %d lines", lines)
	}
	if after := eval[string](t, tab, places); after != before {
		t.Errorf("the crosshair moves the page")
	}
	point(t, tab, box[0]+.6*box[2], box[1])
	wantBoxes(t, tab, day+" 18:05 IST|no data", day+" 18:05 IST|no data")
	for _, v := range violations(t, axed(t, tab), everyRule) {
		t.Errorf("with a crosshair: %s (%s)", v.Help, v.ID)
	}
	takePicture(t, tab, "crosshair-desktop", desktop)
	point(t, tab, box[0]+.5*box[2], box[1]-400)
	wantBoxes(t, tab)

	eval[bool](t, tab, `(document.querySelector("#chart-wait .chart").focus(), true)`)
	hit(t, tab, "End")
	hit(t, tab, "ArrowLeft")
	wantBoxes(t, tab, day+" 18:20 IST|started 10 a minute|completed 0 a minute|failed 0 a minute", day+" 18:20 IST|p50 41 ms|p95 212 ms|p99 242 ms")
	if said := eval[string](t, tab, `[...document.querySelectorAll("body > [role=status]")].map((el) => el.textContent).join()`); !strings.Contains(said, "18:20 IST, p50 41 ms") {
		t.Errorf("a reader of the screen hears %q", said)
	}
	hit(t, tab, "Escape")
	wantBoxes(t, tab)
	checkLanes(t, n, tab)
	checkTouch(t, n)
}

// checkLanes reads who led at an instant.
func checkLanes(t *testing.T, n *node, tab context.Context) { //nolint:revive // the test comes first
	t.Helper()
	do(t, tab, chromedp.Navigate(pastHour(n, "/leaders")), live())
	box := placeOf(t, tab, ".lane-svg")
	point(t, tab, box[0]+.5*box[2], box[1])
	if got := eval[[]string](t, tab, boxes); len(got) == 0 || !strings.Contains(got[0], noon().Format(time.DateOnly)+" 12:") || !strings.Contains(got[0], "UTC|Scheduler: later, term 2") {
		t.Errorf("the lanes say %q", got)
	}
}

// checkTouch reads a chart on a phone.
func checkTouch(t *testing.T, n *node) {
	t.Helper()
	tab := newTab(t)
	do(t, tab, chromedp.EmulateViewport(phone.width, phone.height, append(phone.emulate, chromedp.EmulateTouch)...), chromedp.Navigate(pastHour(n, "/charts")), live())
	box := placeOf(t, tab, "#chart-work .chart-svg")
	for _, kind := range []input.DispatchTouchEventType{input.DispatchTouchEventTypeTouchStart, input.DispatchTouchEventTypeTouchEnd} {
		params := input.DispatchTouchEventParams{Type: kind, TouchPoints: []*input.TouchPoint{}}
		if kind == input.DispatchTouchEventTypeTouchStart {
			params.TouchPoints = append(params.TouchPoints, &input.TouchPoint{X: box[0] + .98*box[2], Y: box[1]})
		}
		if _, err := chromedp.Call(tab, input.DispatchTouchEvent, params); err != nil {
			t.Fatal(err)
		}
	}
	day := noon().Format(time.DateOnly)
	wantBoxes(t, tab, day+" 12:55 UTC|started 10 a minute|completed 0 a minute|failed 0 a minute", day+" 12:55 UTC|p50 41 ms|p95 212 ms|p99 242 ms")
	wantFits(t, tab, "the crosshair on a phone", phone.width)
	takePicture(t, tab, "crosshair-phone", phone)
}

// placeOf scrolls to an element and returns its left edge, its middle and its width.
func placeOf(t *testing.T, tab context.Context, selector string) []float64 { //nolint:revive // the test comes first
	t.Helper()
	return eval[[]float64](t, tab, fmt.Sprintf(`(() => {
		document.querySelector(%q).scrollIntoView({block: "center"});
		const b = document.querySelector(%[1]q).getBoundingClientRect();
		return [b.left, b.top + b.height / 2, b.width];
	})()`, selector))
}

// wantBoxes waits until the crosshair says something.
func wantBoxes(t *testing.T, tab context.Context, want ...string) { //nolint:revive // the test comes first
	t.Helper()
	text, err := json.Marshal(append([]string{}, want...))
	if err != nil {
		t.Fatal(err)
	}
	awaitTrue(t, tab, fmt.Sprintf(`JSON.stringify(%s) === JSON.stringify(%s)`, boxes, text))
}
