package browser_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/page"
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
	nodes.Eventually(t, patience, "the stream goes on from what the page has", func() bool {
		open, begun := s.now()
		return open == 1 && len(begun) == 2 && strings.Contains(begun[1], "health:") && strings.Contains(begun[1], "pulse:")
	})
	do(t, tab, live())
	press(t, tab, "#conn") // the pause
	nodes.Eventually(t, patience, "the stream of the paused page is closed", func() bool { open, _ := s.now(); return open == 0 })
	press(t, tab, "#conn")
	nodes.Eventually(t, patience, "and goes on", func() bool {
		open, begun := s.now()
		return open == 1 && len(begun) == 3 && strings.Contains(begun[2], "pulse:")
	})
	if !eval[bool](t, tab, `window.same === true`) {
		t.Error("the page was loaded again")
	}
	// Freezing hides first, as putting another tab in front does.
	if _, err := chromedp.Call(tab, page.SetWebLifecycleState, page.SetWebLifecycleStateParams{
		State: page.SetWebLifecycleStateStateFrozen,
	}); err != nil {
		t.Fatal(err)
	}
	nodes.Eventually(t, patience, "the stream of the hidden page is closed", func() bool { open, _ := s.now(); return open == 0 })
	if state := eval[string](t, tab, `document.visibilityState`); state != "hidden" {
		t.Errorf("the page is %s", state)
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
	eval[bool](t, tab, `(() => {
		window.beats = 0;
		document.documentElement.style.overflowAnchor = "none";
		document.addEventListener("htmx:sseMessage", (event) => { if (event.target.id === "sign") window.beats++; });
		return true;
	})()`)
	var at struct{ X, Y float64 }
	nodes.Eventually(t, patience, "the pointer rests over a job", func() bool {
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
	nodes.Eventually(t, patience, "newer jobs have run", func() bool { return lastJob(n) > newest+2 })
	awaitTrue(t, tab, fmt.Sprintf(`window.beats > %d && !document.querySelector("#tall")`, beats+2))
	if now := eval[string](t, tab, under); now != first || first == "" {
		t.Errorf("under the pointer is %q, and was %q", now, first)
	}
	point(t, tab, 5, 5)
	awaitTrue(t, tab, fmt.Sprintf(`+document.querySelector("#jobs tbody tr").id.replace("job-", "") > %d`, newest))
}

// checkNextLeader wants a page to show the next leader without being loaded again
// when a leader is killed.
func checkNextLeader(t *testing.T, started []*node) {
	t.Helper()
	old, other := started[0], started[1]
	if leader(other) == other.id {
		old, other = other, old
	}
	tab := newTab(t)
	do(t, tab, chromedp.Navigate(other.url("/")), live(), chromedp.Evaluate[chromedp.Void](`window.same = true`))
	if got := eval[string](t, tab, shownLeader); got != old.id {
		t.Fatalf("the page shows the leader %q, want %q", got, old.id)
	}
	want := fmt.Sprintf(`document.querySelector("#leader-scheduler .node")?.textContent === %q`, other.id)
	deadline, cancel := context.WithTimeout(tab, patience)
	defer cancel()
	killed := time.Now()
	old.process.Kill()
	if _, err := chromedp.Run(deadline, chromedp.Poll[bool](want, chromedp.WithPollingInterval(10*time.Millisecond))); err != nil {
		t.Fatalf("the page does not show %s as the leader: %v", other.id, err)
	}
	t.Logf("the page showed the next leader %v after the old one was killed", time.Since(killed).Round(time.Millisecond))
	if !eval[bool](t, tab, `window.same === true`) {
		t.Error("the page was loaded again")
	}
}
