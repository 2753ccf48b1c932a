package browser_test

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/forge-scheduler/forge/test/browser"
)

// state is a page after its reader has done something.
type state struct {
	page

	// act is the script that does it, want what holds after it.
	act, want string
}

const (
	openDetails = `for (const details of document.querySelectorAll("main details")) details.open = true`
	allOpen     = `document.querySelectorAll("main details").length > 0 && !document.querySelector("main details:not([open])")`
	selectAll   = `document.querySelector("[data-all]").click()`
	allSelected = `document.querySelectorAll("main tbody input:checked").length > 0`
	anyMain     = `!!document.querySelector("main h1")`
)

// lists are the addresses of the lists with a filter, and terms that match something there.
var lists = map[string]string{
	"/jobs": "kind:*", "/crons": "cron:*", "/queues": "queue:*", "/dead": "kind:*", "/nodes": "node:*",
	"/activity": "type:*", "/alerts": "alert:*", "/tokens": "token:*", "/config": "by:*",
}

// statesOf returns the states in which pages differ from what they are when they are opened.
func statesOf(n *node) (states []state) {
	add := func(name, path, act, want string) {
		states = append(states, state{page{"state-" + name, path}, act, want})
	}
	for _, list := range slices.Sorted(maps.Keys(lists)) {
		name := list[1:]
		add(name+"-fields", list+"?filter="+lists[list], openDetails, allOpen)
		add(name+"-rejected", list+"?filter=nokey:x", "", `!!document.querySelector(".lost [name=filter]")`)
	}
	add("jobs-empty", "/jobs?filter=kind:none&sort=slowest", openDetails, allOpen)
	add("configurations-oldest", "/config?sort=oldest", openDetails, allOpen)
	add("jobs-selected", "/jobs?state=discarded", selectAll, allSelected)
	add("crons-selected", "/crons", selectAll, allSelected)
	add("dead-selected", n.grave, selectAll, allSelected)
	add("time", "/charts?by=kind", openDetails, allOpen)
	add("time-fixed", "/charts?from=2026-01-01T00:00&to=2026-01-02T00:00&zone=Asia/Kolkata", "", anyMain)
	add("leadership-tables", "/leaders", openDetails, allOpen)
	add("queue-pause", "/queues/default", openDetails, allOpen)
	add("settings-entries", "/settings", openDetails, allOpen)
	add("keys", "/", `document.querySelector("#help").click()`, `document.querySelector("#keys").open`)
	add("notice", "/crons?did=pause&n=1&operation=x", "", `!!document.querySelector("[role=status].said, .alert.said")`)
	add("search-nothing", "/search?q="+url.QueryEscape("no such thing"), "", anyMain)
	add("no-cron", "/crons/no-such-cron", "", `!!document.querySelector(".lost")`)
	add("metrics-refused", "/charts?span=forever", "", `!!document.querySelector(".lost")`)
	add("job-found-nothing", fmt.Sprintf("/jobs/%d?find=nowhere", lastJob(n)), "", anyMain)
	return states
}

// checkStates checks each state as checkLooks does each page: on a desktop by every rule, and
// on a phone in the dark.
func checkStates(t *testing.T, n *node, states []state) {
	t.Helper()
	tab := newTab(t)
	for _, s := range states {
		do(t, tab, chromedp.EmulateViewport(desktop.width, desktop.height), browser.Scheme("light"))
		open(t, tab, n.url(s.path))
		do(t, axed(t, tab), chromedp.Evaluate[chromedp.Void](s.act))
		awaitTrue(t, tab, s.want)
		for _, look := range looks {
			do(t, tab, chromedp.EmulateViewport(look.width, look.height, look.emulate...), browser.Scheme(look.scheme))
			checkLook(t, tab, s.page, look)
		}
		do(t, tab, chromedp.EmulateViewport(small.width, small.height, small.emulate...))
		wantFits(t, tab, s.name+", "+small.name, small.width)
	}
}

// checkSelectionPlaces checks that the table does not move when scripts offer to select all
// rows, and that nothing of the selection touches the edge of the panel or the key above it.
func checkSelectionPlaces(t *testing.T, n *node) {
	t.Helper()
	const (
		head   = `document.querySelector("main thead tr").offsetHeight`
		inside = `(() => {
			const at = (selector) => document.querySelector(selector).getBoundingClientRect();
			const panel = at("main .panel:has(.picked)");
			return at(".picked .button").left - panel.left >= 10 && at("main table").top >= at("main .panel-head .key").bottom;
		})()`
	)
	plain, scripted := newPlainTab(t), newTab(t)
	open(t, plain, n.url("/crons"))
	open(t, scripted, n.url("/crons"))
	awaitTrue(t, scripted, `document.querySelector("[data-all]").checkVisibility({visibilityProperty: true})`)
	if before, after := eval[int](t, plain, head), eval[int](t, scripted, head); before != after {
		t.Errorf("the head of the crons is %d pixels high without scripts, and %d with them", before, after)
	}
	if !eval[bool](t, scripted, inside) {
		t.Error("the buttons of the selection touch the edge of the panel, or the table covers the key")
	}
}
