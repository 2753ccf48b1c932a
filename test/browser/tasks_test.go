package browser_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
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
		"retry 20 of 120 dead letters":           retryTwentyOfMany,
		"find the slowest jobs of the last hour": slowestOfTheHour,
		"pause a cron and undo it":               pauseAndUndo,
		"who led yesterday, and what a gap cost": whatAGapCost,
		"why no run at 02:00":                    whyNoRun,
		"run with arguments":                     runWithArguments,
		"follow an output":                       followOutput,
		"silence an alert":                       silenceAnAlert,
		"the jobs of one node":                   jobsOfNode,
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

// sees waits until a selector is visible, in a whole page.
func (k *task) sees(selector string) {
	k.Helper()
	do(k.T, k.tab, chromedp.WaitVisible(chromedp.CSS(selector)))
	awaitTrue(k.T, k.tab, isWhole)
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

// whyNoRun asks about an instant at which the cron is not due, and about the tick before.
func whyNoRun(k *task) {
	k.click(`nav a[href="/crons"]`)
	k.click(`a[href="/crons/` + seldom + `"]`)
	k.sees("input[name=at]")
	do(k.T, k.tab, chromedp.SetValue(chromedp.CSS("input[name=at]"), "2026-11-20T02:00"))
	k.click(`form[action$="/` + seldom + `#h-ticks"] button`)
	k.reads(".chosen-why", `The tick 2026-11-20T02:00:00Z of seldom is not due by the schedule "@yearly" in UTC`)
	k.click(`.chosen-why a[href*="at=2026-01-01T00%3A00%3A00Z"]`)
	k.reads(".chosen-why", "The tick 2026-01-01T00:00:00Z of seldom was never due: the cron was first seen at ")
}

// reads waits until an element begins with a text.
func (k *task) reads(selector, want string) {
	k.Helper()
	k.sees(selector)
	awaitTrue(k.T, k.tab, `document.querySelector(`+strconv.Quote(selector)+`)?.textContent.startsWith(`+strconv.Quote(want)+`)`)
}

func runWithArguments(k *task) {
	k.click(`nav a[href="/crons"]`)
	k.click(`a[href="/crons/orders"]`)
	k.click(`a[href="/crons/orders/trigger"]`)
	k.sees(`[name="arg.customer"]`)
	if got := eval[string](k.T, k.tab, `document.querySelector('[name="arg.customer"]').value`); got != "Ada" {
		k.Errorf("the form has the customer %q, want the cron's", got)
	}
	do(k.T, k.tab, chromedp.SetValue(chromedp.CSS(`[name="arg.customer"]`), `Grace "<b>"`))
	k.click("#act-run button")
	if got := said(k.T, k.tab); !strings.HasPrefix(got, "It runs now, as job ") {
		k.Errorf("after Run: %s", got)
	}
	var made job
	path := eval[string](k.T, k.tab, `document.querySelector(".said a").getAttribute("href")`)
	if err := k.node.get("/api/v1"+path, &made); err != nil || fmt.Sprint(made.Args) != `map[count:1 customer:Grace "<b>"]` {
		k.Errorf("%s has %v (%v)", path, made.Args, err)
	}
}

// followOutput opens a job that writes a line every fifth of a second, and stays at its end.
func followOutput(k *task) {
	id := k.node.enqueue(k.T, `{"kind": "talker"}`)
	defer k.node.post(k.T, fmt.Sprintf("/api/v1/jobs/%d/cancel", id), "{}")
	k.node.awaitJob(k.T, id, "running", func(j job) bool { return j.State == "running" })
	link := fmt.Sprintf(`a[href="/jobs/%d"]`, id)
	k.click(`nav a[href="/jobs"]`)
	k.click("main " + link)
	k.click(`a[href*="times=on"]`)
	const lines = `document.querySelectorAll("pre.output .at").length`
	awaitTrue(k.T, k.tab, lines+" > 300")
	before := eval[int](k.T, k.tab, lines)
	awaitTrue(k.T, k.tab, fmt.Sprintf("%s > %d", lines, before+3))
	awaitTrue(k.T, k.tab, `(() => { const e = document.querySelector("pre.output"); return e.scrollHeight - e.scrollTop - e.clientHeight < 24 })()`)
}

func silenceAnAlert(k *task) {
	k.click(`nav a[href="/alerts"]`)
	k.click(`#alert-calm a[href="/alerts/calm/silence"]`)
	k.click("#act-silence button")
	wantSaid(k.T, k.tab, "calm is silenced.")
	k.sees("#unsilence-calm button")
}

// jobsOfNode goes from the overview to a node, and to the list of all its jobs.
func jobsOfNode(k *task) {
	k.click(`#nodes a.node[href="/nodes/north"]`)
	k.reads("#h-running", "Running now")
	k.click(`a[href="/jobs?filter=node%3Anorth"]`)
	k.sees(`[name=filter][value="node:north"]`)
	const nodesOfRows = `new Set([...document.querySelectorAll('main td[data-label="Node"]')].map(e => e.textContent))`
	if got := eval[string](k.T, k.tab, `[...`+nodesOfRows+`].join()`); got != "north" {
		k.Errorf("the list has the jobs of %q", got)
	}
}
