package browser_test

import (
	"context"
	"testing"

	"github.com/chromedp/chromedp"
)

// mostClicks is what a task of an operator may take, from the overview on. What is
// typed, and the key that ends it, does not count.
const mostClicks = 4

// tasks are what operators come to the pages for. Each is a test that begins at the
// overview and moves on by clicks alone.
func tasks() map[string]func(*task) {
	return map[string]func(*task){
		"pause a cron and undo it":               pauseAndUndo,
		"who led yesterday, and what a gap cost": whatAGapCost,
	}
}

// task is one on its way through the pages.
type task struct {
	*testing.T

	node   *node
	tab    context.Context //nolint:containedctx // the tab of chromedp is a context
	clicks int
}

// checkTasks does each of the tasks, side by side.
func checkTasks(t *testing.T, n *node) {
	t.Helper()
	for name, steps := range tasks() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := &task{T: t, node: n, tab: newTab(t)}
			open(t, k.tab, n.url("/"))
			steps(k)
			if k.clicks > mostClicks {
				t.Errorf("it took %d clicks, want at most %d", k.clicks, mostClicks)
			}
		})
	}
}

// click presses what is visible at a selector.
func (k *task) click(selector string) {
	k.Helper()
	k.clicks++
	press(k.T, k.tab, selector)
}

// sees waits until a selector is visible.
func (k *task) sees(selector string) {
	k.Helper()
	do(k.T, k.tab, chromedp.WaitVisible(chromedp.CSS(selector)))
}

func pauseAndUndo(k *task) {
	k.click(`nav a[href="/crons"]`)
	k.click(`a[href="/crons/` + seldom + `"]`)
	k.click("#act-pause button")
	k.sees("#act-resume button")
	if got := said(k.T, k.tab); got != "It is paused." {
		k.Errorf("after Pause: %s", got)
	}
	k.click("#act-resume button")
	k.sees("#act-pause button")
	if got := said(k.T, k.tab); got != "It is resumed." {
		k.Errorf("after the undo: %s", got)
	}
}
