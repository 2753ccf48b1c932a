package main

import (
	"context"
	"fmt"
	"time"

	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/forge-scheduler/forge/bench/internal/rig"
	"github.com/forge-scheduler/forge/test/browser"
)

// bare is a line of text, with which the browser makes its process for the node.
const bare = "/healthz"

// A driven tab takes up to twice as long to its first paint as one that nobody looks at.
// So it opens another one, has that go to the page as somebody would who sits before it,
// and asks it only when it should be over.
const (
	alone     = 400 * time.Millisecond
	openOther = `window.other = open(%q); undefined`
	goOther   = `other.location.href = %q; undefined`
	// painted is in milliseconds since the page was asked for; 0 until then.
	painted    = `other.location.pathname + other.location.search == %q && other.performance.getEntriesByName("first-contentful-paint")[0]?.startTime || 0`
	closeOther = `other.close()`
)

// show has an empty profile show the page twice, in a process that the browser has for
// the node already.
func (p *page) show(chromium *browser.Browser, node string) error {
	tab, closeTab := chromium.NewTab()
	defer closeTab()
	tab, cancel := context.WithTimeout(tab, time.Minute)
	defer cancel()
	if err := chromedp.Do(tab, chromedp.Navigate(node+bare)); err != nil {
		return fmt.Errorf("show %s: %w", bare, err)
	}
	first, err := firstPaint(tab, p.Path)
	if err != nil {
		return err
	}
	again, err := firstPaint(tab, p.Path)
	if err != nil {
		return err
	}
	p.Paints, p.Revisits = append(p.Paints, first), append(p.Revisits, again)
	return nil
}

// firstPaint has a tab that nobody drives go to a page of the node, and returns how long
// that took to its first content.
func firstPaint(tab context.Context, path string) (time.Duration, error) {
	if err := tell(tab, fmt.Sprintf(openOther, bare)); err != nil {
		return 0, fmt.Errorf("open %s: %w", bare, err)
	}
	if err := tell(tab, fmt.Sprintf(goOther, path)); err != nil {
		return 0, fmt.Errorf("go to %s: %w", path, err)
	}
	for {
		at, err := chromedp.Run(tab, chromedp.Evaluate[float64](fmt.Sprintf(painted, path)))
		if err != nil {
			return 0, fmt.Errorf("ask for the first paint of %s: %w", path, err)
		}
		if at > 0 {
			return time.Duration(at * float64(time.Millisecond)), tell(tab, closeOther)
		}
		if err := rig.SleepUntil(tab, time.Now().Add(alone)); err != nil {
			return 0, fmt.Errorf("wait for the first paint of %s: %w", path, err)
		}
	}
}

// tell has the tab do something, as if its reader had, and leaves it alone.
func tell(tab context.Context, script string) error {
	asked := func(p *runtime.EvaluateParams) { p.UserGesture = new(true) } // else it opens none
	if err := chromedp.Do(tab, chromedp.Evaluate[chromedp.Void](script, asked)); err != nil {
		return err
	}
	return rig.SleepUntil(tab, time.Now().Add(alone))
}
