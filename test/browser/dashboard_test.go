package browser_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/test/browser"
	"github.com/forge-scheduler/forge/test/nodes"
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
	tab, cancel := context.WithTimeout(tab, 4*waitTimeout)
	t.Cleanup(cancel)
	recordPresses(t, tab)
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
	return context.WithValue(tab, plainTab{}, true)
}

type plainTab struct{}

// isPlain reports whether a tab is one of newPlainTab.
func isPlain(tab context.Context) bool { return tab.Value(plainTab{}) != nil }

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

// page is one that the checks look at, with a name for its pictures.
type page struct{ name, path string }

// everyPage has each kind of page; checkLinks finds the one that is missing.
func everyPage(n *node) []page {
	job := fmt.Sprintf("/jobs/%d", lastJob(n))
	return append([]page{
		{"overview", "/"},
		{"crons", "/crons"},
		{"cron", "/crons/pulse"},
		{"cron-tick", "/crons/" + seldom + "?at=2026-01-01T02:00"},
		{"trigger", "/crons/orders/trigger"},
		{"bulk-pause", "/bulk/crons/pause"},
		{"bulk-resume", "/bulk/crons/resume"},
		{"backfill", "/crons/" + seldom + "/backfill?from=2020-06-01T00:00&to=2021-06-01T00:00"},
		{"jobs", "/jobs"},
		{"job", job},
		{"job-output", job + "?times=on&wrap=off&find=UTC"},
		{"job-retry", job + "/retry"},
		{"enqueue", "/enqueue?kind=order"},
		{"bulk-cancel", "/bulk/jobs/cancel?kind=sleeper"},
		{"queues", "/queues"},
		{"queue", "/queues/default"},
		{"dead", "/dead"},
		{"dead-group", n.grave},
		{"dead-retry", n.grave + "/retry"},
		{"nodes", "/nodes"},
		{"node", "/nodes/north"},
		{"drain", "/nodes/north/drain"},
		{"apply", "/apply"},
		{"leadership", "/leaders"},
		{"transfer", "/leaders/scheduler/transfer"},
		{"incident", "/leaders/scheduler/terms/2"},
		{"alerts", "/alerts"},
		{"silence", "/alerts/quiet/silence"},
		{"alert-test", "/alerts/quiet/test"},
		{"metrics", "/charts"},
		{"storage", "/storage"},
		{"activity", "/activity"},
		{"configurations", "/config"},
		{"doctor", "/doctor"},
		{"configuration", "/config/" + inForce(n)},
		{"revert", "/config/" + inForce(n) + "/revert"},
		{"settings", "/settings"},
		{"search", "/search?q=pause+pulse"},
		{"keys", "/keys"},
		{"tokens", "/tokens"},
		{"sessions", "/sessions"},
		{"token-revoke", "/tokens/reader/revoke"},
		{"nothing", nothing},
	}, hostilePages(n)...)
}

// hostilePages show what is hard to fit, and looks like HTML.
func hostilePages(n *node) []page {
	name := url.PathEscape(hostile)
	return []page{
		{"hostile-cron", "/crons/" + name},
		{"hostile-job", fmt.Sprintf("/jobs/%d", n.worst)},
		{"hostile-jobs", "/jobs?queue=" + hostileQueue},
		{"hostile-queue", "/queues/" + url.PathEscape(hostileQueue)},
		{"hostile-enqueue", "/enqueue?kind=" + url.QueryEscape(hostile)},
		{"hostile-dead-group", n.pit},
		{"hostile-silence", "/alerts/" + name + "/silence"},
	}
}

// TestPagesInARealBrowser looks at a cluster and acts on it, each in tabs side by
// side, reads it at rest, moves its roles, and kills its leader at last.
func TestPagesInARealBrowser(t *testing.T) {
	t.Parallel()
	newTab(t) // not run without a browser, before there are nodes
	receiver := newHook(t)
	started := startNodes(t, receiver.URL, "north", "south")
	first := started[0]
	t.Run("side by side", func(t *testing.T) {
		for name, check := range sideBySide(receiver) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				check(t, first)
			})
		}
	})
	for _, last := range []struct { //nolint:paralleltest // one after the other
		name  string
		check func(*testing.T)
	}{
		{"without scripts", func(t *testing.T) { t.Helper(); checkWithoutScripts(t, first) }}, // nothing runs any more
		{"many crons", func(t *testing.T) { t.Helper(); checkManyCrons(t, first) }},           // they are paused then, and resumed
		{"moves of roles", func(t *testing.T) { t.Helper(); checkMoves(t, first) }},
		{"drain a node and know when it may stop", func(t *testing.T) { t.Helper(); checkDrain(t, first) }},
		{"a reverted file", func(t *testing.T) { t.Helper(); checkReverted(t, first) }}, // every node's configuration changes and comes back
		{"what changed in the configuration, and revert it", func(t *testing.T) { t.Helper(); checkRevert(t, first) }},
		{"the next leader", func(t *testing.T) { t.Helper(); checkNextLeader(t, started) }}, // a node is gone then, and back
		{"login", func(t *testing.T) { t.Helper(); checkLogin(t, alive(started)) }},
		{"every form was sent", checkPresses},
	} {
		t.Run(last.name, last.check)
	}
}

// alive is one of the nodes that is there.
func alive(started []*node) *node {
	for _, n := range started {
		if nodes.Status(n.listen, "/healthz") == http.StatusOK {
			return n
		}
	}
	return started[0]
}

// sideBySide are the checks that leave the others alone. The longest are together.
func sideBySide(receiver *hook) map[string]func(*testing.T, *node) {
	checks := map[string]func(*testing.T, *node){
		"no complaint in the console": checkConsole,
		"no page is forgotten":        checkLinks,
		"keys":                        checkKeys,
		"command palette":             checkPalette,
		"absolute times":              checkTimes,
		"light and dark":              checkTheme,
		"pause":                       checkPause,
		"one stream":                  checkStream,
		"what is typed stays":         checkTyped,
		"nothing jumps":               checkPointer,
		"what waits is shown":         checkHeld,
		"why":                         checkWhy,
		"the reader's zone":           checkZone,
		"jobs":                        checkJobActions,
		"output that grows":           checkOutput,
		"many jobs":                   checkBulk,
		"tenures beside nodes":        checkTenures,
		"places of the selection":     checkSelectionPlaces,
		"filter":                      checkFilter,
		"selection":                   checkSelection,
		"saved views":                 checkViews,
		"time":                        checkTime,
		"crosshair":                   checkCrosshair,
		"queues":                      checkQueues,
		"dead letters":                checkDead,
		"enqueue":                     checkEnqueue,
		"tasks":                       checkTasks,
		"alerts":                      func(t *testing.T, n *node) { t.Helper(); checkAlerts(t, n, receiver) },
		"crons by hand": func(t *testing.T, n *node) {
			t.Helper()
			checkByHand(t, n, newTab(t))
			checkByHand(t, n, newPlainTab(t))
		},
	}
	const shares = 3
	for share := range shares {
		checks[fmt.Sprintf("looks of every state, %d of %d", share+1, shares)] = func(t *testing.T, n *node) {
			t.Helper()
			checkStates(t, n, shareOf(statesOf(n), share, shares))
		}
	}
	for share := range shares {
		checks[fmt.Sprintf("looks of every page, %d of %d", share+1, shares)] = func(t *testing.T, n *node) {
			t.Helper()
			checkLooks(t, n, shareOf(append(everyPage(n), page{"docs", docs}), share, shares))
		}
	}
	return checks
}

// shareOf returns every shares-th element, from one on.
func shareOf[T any](all []T, share, shares int) (some []T) {
	for i := share; i < len(all); i += shares {
		some = append(some, all[i])
	}
	return some
}

// checkConsole wants pages that load whole and are live: a refused script, a style
// against the content policy or an exception would be in the console.
func checkConsole(t *testing.T, n *node) {
	t.Helper()
	tab := newTab(t)
	messages := chromedp.Console(tab)
	for _, p := range everyPage(n) {
		if p.path != nothing { // whose status is a complaint
			do(t, tab, chromedp.Navigate(n.url(p.path)), live())
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
