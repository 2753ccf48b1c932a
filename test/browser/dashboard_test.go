package browser_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/test/browser"
)

// binaries is where forge is built for the run.
var binaries string

// chromium is the browser that all tests share.
var chromium struct {
	sync.Once

	*browser.Browser
	err error
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "forge-browser-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binaries = dir
	code := m.Run()
	if chromium.Browser != nil {
		chromium.Stop()
	}
	return code
}

// newTab opens a tab that ends with the test, or when that takes too long.
func newTab(t *testing.T) context.Context {
	t.Helper()
	chromium.Do(func() {
		chromium.Browser, chromium.err = browser.Start(context.Background())
	})
	if errors.Is(chromium.err, browser.ErrMissing) {
		pgtest.NotRun(t, "Chromium", browser.Install)
	}
	if chromium.err != nil {
		t.Fatal(chromium.err)
	}
	tab, closeTab := chromium.NewTab()
	t.Cleanup(closeTab)
	tab, cancel := context.WithTimeout(tab, 4*patience)
	t.Cleanup(cancel)
	return tab
}

// newPlainTab opens one that runs no scripts.
func newPlainTab(t *testing.T) context.Context {
	t.Helper()
	tab := newTab(t)
	do(t, tab, chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
		return err
	}))
	return tab
}

// live waits until the page's stream has delivered.
func live() chromedp.Action[chromedp.Void] {
	return chromedp.WaitVisible(chromedp.CSS(`#conn[data-state="live"]`))
}

func do(t *testing.T, tab context.Context, steps ...chromedp.Action[chromedp.Void]) { //nolint:revive // the test comes first
	t.Helper()
	if err := chromedp.Do(tab, steps...); err != nil {
		t.Fatal(err)
	}
}

func eval[T any](t *testing.T, tab context.Context, expression string) T { //nolint:revive // the test comes first
	t.Helper()
	value, err := chromedp.Run(tab, chromedp.Evaluate[T](expression))
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return value
}

// nothing is no page.
const nothing = "/nothing"

// everyPage is the path of each kind of page; checkLinks finds the one that is missing.
func everyPage(n *node) []string {
	return []string{"/", "/leaders", "/crons", "/crons/pulse", "/jobs", "/dead", fmt.Sprintf("/jobs/%d", lastJob(n)), nothing, "/nodes", "/queues", "/alerts", "/alerts/quiet/silence", "/alerts/quiet/test", "/charts", "/storage", "/settings", "/enqueue?kind=order", "/bulk/jobs/cancel?kind=sleeper", "/leaders/scheduler/transfer", "/nodes/north/drain", "/crons/pulse/backfill?from=2020-01-01T00:00&to=2020-01-01T01:00", n.grave, n.grave + "/retry", fmt.Sprintf("/jobs/%d/retry", lastJob(n))}
}

// TestPagesInARealBrowser looks at a cluster and then acts on it, each in tabs side by
// side, moves its roles, and kills its leader at last.
func TestPagesInARealBrowser(t *testing.T) {
	t.Parallel()
	newTab(t) // not run without a browser, before there are nodes
	receiver := newHook(t)
	started := startNodes(t, receiver.URL, "north", "south")
	first := started[0]
	t.Run("side by side", func(t *testing.T) {
		for name, check := range map[string]func(*testing.T, *node){
			"no complaint in the console":    checkConsole,
			"the same facts without scripts": checkWithoutScripts,
			"no sideways scroll on a phone":  checkPhone,
			"no page is forgotten":           checkLinks,
			"axe finds nothing":              checkAxe,
			"pictures of every page":         takePictures,
			"keys and the pause":             checkKeys,
			"one stream":                     checkStream,
			"what is typed stays":            checkTyped,
			"nothing jumps":                  checkPointer,
			"why":                            checkWhy,
			"jobs":                           checkJobActions,
			"many jobs":                      checkBulk,
			"queues":                         checkQueues,
			"dead letters":                   checkDead,
			"enqueue":                        checkEnqueue,
			"alerts":                         func(t *testing.T, n *node) { t.Helper(); checkAlerts(t, n, receiver) },
			"crons by hand": func(t *testing.T, n *node) {
				t.Helper()
				checkByHand(t, n, newTab(t))
				checkByHand(t, n, newPlainTab(t))
			},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				check(t, first)
			})
		}
	})
	t.Run("moves of roles", func(t *testing.T) { checkMoves(t, first) })         //nolint:paralleltest // the others want their leaders
	t.Run("the next leader", func(t *testing.T) { checkNextLeader(t, started) }) //nolint:paralleltest // a node is gone then
}

// checkConsole wants pages that load whole and are live: a refused script, a style
// against the content policy or an exception would be in the console.
func checkConsole(t *testing.T, n *node) {
	t.Helper()
	tab := newTab(t)
	messages := chromedp.Console(tab)
	for _, path := range everyPage(n) {
		if path != nothing { // whose status is a complaint
			do(t, tab, chromedp.Navigate(n.url(path)), live())
		}
	}
	do(t, tab, chromedp.Navigate(n.url("/")), live())
	if got, want := eval[string](t, tab, shownLeader), leader(n); got != want {
		t.Errorf("the page shows the leader %q, want %q", got, want)
	}
	const last = "end of the test"
	do(t, tab, chromedp.Evaluate[chromedp.Void](`console.log("`+last+`")`))
	for message, err := range messages {
		if err != nil {
			t.Fatal(err)
		}
		if message.Text == last {
			break
		}
		t.Errorf("in the console: %s (%s)", message, message.URL)
	}
}

const shownLeader = `document.querySelector("#leader-scheduler .node").textContent`

// facts are what does not change from one moment to the next.
type facts struct{ Leaders, Nodes, Crons []string }

const readFacts = `(() => {
	const all = (selector) => [...document.querySelectorAll(selector)].map((el) => el.textContent.trim());
	return {
		Leaders: all(".card .card-head, .card .node"),
		Nodes: all(".nodes .node-line"),
		Crons: all(".crons .lead-cell, .crons td[data-label=Schedule]"),
	};
})()`

func checkWithoutScripts(t *testing.T, n *node) {
	t.Helper()
	scripted, plain := newTab(t), newPlainTab(t)
	do(t, scripted, chromedp.Navigate(n.url("/")), live())
	do(t, plain, chromedp.Navigate(n.url("/")), chromedp.WaitVisible(chromedp.CSS("noscript span")))
	if eval[bool](t, plain, `!document.getElementById("theme").hidden`) {
		t.Fatal("scripts ran although they are disabled")
	}
	want, got := eval[facts](t, scripted, readFacts), eval[facts](t, plain, readFacts)
	if len(want.Leaders) != 6 || len(want.Nodes) != 2 || len(want.Crons) != 4 {
		t.Fatalf("the page with scripts shows %+v", want)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("without scripts %+v\nwant %+v", got, want)
	}
}

func checkPhone(t *testing.T, n *node) {
	t.Helper()
	const width = 375
	tab := newTab(t)
	do(t, tab, chromedp.EmulateViewport(width, 812, chromedp.EmulateMobile))
	for _, path := range append(everyPage(n), docs) {
		do(t, tab, chromedp.Navigate(n.url(path)), chromedp.WaitVisible(chromedp.CSS("main")))
		if got := eval[int](t, tab, `document.documentElement.scrollWidth`); got != width {
			t.Errorf("%s is %d pixels wide on a screen of %d", path, got, width)
		}
	}
}
