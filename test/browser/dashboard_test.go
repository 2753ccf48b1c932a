package browser_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
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
	tab, cancel := context.WithTimeout(tab, 2*patience)
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

// everyPage is the path of each kind of page.
func everyPage(n *node) []string {
	return []string{"/", "/leaders", "/crons", "/crons/pulse", "/jobs", "/dead", fmt.Sprintf("/jobs/%d", lastJob(n)), "/nothing", "/nodes", "/queues", "/alerts", "/settings", "/enqueue", "/leaders/scheduler/transfer", "/nodes/north/drain", "/crons/pulse/backfill?from=2020-01-01T00:00&to=2020-01-01T01:00"}
}

func TestPagesInARealBrowser(t *testing.T) {
	t.Parallel()
	newTab(t) // not run without a browser, before there are nodes
	first := startNodes(t, "north", "south")[0]

	t.Run("no complaint in the console", func(t *testing.T) {
		t.Parallel()
		checkConsole(t, first)
	})
	t.Run("the same facts without scripts", func(t *testing.T) {
		t.Parallel()
		checkWithoutScripts(t, first)
	})
	t.Run("no sideways scroll on a phone", func(t *testing.T) {
		t.Parallel()
		checkPhone(t, first)
	})
	t.Run("axe finds nothing", func(t *testing.T) {
		t.Parallel()
		checkAxe(t, first)
	})
	t.Run("keys and the pause", func(t *testing.T) {
		t.Parallel()
		checkKeys(t, first)
	})
	t.Run("crons by hand", func(t *testing.T) {
		t.Parallel()
		checkByHand(t, first, newTab(t))
		checkByHand(t, first, newPlainTab(t))
	})
	t.Run("no stream while hidden", func(t *testing.T) {
		t.Parallel()
		checkHidden(t, first)
	})
}

// checkConsole wants pages that load whole: a refused script, a style against
// the content policy or an exception would be in the console.
func checkConsole(t *testing.T, n *node) {
	t.Helper()
	tab := newTab(t)
	messages := chromedp.Console(tab)
	for _, path := range everyPage(n)[:6] {
		do(t, tab, chromedp.Navigate(n.url(path)), live())
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
	if eval[bool](t, plain, `"theme" in document.documentElement.dataset`) {
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
	for _, path := range everyPage(n) {
		do(t, tab, chromedp.Navigate(n.url(path)), chromedp.WaitVisible(chromedp.CSS("main")))
		if got := eval[int](t, tab, `document.documentElement.scrollWidth`); got != width {
			t.Errorf("%s is %d pixels wide on a screen of %d", path, got, width)
		}
	}
}

// streams passes requests on to a node and counts the streams that are open.
type streams struct {
	proxy http.Handler
	open  atomic.Int64
}

func (s *streams) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/events") {
		s.open.Add(1)
		defer s.open.Add(-1)
	}
	s.proxy.ServeHTTP(w, r)
}

func checkHidden(t *testing.T, n *node) {
	t.Helper()
	counted := &streams{proxy: httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: n.listen})}
	server := httptest.NewServer(counted)
	t.Cleanup(server.Close) // after the tab, whose stream it would wait for
	tab := newTab(t)
	do(t, tab, chromedp.Navigate(server.URL), live())
	if open := counted.open.Load(); open != 1 {
		t.Fatalf("%d streams are open for a visible page, want 1", open)
	}
	// Freezing hides first, as putting another tab in front does.
	if _, err := chromedp.Call(tab, page.SetWebLifecycleState, page.SetWebLifecycleStateParams{
		State: page.SetWebLifecycleStateStateFrozen,
	}); err != nil {
		t.Fatal(err)
	}
	nodes.Eventually(t, patience, "the stream of the hidden page is closed", func() bool { return counted.open.Load() == 0 })
	if state := eval[string](t, tab, `document.visibilityState`); state != "hidden" {
		t.Errorf("the page is %s", state)
	}
}

func TestThePageShowsTheNextLeaderWithoutAReload(t *testing.T) {
	t.Parallel()
	newTab(t) // not run without a browser, before there are nodes
	started := startNodes(t, "north", "south")
	old, other := started[0], started[1]
	if leader(other) == other.id {
		old, other = other, old
	}
	tab := newTab(t)
	do(t, tab, chromedp.Navigate(other.url("/")), live(), chromedp.Evaluate[chromedp.Void](`window.same = true`))
	if got := eval[string](t, tab, shownLeader); got != old.id {
		t.Fatalf("the page shows the leader %q, want %q", got, old.id)
	}

	killed := time.Now()
	old.process.Kill()
	deadline, cancel := context.WithTimeout(tab, patience)
	defer cancel()
	want := fmt.Sprintf(`document.querySelector("#leader-scheduler .node")?.textContent === %q`, other.id)
	if _, err := chromedp.Run(deadline, chromedp.Poll[bool](want, chromedp.WithPollingInterval(10*time.Millisecond))); err != nil {
		t.Fatalf("the page does not show %s as the leader: %v", other.id, err)
	}
	t.Logf("the page showed the next leader %v after the old one was killed", time.Since(killed).Round(time.Millisecond))
	if !eval[bool](t, tab, `window.same === true`) {
		t.Error("the page was loaded again")
	}
}
