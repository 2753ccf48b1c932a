package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
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

// How long a tab rests on a page before it goes on, and how long it is left alone then.
const (
	rest  = 200 * time.Millisecond
	alone = time.Second
)

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
	for _, visits := range []*[]time.Duration{&p.paints, &p.revisits} {
		at, err := visit(tab, p.path)
		if err != nil {
			return err
		}
		*visits = append(*visits, at)
		if _, err := visit(tab, bare); err != nil {
			return err
		}
	}
	return nil
}

// release puts away the tools with which a browser is driven: they look at each element
// and request, and a page takes twice the time to its first paint with them.
func release(tab context.Context) error {
	tools := []cdp.Command[cdp.Empty, cdp.Empty]{css.Disable, dom.Disable, network.Disable, log.Disable, pagetools.Disable, runtime.Disable}
	for _, disable := range tools {
		if _, err := chromedp.Call(tab, disable, cdp.Empty{}); err != nil {
			return fmt.Errorf("%s: %w", disable.Method, err)
		}
	}
	return nil
}

// visit has a released tab go to another page of its node by itself, leaves it alone
// meanwhile, and returns when the first content was painted, since the page was asked for.
func visit(tab context.Context, path string) (time.Duration, error) {
	leave := fmt.Sprintf("void setTimeout(() => { location = %s }, %d)", strconv.Quote(path), rest.Milliseconds())
	if _, err := evaluate(tab, leave); err != nil {
		return 0, fmt.Errorf("leave for %s: %w", path, err)
	}
	painted := fmt.Sprintf(`(location.pathname + location.search === %s && performance.getEntriesByName("first-contentful-paint")[0]?.startTime) || 0`, strconv.Quote(path))
	for {
		if err := rig.SleepUntil(tab, time.Now().Add(alone)); err != nil {
			return 0, fmt.Errorf("wait for the first paint of %s: %w", path, err)
		}
		at, err := evaluate(tab, painted)
		if err != nil {
			return 0, fmt.Errorf("ask for the first paint of %s: %w", path, err)
		}
		if at > 0 {
			return time.Duration(at * float64(time.Millisecond)), nil
		}
	}
}

// evaluate returns the number that a script comes to, 0 without one.
func evaluate(tab context.Context, script string) (value float64, err error) {
	answer, err := chromedp.Call(tab, runtime.Evaluate, runtime.EvaluateParams{Expression: script, ReturnByValue: new(true)})
	if err != nil {
		return 0, err
	}
	if answer.ExceptionDetails != nil {
		return 0, fmt.Errorf("%s: %s", script, answer.ExceptionDetails.Text)
	}
	if len(answer.Result.Value) > 0 {
		err = json.Unmarshal(answer.Result.Value, &value)
	}
	return value, err
}
