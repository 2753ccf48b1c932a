package browser_test

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"image/png"
	"os"
	"path/filepath"
	"testing"

	cdpage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/forge-scheduler/forge/test/browser"
)

// pictures is where pictures of every page are kept, to be looked at.
const pictures = "../../build/screenshots"

// axe looks for what keeps people from reading and using a page.
//
//go:embed testdata/axe-core/axe.min.js
var axe string

// violation is a rule of axe that a page breaks, and where.
type violation struct {
	ID, Help string
	Nodes    []struct{ HTML, FailureSummary string }
}

// screen is where a page is looked at.
type screen struct {
	name          string
	width, height int64
	emulate       []chromedp.EmulateViewportOption
}

var (
	desktop = screen{"desktop", 1280, 900, nil}
	phone   = screen{"phone", 375, 812, []chromedp.EmulateViewportOption{chromedp.EmulateMobile}}
	small   = screen{"small", 320, 568, []chromedp.EmulateViewportOption{chromedp.EmulateMobile}}
	wide    = screen{"wide", 3840, 2160, nil}
)

// look is how a page is shown, and what axe is asked for.
type look struct {
	screen

	scheme, rules string
}

// looks are each page's, in the order in which a tab changes from one to the next.
// All rules are asked once on each screen; colours alone differ then.
var looks = []look{
	{desktop, "light", everyRule},
	{desktop, "dark", ofColours},
	{phone, "dark", everyRule},
	{phone, "light", ofColours},
}

// What axe is asked for.
const (
	everyRule = `{}`
	ofColours = `{runOnly: ["color-contrast", "link-in-text-block"]}`
)

// checkLooks wants pages in which axe finds nothing and that do not scroll sideways,
// in light and in dark, on a desktop and on a phone. It keeps a picture of each.
func checkLooks(t *testing.T, n *node, pages []page) {
	t.Helper()
	tab := newTab(t)
	for _, p := range pages {
		for i, look := range looks {
			do(t, tab, chromedp.EmulateViewport(look.width, look.height, look.emulate...), browser.Scheme(look.scheme))
			if i == 0 {
				open(t, tab, n.url(p.path))
				do(t, tab, chromedp.Evaluate[chromedp.Void](axe))
			}
			if i == 0 && p.path == docs { // whose rows are alike, and make axe take minutes
				wantFits(t, tab, p.name, look.width)
				do(t, tab, chromedp.Evaluate[chromedp.Void](`for (const row of document.querySelectorAll("main tbody tr:nth-child(n + 4)")) row.remove()`))
			}
			checkLook(t, tab, p, look)
		}
		for _, s := range []screen{small, wide} {
			do(t, tab, chromedp.EmulateViewport(s.width, s.height, s.emulate...))
			wantFits(t, tab, p.name+", "+s.name, s.width)
		}
		if eval[bool](t, tab, `document.title === "run" || !!document.querySelector("main :is(b, s, img, script)[onerror], main b > b, main script, main s")`) {
			t.Errorf("%s has elements that a job wrote", p.name)
		}
	}
}

// checkLook checks the page in a tab as it is shown, and keeps a picture of it.
func checkLook(t *testing.T, tab context.Context, p page, l look) { //nolint:revive // the test comes first
	t.Helper()
	awaitTrue(t, tab, fmt.Sprintf(isColoured, l.scheme))
	where := fmt.Sprintf("%s (%s), %s, %s", p.name, p.path, l.name, l.scheme)
	for _, v := range violations(t, tab, l.rules) {
		for _, at := range v.Nodes {
			t.Errorf("%s: %s (%s)\n%s\n%s", where, v.Help, v.ID, at.HTML, at.FailureSummary)
		}
	}
	wantFits(t, tab, where, l.width)
	takePicture(t, tab, p.name+"-"+l.name+"-"+l.scheme, l.screen)
}

// axed is the tab, with axe in its page.
func axed(t *testing.T, tab context.Context) context.Context { //nolint:revive // the test comes first
	t.Helper()
	do(t, tab, chromedp.Evaluate[chromedp.Void](axe))
	return tab
}

// isColoured says whether the page is light or dark, by what is behind everything.
const isColoured = `(/\d+/.exec(getComputedStyle(document.body).backgroundColor)[0] < 128 ? "dark" : "light") === %q`

// wantFits wants a page that does not scroll sideways.
func wantFits(t *testing.T, tab context.Context, where string, width int64) { //nolint:revive // the test comes first
	t.Helper()
	if got := eval[int64](t, tab, `document.documentElement.scrollWidth`); got != width {
		t.Errorf("%s: %d pixels wide on a screen of %d; too far right: %s", where, got, width, eval[string](t, tab, tooWide))
	}
}

// checkTenures wants the overview's tenures to fit beside the nodes on common laptops, even
// with the longest words.
func checkTenures(t *testing.T, n *node) {
	t.Helper()
	tab := newTab(t)
	open(t, tab, n.url("/"))
	for _, width := range []int64{1360, 1240} {
		do(t, tab, chromedp.EmulateViewport(width, desktop.height))
		if hidden := eval[int](t, tab, hiddenTenures); hidden > 0 {
			t.Errorf("%d pixels of the tenures are hidden on a screen of %d", hidden, width)
		}
	}
}

// hiddenTenures is how many pixels of the table of tenures are out of view.
const hiddenTenures = `(() => {
	for (const [cell, words] of [["Role", "Metrics aggregator"], ["Began", "23h 59m ago"], ["Lasted", "23h 59m"], ["Gap before", "59m 59s"]])
		for (const td of document.querySelectorAll('.tenures td[data-label="' + cell + '"]')) td.textContent = words;
	for (const word of document.querySelectorAll(".tenures .word")) word.textContent = "stepped down (drill)";
	const box = document.querySelector(".tenures").parentElement;
	return box.scrollWidth - box.clientWidth;
})()`

// tooWide names what reaches out of the screen.
const tooWide = `[...document.querySelectorAll("body *")].filter((el) => el.getBoundingClientRect().right > innerWidth + 1)
	.slice(-3).map((el) => el.outerHTML.slice(0, 160)).join("\n")`

// violations are what axe finds on the page as it is.
func violations(t *testing.T, tab context.Context, rules string) (found []violation) { //nolint:revive // the test comes first
	t.Helper()
	do(t, tab, chromedp.Evaluate[chromedp.Void](`window.found = ""; axe.run(document, {resultTypes: ["violations"], preload: false, iframes: false, ...`+rules+`}).then(
		(all) => { window.found = JSON.stringify(all.violations); }, (error) => { window.found = JSON.stringify([{ID: "axe", Help: String(error), Nodes: [{}]}]); })`))
	text, err := chromedp.Run(tab, chromedp.Poll[string](`window.found`))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(text), &found); err != nil {
		t.Fatal(err)
	}
	return found
}

// takePicture keeps the page as it looks, from its beginning to its end.
func takePicture(t *testing.T, tab context.Context, name string, s screen) { //nolint:revive // the test comes first
	t.Helper()
	const most = 8000 // no reader looks further
	height := min(max(eval[float64](t, tab, `document.documentElement.scrollHeight`), float64(s.height)), most)
	yes := true
	taken, err := chromedp.Call(tab, cdpage.CaptureScreenshot, cdpage.CaptureScreenshotParams{
		CaptureBeyondViewport: &yes, OptimizeForSpeed: &yes, Clip: &cdpage.Viewport{Width: float64(s.width), Height: height, Scale: 1},
	})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	seen, err := png.DecodeConfig(bytes.NewReader(taken.Data))
	if err != nil || seen.Width != int(s.width) || seen.Height < int(s.height) {
		t.Errorf("%s: %d x %d, %v", name, seen.Width, seen.Height, err)
	}
	if err := errors.Join(os.MkdirAll(pictures, 0o750), os.WriteFile(filepath.Join(pictures, name+".png"), taken.Data, 0o600)); err != nil {
		t.Fatal(err)
	}
}
