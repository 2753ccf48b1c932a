package browser_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	cdbrowser "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"

	"github.com/forge-scheduler/forge/test/nodes"
)

// streams passes requests on to a node and knows the streams among them.
type streams struct {
	proxy http.Handler

	mu sync.Mutex
	// begun are what readers had when they came, as they said it.
	begun []string
	open  map[context.Context]context.CancelFunc
}

func newStreams(t *testing.T, n *node) (s *streams, url string) {
	t.Helper()
	s = &streams{proxy: httputil.NewSingleHostReverseProxy(urlOf(n)), open: map[context.Context]context.CancelFunc{}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close) // after the tab, whose stream it would wait for
	return s, server.URL
}

func urlOf(n *node) *url.URL { return &url.URL{Scheme: "http", Host: n.listen} }

func (s *streams) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/events") {
		ctx, cut := context.WithCancel(r.Context())
		defer cut()
		s.mu.Lock()
		s.begun = append(s.begun, r.Header.Get("Last-Event-ID")+r.URL.Query().Get("last"))
		s.open[ctx] = cut
		s.mu.Unlock()
		defer func() {
			s.mu.Lock()
			delete(s.open, ctx)
			s.mu.Unlock()
		}()
		r = r.WithContext(ctx)
	}
	s.proxy.ServeHTTP(w, r)
}

// now tells how many streams are open, and what the readers of all so far had.
func (s *streams) now() (open int, begun []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open), append([]string(nil), s.begun...)
}

// cut breaks the streams, as a network does.
func (s *streams) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, end := range s.open {
		end()
	}
}

// checkStream wants one stream for a page, that goes on from where it was when it
// breaks, and that is closed while the page is hidden.
func checkStream(t *testing.T, n *node) {
	t.Helper()
	s, address := newStreams(t, n)
	tab := newTab(t)
	do(t, tab, chromedp.Navigate(address), live(), chromedp.Evaluate[chromedp.Void](`window.same = true`))
	if open, begun := s.now(); open != 1 || len(begun) != 1 || begun[0] != "" {
		t.Fatalf("%d streams are open for a visible page, want 1; they began with %q", open, begun)
	}
	s.cut()
	nodes.Eventually(t, waitTimeout, "the stream goes on from what the page has", func() bool {
		open, begun := s.now()
		return open == 1 && len(begun) == 2 && strings.Contains(begun[1], "health:") && strings.Contains(begun[1], "pulse:")
	})
	do(t, tab, live())
	press(t, tab, "#conn") // the pause
	nodes.Eventually(t, waitTimeout, "the stream of the paused page is closed", func() bool { open, _ := s.now(); return open == 0 })
	press(t, tab, "#conn")
	nodes.Eventually(t, waitTimeout, "and goes on", func() bool {
		open, begun := s.now()
		return open == 1 && len(begun) == 3 && strings.Contains(begun[2], "pulse:")
	})
	if !eval[bool](t, tab, `window.same === true`) {
		t.Error("the page was loaded again")
	}
	checkHidden(t, tab, s)
}

// checkHidden wants a hidden page to have no stream, and to open one when it is seen again.
func checkHidden(t *testing.T, tab context.Context, s *streams) { //nolint:revive // the test comes first
	t.Helper()
	eval[bool](t, tab, `(() => {
		window.opened = 0;
		window.EventSource = class extends EventSource { constructor(url) { super(url); window.opened++; } };
		return true;
	})()`)
	for visits := range 2 {
		turn(t, tab, cdbrowser.WindowStateMinimized)
		awaitTrue(t, tab, `document.visibilityState === "hidden"`)
		if opened := eval[int](t, tab, `window.opened`); opened != visits {
			t.Errorf("the hidden page has opened a stream: %d, want %d", opened, visits)
		}
		nodes.Eventually(t, waitTimeout, "the stream of the hidden page is closed", func() bool { open, _ := s.now(); return open == 0 })
		_, before := s.now()
		turn(t, tab, cdbrowser.WindowStateNormal)
		nodes.Eventually(t, waitTimeout, "the stream of the page that is seen again goes on", func() bool {
			open, begun := s.now()
			return open == 1 && len(begun) == len(before)+1 && strings.Contains(begun[len(before)], "pulse:")
		})
		do(t, tab, live())
	}
}

// turn minimizes the window of a tab, or shows it again.
func turn(t *testing.T, tab context.Context, state cdbrowser.WindowState) { //nolint:revive // the test comes first
	t.Helper()
	window, err := chromedp.Call(tab, cdbrowser.GetWindowForTarget, cdbrowser.GetWindowForTargetParams{})
	if err == nil {
		_, err = chromedp.Call(tab, cdbrowser.SetWindowBounds, cdbrowser.SetWindowBoundsParams{WindowID: window.WindowID, Bounds: &cdbrowser.Bounds{WindowState: state}})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// checkTyped wants a form to keep what is typed while its page is told that all is well,
// and to be paused like every other.
func checkTyped(t *testing.T, n *node) {
	t.Helper()
	tab := newTab(t)
	do(t, tab, chromedp.Navigate(n.url("/enqueue?kind=order")), live())
	eval[bool](t, tab, `(() => {
		window.beats = 0;
		window.field = document.querySelector("#act-enqueue [name=unique]");
		window.field.focus();
		document.addEventListener("htmx:sseMessage", (event) => { if (event.target.id === "sign") window.beats++; });
		return true;
	})()`)
	do(t, tab, chromedp.KeyEvent("paused"))
	awaitTrue(t, tab, `window.beats > 2`)
	if !eval[bool](t, tab, `window.field.isConnected && window.field.value === "paused" && document.activeElement === window.field`) {
		t.Error("what was typed is gone")
	}
	press(t, tab, "#conn")
	awaitTrue(t, tab, `document.querySelector('#conn[data-state="paused"]') && window.field.value === "paused"`)
}

// point moves the pointer to a place.
func point(t *testing.T, tab context.Context, x, y float64) { //nolint:revive // the test comes first
	t.Helper()
	if _, err := chromedp.Call(tab, input.DispatchMouseEvent, input.DispatchMouseEventParams{
		Type: input.DispatchMouseEventTypeMouseMoved, X: x, Y: y, PointerType: input.DispatchMouseEventPointerTypeMouse,
	}); err != nil {
		t.Fatal(err)
	}
}

// checkPointer wants a list whose rows move to stay under the pointer, also when
// something above it shrinks, in a browser that does not see to that by itself, and to
// go on when the pointer leaves.
func checkPointer(t *testing.T, n *node) {
	t.Helper()
	tab := newTab(t)
	do(t, tab, chromedp.EmulateViewport(1280, 900), chromedp.Navigate(n.url("/")), live())
	awaitTrue(t, tab, `!!document.querySelector("#jobs tbody tr:nth-child(3)")`)
	eval[bool](t, tab, countBeats)
	eval[bool](t, tab, `(() => {
		document.documentElement.style.overflowAnchor = "none";
		document.body.style.paddingBottom = "200vh"; // the page's end would hold the list, too
		return true;
	})()`)
	var at struct{ X, Y float64 }
	nodes.Eventually(t, waitTimeout, "the pointer rests over a job", func() bool {
		at = eval[struct{ X, Y float64 }](t, tab, `(() => {
			const row = document.querySelector("#jobs tbody tr:nth-child(3)");
			row.scrollIntoView({block: "center"});
			const {left, top, height} = row.getBoundingClientRect();
			return {X: left + 40, Y: top + height / 2};
		})()`)
		point(t, tab, at.X, at.Y)
		return eval[bool](t, tab, `document.querySelector("#jobs").matches(":hover")`)
	})
	// What is put above the list goes with the next reading of that part.
	under := fmt.Sprintf(`document.elementFromPoint(%f, %f)?.closest("tr")?.id`, at.X, at.Y)
	first := eval[string](t, tab, `(() => {
		const first = `+under+`;
		document.querySelector("#health").insertAdjacentHTML("afterbegin", "<div id='tall'>" + "<p>tall</p>".repeat(20) + "</div>");
		scrollBy(0, document.querySelector("#" + first).getBoundingClientRect().top + 10 - `+fmt.Sprint(at.Y)+`);
		return first;
	})()`)
	beats, newest := eval[int](t, tab, `window.beats`), lastJob(n)
	nodes.Eventually(t, waitTimeout, "newer jobs have run", func() bool { return lastJob(n) > newest+2 })
	awaitTrue(t, tab, fmt.Sprintf(`window.beats > %d && !document.querySelector("#tall")`, beats+2))
	if first == "" {
		t.Error("no job is under the pointer")
	}
	awaitTrue(t, tab, under+` === "`+first+`"`) // the page may be about to scroll back
	point(t, tab, 5, 5)
	awaitTrue(t, tab, fmt.Sprintf(`+document.querySelector("#jobs tbody tr").id.replace("job-", "") > %d`, newest))
}

// checkHeld wants a list that waited under the pointer to be shown as it is now when
// the pointer leaves it, although nothing more comes; on a page that is paused, when
// that goes on.
func checkHeld(t *testing.T, n *node) {
	t.Helper()
	tab := newTab(t)
	do(t, tab, chromedp.EmulateViewport(1280, 900), chromedp.Navigate(n.url("/crons/"+seldom)), live())
	eval[bool](t, tab, countBeats)
	const ticks = `document.querySelectorAll(".ledger tbody tr").length`
	for _, paused := range []bool{false, true} {
		at := eval[struct{ X, Y float64 }](t, tab, `(() => {
			const {left, top} = document.querySelector("#h-ticks").closest("section").querySelector("[data-steady]").getBoundingClientRect();
			return {X: left + 40, Y: top + 20};
		})()`)
		point(t, tab, at.X, at.Y)
		awaitTrue(t, tab, `document.querySelector("[data-steady]").matches(":hover")`)
		before := eval[int](t, tab, ticks)
		var tick struct {
			JobID int64 `json:"job_id"`
		}
		if err := json.Unmarshal(n.post(t, "/api/v1/crons/"+seldom+"/trigger", ""), &tick); err != nil {
			t.Fatal(err)
		}
		what, is := inState("completed")
		n.awaitJob(t, tick.JobID, what, is)
		beats := eval[int](t, tab, `window.beats`)
		awaitTrue(t, tab, fmt.Sprintf(`window.beats > %d`, beats+2))
		if paused {
			hit(t, tab, "p")
		}
		if got := eval[int](t, tab, ticks); got != before {
			t.Errorf("the list under the pointer has %d rows, and had %d", got, before)
		}
		point(t, tab, 5, 5)
		if paused {
			awaitTrue(t, tab, `!document.querySelector("[data-steady]").matches(":hover")`)
			if got := eval[int](t, tab, ticks); got != before {
				t.Errorf("the paused list has %d rows, and had %d", got, before)
			}
			hit(t, tab, "p")
		}
		awaitTrue(t, tab, fmt.Sprintf(ticks+` === %d`, before+1))
	}
}

// countBeats counts what comes each second in window.beats.
const countBeats = `(() => {
	window.beats = 0;
	document.addEventListener("htmx:sseMessage", (event) => { if (event.target.id === "sign") window.beats++; });
	return true;
})()`

// checkNextLeader wants a page to show the next leader without being loaded again
// when a leader is killed, and one of the killed node to go on with the node.
func checkNextLeader(t *testing.T, started []*node) {
	t.Helper()
	old, other := started[0], started[1]
	nodes.Eventually(t, waitTimeout, "somebody leads", func() bool { return leader(other) != "" })
	if leader(other) == other.id {
		old, other = other, old
	}
	tab, behind := newTab(t), newTab(t)
	do(t, behind, chromedp.Navigate(old.url("/")), live(), chromedp.Evaluate[chromedp.Void](`window.same = true; window.got = []; document.addEventListener("htmx:sseMessage", (event) => window.got.push(event.target.getAttribute("sse-swap")))`))
	do(t, tab, chromedp.Navigate(other.url("/")), live(), chromedp.Evaluate[chromedp.Void](`window.same = true`))
	if got := eval[string](t, tab, shownLeader); got != old.id {
		t.Fatalf("the page shows the leader %q, want %q", got, old.id)
	}
	t.Logf("the page showed the next leader %v after the old one was killed", killAndSee(t, tab, old, other).Round(time.Millisecond))
	if !eval[bool](t, tab, `window.same === true`) {
		t.Error("the page was loaded again")
	}
	checkToast(t, tab, other)
	checkReturn(t, behind, old, other)
}

// checkToast wants an open page to announce the change of leader beside its content, with a
// link to what happened, until the reader dismisses it.
func checkToast(t *testing.T, tab context.Context, leads *node) { //nolint:revive // the test comes first
	t.Helper()
	awaitTrue(t, tab, `document.querySelectorAll("#toast li").length === 3`) // all of its roles
	want := fmt.Sprintf("Scheduler: %s became the leader. What happened", leads.id)
	if got := eval[string](t, tab, `document.querySelector('#toast li[data-role="scheduler"]').textContent`); got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
	if got := eval[string](t, tab, `[getComputedStyle(document.querySelector("#toast")).position, document.querySelector("#toast").getAttribute("aria-live")].join()`); got != "fixed,polite" {
		t.Errorf("it is %s", got)
	}
	link := eval[string](t, tab, `document.querySelector('#toast li[data-role="scheduler"] a').getAttribute("href")`)
	if _, body, _ := nodes.Get(leads.listen, link); !strings.Contains(string(body), leads.id+" became the leader") { //nolint:contextcheck // the tab's is the browser's
		t.Errorf("it leads to %s, which is not about %s", link, leads.id)
	}
	press(t, tab, "#toast button")
	awaitTrue(t, tab, `!document.querySelector("#toast").firstChild`)
}

// killAndSee kills a leader and waits for a page to show the next one.
func killAndSee(t *testing.T, tab context.Context, old, other *node) time.Duration { //nolint:revive // the test comes first
	t.Helper()
	want := fmt.Sprintf(`document.querySelector("#leader-scheduler .node")?.textContent === %q`, other.id)
	deadline, cancel := context.WithTimeout(tab, waitTimeout)
	defer cancel()
	killed := time.Now()
	old.process.Kill()
	if _, err := chromedp.Run(deadline, chromedp.Poll[bool](want, chromedp.WithPollingInterval(10*time.Millisecond))); err != nil {
		t.Fatalf("the page does not show %s as the leader: %v", other.id, err)
	}
	return time.Since(killed)
}

// checkReturn wants the page of a node that is gone to say so and to name another, and
// to go on by itself when the node is back: with what has changed, and nothing else.
func checkReturn(t *testing.T, tab context.Context, gone, other *node) { //nolint:revive // the test comes first
	t.Helper()
	awaitTrue(t, tab, `document.querySelector("#conn").dataset.state === "lost" && document.querySelector("#offline").checkVisibility()`)
	if got := eval[string](t, tab, `document.querySelector("#offline a").href`); got != other.url("")+"/" && got != other.url("") {
		t.Errorf("it leads to %s, want %s", got, other.url(""))
	}
	newest := lastJob(other) //nolint:contextcheck // the tab's is the browser's
	eval[bool](t, tab, `(window.got = [], true)`)
	gone.await(t, gone.launch(t, gone.listen)) //nolint:contextcheck // the tab's is the browser's
	awaitTrue(t, tab, fmt.Sprintf(`document.querySelector("#conn").dataset.state === "live" && !document.querySelector("#offline").checkVisibility() &&
		document.querySelector("#leader-scheduler .node").textContent === %q && +document.querySelector("#jobs tbody tr").id.replace("job-", "") >= %d &&
		window.got.filter((part) => part === "beat").length > 2`, other.id, newest))
	got := eval[[]string](t, tab, `window.got`)
	for part, want := range map[string]bool{"leaders": true, "nodes": true, "failures": false, "coming": false, "jobs": false} {
		if slices.Contains(got, part) != want {
			t.Errorf("of %s it is %v that the page got it again: %q", part, !want, got)
		}
	}
	if !eval[bool](t, tab, `window.same === true`) {
		t.Error("the page was loaded again")
	}
}
