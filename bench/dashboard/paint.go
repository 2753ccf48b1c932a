package main

import (
	"context"
	"fmt"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/css"
	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	pagetools "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/forge-scheduler/forge/bench/internal/rig"
	"github.com/forge-scheduler/forge/test/browser"
)

// bare is a line of text, with which the browser makes its process for the node.
const bare = "/healthz"

// alone is for how long nobody looks at a tab that goes to another page.
const alone = time.Second

// leave has a tab go to another page by itself, once the command for it is over.
const leave = `window.left = true; void setTimeout(() => { location = %q }, 200)`

// painted is when the first content was painted, in milliseconds since the page was
// asked for: 0 until then, and on the page that is left.
const painted = `(!window.left && performance.getEntriesByName("first-contentful-paint")[0]?.startTime) || 0`

// show has an empty profile show the page twice, in a tab in which the browser has its
// process for the node already.
func (p *page) show(chromium *browser.Browser, node string) error {
	tab, closeTab := chromium.NewTab()
	defer closeTab()
	tab, cancel := context.WithTimeout(tab, time.Minute)
	defer cancel()
	if err := chromedp.Do(tab, chromedp.Navigate(node+bare)); err != nil {
		return fmt.Errorf("show %s: %w", bare, err)
	}
	if err := release(tab); err != nil {
		return err
	}
	first, err := firstPaint(tab, p.path)
	if err != nil {
		return err
	}
	if _, err = firstPaint(tab, bare); err != nil {
		return err
	}
	again, err := firstPaint(tab, p.path)
	if err != nil {
		return err
	}
	p.paints, p.revisits = append(p.paints, first), append(p.revisits, again)
	return nil
}

// release puts away the tools with which a browser is driven: they look at each element
// and request, and a page takes up to twice the time to its first paint with them.
func release(tab context.Context) error {
	tools := []cdp.Command[cdp.Empty, cdp.Empty]{css.Disable, dom.Disable, network.Disable, log.Disable, pagetools.Disable, runtime.Disable}
	for _, disable := range tools {
		if _, err := chromedp.Call(tab, disable, cdp.Empty{}); err != nil {
			return fmt.Errorf("%s: %w", disable.Method, err)
		}
	}
	return nil
}

// firstPaint has a released tab go to another page of its node, and returns how long
// that took to its first content.
func firstPaint(tab context.Context, path string) (time.Duration, error) {
	if err := chromedp.Do(tab, chromedp.Evaluate[chromedp.Void](fmt.Sprintf(leave, path))); err != nil {
		return 0, fmt.Errorf("leave for %s: %w", path, err)
	}
	for {
		if err := rig.SleepUntil(tab, time.Now().Add(alone)); err != nil {
			return 0, fmt.Errorf("wait for the first paint of %s: %w", path, err)
		}
		at, err := chromedp.Run(tab, chromedp.Evaluate[float64](painted))
		if err != nil {
			return 0, fmt.Errorf("ask for the first paint of %s: %w", path, err)
		}
		if at > 0 {
			return time.Duration(at * float64(time.Millisecond)), nil
		}
	}
}
