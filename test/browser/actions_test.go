package browser_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/forge-scheduler/forge/test/nodes"
)

// open goes to a page and waits until it is there.
func open(t *testing.T, tab context.Context, url string) { //nolint:revive // the test comes first
	t.Helper()
	do(t, tab, chromedp.Navigate(url), chromedp.WaitVisible(chromedp.CSS("main")))
	if isPlain(tab) {
		awaitTrue(t, tab, isWhole)
	} else {
		awaitTrue(t, tab, scripts) // they begin after the first paint
	}
}

// wantSaid waits for what a form has come to.
func wantSaid(t *testing.T, tab context.Context, want string) { //nolint:revive // the test comes first
	t.Helper()
	if got := said(t, tab); !strings.HasPrefix(got, want) {
		t.Errorf("the page says %q, want %q", got, want)
	}
}

// checkJobActions retries, cancels and discards one job each, which is asked first.
func checkJobActions(t *testing.T, n *node) {
	t.Helper()
	tab := newTab(t)
	broken := n.enqueue(t, `{"kind": "broken"}`)
	n.awaitJob(t, broken, "discarded", func(j job) bool { return j.State == "discarded" && j.Attempt == 1 })
	sleeper := n.enqueue(t, `{"kind": "sleeper"}`)
	what, is := inState("running")
	n.awaitJob(t, sleeper, what, is)
	later := n.enqueue(t, `{"kind": "broken", "at": "2099-01-01T00:00:00Z"}`)
	for _, step := range []struct {
		id           int64
		action, said string
		then         func(job) bool
	}{
		{broken, "retry", "It was made available.", func(j job) bool { return j.State == "discarded" && j.Attempt == 2 }},
		{sleeper, "cancel", "It ", func(j job) bool { return j.State == "cancelled" }}, // told to stop, or stopped by then
		{later, "discard", "It was discarded.", func(j job) bool { return j.State == "discarded" && j.Attempt == 0 }},
	} {
		open(t, tab, n.url(fmt.Sprintf("/jobs/%d", step.id)))
		press(t, tab, `.acts a[href$="/`+step.action+`"]`)
		press(t, tab, "#act-"+step.action+" button")
		wantSaid(t, tab, step.said)
		n.awaitJob(t, step.id, step.action+"ed", step.then)
	}
}

// checkOutput reads what a job writes as it comes: from its end, unless the reader is
// elsewhere in it.
func checkOutput(t *testing.T, n *node) {
	t.Helper()
	tab := newTab(t)
	id := n.enqueue(t, `{"kind": "talker"}`)
	defer n.post(t, fmt.Sprintf("/api/v1/jobs/%d/cancel", id), "{}")
	const (
		lines = `document.querySelector("pre.output")?.textContent.split("\n").length || 0`
		below = `(() => { const e = document.querySelector("pre.output"); return e.scrollHeight - e.scrollTop - e.clientHeight })()`
	)
	more := func() {
		t.Helper()
		before := eval[int](t, tab, lines)
		nodes.Eventually(t, waitTimeout, "more output", func() bool { return eval[int](t, tab, lines) > before+2 })
	}
	n.awaitJob(t, id, "running", func(j job) bool { return j.State == "running" })
	do(t, tab, chromedp.Navigate(n.url(fmt.Sprintf("/jobs/%d", id))))
	nodes.Eventually(t, waitTimeout, "300 lines", func() bool { return eval[int](t, tab, lines) > 300 })
	do(t, tab, chromedp.Navigate(n.url(fmt.Sprintf("/jobs/%d", id))), live())
	for range 2 {
		if left := eval[int](t, tab, below); left > 24 {
			t.Errorf("%d px of the output are below what is shown", left)
		}
		more()
	}
	do(t, tab, chromedp.Evaluate[chromedp.Void](`document.querySelector("pre.output").scrollTop = 40`))
	more()
	if top := eval[int](t, tab, `document.querySelector("pre.output").scrollTop`); top != 40 {
		t.Errorf("the reader was at 40 px and is at %d", top)
	}
}

// checkBulk does something to all jobs that a filter names, and to no other.
func checkBulk(t *testing.T, n *node) {
	t.Helper()
	tab := newTab(t)
	other := n.enqueue(t, `{"kind": "order", "args": {"customer": "Eve"}, "at": "2099-01-01T00:00:00Z"}`)
	bulk := func(action, state, then, becomes string, ids []int64) {
		t.Helper()
		open(t, tab, n.url("/jobs?kind=bulky&state="+state))
		press(t, tab, `a[href^="/bulk/jobs/`+action+`?"]`)
		do(t, tab, chromedp.WaitVisible(chromedp.CSS("#act-bulk button")))
		if got := eval[string](t, tab, `document.querySelector("h1").textContent`); !strings.HasSuffix(got, " 3 jobs?") {
			t.Errorf("it asks %q", got)
		}
		press(t, tab, "#act-bulk button")
		wantSaid(t, tab, "3 jobs were "+then+".")
		for _, id := range ids {
			what, is := inState(becomes)
			n.awaitJob(t, id, what, is) //nolint:contextcheck // the tab's is the browser's
		}
	}
	later := func() (ids []int64) {
		for range 3 {
			ids = append(ids, n.enqueue(t, `{"kind": "bulky", "at": "2099-01-01T00:00:00Z"}`))
		}
		return ids
	}
	bulk("discard", "scheduled", "discarded", "discarded", later())
	cancelled := later()
	bulk("cancel", "scheduled", "cancelled", "cancelled", cancelled)
	bulk("retry", "cancelled", "retried", "completed", cancelled)
	what, is := inState("scheduled")
	n.awaitJob(t, other, what, is)
}

// checkManyCrons pauses crons with a reason, undoes that, and pauses and resumes them.
func checkManyCrons(t *testing.T, n *node) {
	t.Helper()
	tab := newTab(t)
	hold := func(action, did string) {
		t.Helper()
		open(t, tab, n.url("/bulk/crons/"+action+"?name=orders"))
		do(t, tab, chromedp.SetValue(chromedp.CSS("#act-bulk [name=reason]"), "We move the orders"))
		press(t, tab, "#act-bulk button")
		wantSaid(t, tab, "1 cron was "+did+".")
	}
	hold("pause", "paused")
	press(t, tab, "#act-undo button")
	wantSaid(t, tab, "1 cron was resumed.")
	hold("pause", "paused")
	hold("resume", "resumed")
}

// checkQueues pauses a queue and lets it go on.
func checkQueues(t *testing.T, n *node) {
	t.Helper()
	tab := newTab(t)
	open(t, tab, n.url("/queues"))
	press(t, tab, "#pause-side button")
	wantSaid(t, tab, "side is paused.")
	waiting := n.enqueue(t, `{"kind": "bulky", "queue": "side"}`)
	press(t, tab, "#resume-side button")
	wantSaid(t, tab, "side is resumed.")
	what, is := inState("completed")
	n.awaitJob(t, waiting, what, is)
}

// checkDead retries a group of dead letters, discards one and then the others.
func checkDead(t *testing.T, n *node) {
	t.Helper()
	tab := newTab(t)
	var ids []int64
	for range 3 {
		ids = append(ids, n.enqueue(t, `{"kind": "doomed"}`))
	}
	die := func(attempt int) {
		t.Helper()
		for _, id := range ids {
			n.awaitJob(t, id, "dead", func(j job) bool { return j.State == "discarded" && j.Attempt == attempt })
		}
	}
	const group = `#main a[href*="/dead/"]`
	die(1)
	open(t, tab, n.url("/dead"))
	awaitTrue(t, tab, `[...document.querySelectorAll("tbody tr")].some((row) => row.textContent.includes("doomed") && row.querySelector("[data-label=Jobs]").textContent === "3")`)
	path := eval[string](t, tab, `[...document.querySelectorAll('`+group+`')].find((a) => a.textContent === "doomed").getAttribute("href")`)
	press(t, tab, `a[href="`+path+`/retry"]`)
	press(t, tab, "#act-dead button")
	wantSaid(t, tab, "3 jobs are available again.")
	die(2)
	open(t, tab, n.url(path))
	press(t, tab, fmt.Sprintf("#retry-%d button", ids[0]))
	wantSaid(t, tab, "1 job is available again.")
	n.awaitJob(t, ids[0], "dead", func(j job) bool { return j.State == "discarded" && j.Attempt == 3 })
	open(t, tab, n.url(path))
	press(t, tab, fmt.Sprintf(`#job-%d a[href$="/discard?id=%d"]`, ids[0], ids[0]))
	press(t, tab, "#act-dead button")
	wantSaid(t, tab, "1 dead letter discarded.")
	do(t, tab, chromedp.Reload())
	awaitTrue(t, tab, `!!document.querySelector("main h1") && !document.querySelector(".said")`)
	awaitTrue(t, tab, fmt.Sprintf(`!document.querySelector("#job-%d") && !!document.querySelector("#job-%d")`, ids[0], ids[1]))
	press(t, tab, `a[href="`+path+`/discard"]`)
	press(t, tab, "#act-dead button")
	wantSaid(t, tab, "2 dead letters discarded.")
	awaitTrue(t, tab, `![...document.querySelectorAll("tbody .lead-cell")].some((cell) => cell.textContent === "doomed")`)
}

// checkEnqueue fills in the fields that a kind's schema asks for, and then writes
// them as JSON.
func checkEnqueue(t *testing.T, n *node) {
	t.Helper()
	tab := newTab(t)
	open(t, tab, n.url("/jobs"))
	press(t, tab, `.acts a[href^="/enqueue"]`)
	do(t, tab, chromedp.WaitVisible(chromedp.CSS("[name=kind]")))
	eval[bool](t, tab, `(() => {
		const kind = document.querySelector("select[name=kind]");
		kind.value = "order";
		return kind.dispatchEvent(new Event("change"));
	})()`)
	do(t, tab, chromedp.WaitVisible(chromedp.CSS(`[name="arg.customer"]`)))
	awaitTrue(t, tab, isWhole)
	if got := eval[string](t, tab, `document.querySelector('[name="arg.speed"]').value`); got != `"slow"` {
		t.Errorf("the default is %s", got)
	}
	press(t, tab, "#act-enqueue .primary") // the browser asks for what is required
	do(t, tab, chromedp.SetValue(chromedp.CSS(`[name="arg.customer"]`), `Ada "A"`), chromedp.SetValue(chromedp.CSS(`[name="arg.count"]`), "3"))
	press(t, tab, "#act-enqueue .primary")
	wantSaid(t, tab, "It was enqueued.")
	wantArgs(t, n, tab, `map[count:3 customer:Ada "A" speed:slow]`)

	open(t, tab, n.url("/enqueue?kind=order&raw=1"))
	do(t, tab, chromedp.SetValue(chromedp.CSS("[name=args]"), `{"customer": 7}`))
	press(t, tab, "#act-enqueue .primary")
	do(t, tab, chromedp.WaitVisible(chromedp.CSS("main .alert")))
	if got := eval[string](t, tab, `document.querySelector("main .alert").textContent`); !strings.Contains(got, "args.customer: wrong type (got number); want string") {
		t.Errorf("the form says %s", got)
	}
	do(t, tab, chromedp.SetValue(chromedp.CSS("[name=args]"), `{"customer": "Bob", "more": [1]}`))
	press(t, tab, "#act-enqueue .primary")
	wantSaid(t, tab, "It was enqueued.")
	wantArgs(t, n, tab, "map[customer:Bob more:[1]]")
}

// wantArgs looks at the job whose page it is.
func wantArgs(t *testing.T, n *node, tab context.Context, want string) { //nolint:revive // the node is the test's
	t.Helper()
	var made job
	path := eval[string](t, tab, `location.pathname`)
	if err := n.get("/api/v1"+path, &made); err != nil || //nolint:contextcheck // the tab's is the browser's
		fmt.Sprint(made.Args) != want {
		t.Errorf("%s has %v (%v), want %s", path, made.Args, err, want)
	}
}

// hook is a receiver of alerts.
type hook struct {
	*httptest.Server
	bodies chan string
}

func newHook(t *testing.T) *hook {
	t.Helper()
	h := &hook{bodies: make(chan string, 16)}
	h.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		select {
		case h.bodies <- string(body):
		default:
		}
	}))
	t.Cleanup(h.Close)
	return h
}

// checkAlerts silences an alert and ends that, and has its receiver told for a test,
// which the page shows as it comes.
func checkAlerts(t *testing.T, n *node, receiver *hook) {
	t.Helper()
	tab := newTab(t)
	open(t, tab, n.url("/alerts"))
	press(t, tab, `#alert-quiet a[href$="/silence"]`)
	do(t, tab, chromedp.WaitVisible(chromedp.CSS("#act-silence")), chromedp.SetValue(chromedp.CSS("[name=reason]"), "we <move>"))
	press(t, tab, "#act-silence button")
	wantSaid(t, tab, "quiet is silenced.")
	if got := eval[string](t, tab, `document.querySelector("#alert-quiet .muted").textContent`); !strings.Contains(got, "we <move>") {
		t.Errorf("the page shows the silence as %q", got)
	}
	press(t, tab, "#unsilence-quiet button")
	wantSaid(t, tab, "quiet is no longer silenced.")
	awaitTrue(t, tab, `!document.querySelector("#alert-quiet .muted")`)

	press(t, tab, `#alert-quiet a[href$="/test"]`)
	press(t, tab, "#act-test button")
	wantSaid(t, tab, "The receivers of quiet are being notified")
	for _, status := range []string{`"status":"firing"`, `"status":"resolved"`} {
		select {
		case body := <-receiver.bodies:
			if !strings.Contains(body, status) || !strings.Contains(body, `"test":"true"`) {
				t.Errorf("the receiver got %s, want %s", body, status)
			}
		case <-tab.Done():
			t.Fatal("the receiver is not told")
		}
	}
	awaitTrue(t, tab, `document.querySelectorAll("[id^=told-] .badge.ok").length === 2`)
}

// checkWhy looks for what the ledger says of a tick, and its job.
func checkWhy(t *testing.T, n *node) {
	t.Helper()
	tab := newTab(t)
	do(t, tab, chromedp.Navigate(n.url("/crons/pulse")), live())
	awaitTrue(t, tab, `document.querySelectorAll(".ledger .why").length > 1`)
	press(t, tab, `.ledger [data-label=Job] a`)
	do(t, tab, chromedp.WaitVisible(chromedp.CSS("#h-attempts")))
}

// checkMoves has leaders step down and transfer, and drains a node.
func checkMoves(t *testing.T, n *node) {
	t.Helper()
	tab := newTab(t)
	old := leader(n)
	open(t, tab, n.url("/leaders"))
	press(t, tab, `#leader-scheduler a[href$="/step-down"]`)
	press(t, tab, "#act-move button")
	wantSaid(t, tab, "The leader of scheduler was asked to step down.")
	nodes.Eventually(t, waitTimeout, "another node leads", func() bool { now := leader(n); return now != "" && now != old })

	open(t, tab, n.url("/leaders"))
	press(t, tab, `#leader-scheduler a[href$="/transfer"]`)
	do(t, tab, chromedp.WaitVisible(chromedp.CSS("#act-move [name=to]")))
	press(t, tab, "#act-move button")
	said(t, tab)
	nodes.Eventually(t, waitTimeout, old+" leads again", func() bool { return leader(n) == old })

	state := func(id string) string {
		var list struct {
			Items []struct {
				ID    string `json:"node_id"`
				State string `json:"state"`
			}
		}
		_ = n.get("/api/v1/nodes", &list) // none, then
		for _, item := range list.Items {
			if item.ID == id {
				return item.State
			}
		}
		return ""
	}
	for _, step := range []struct{ verb, state string }{{"drain", "draining"}, {"undrain", "active"}} {
		open(t, tab, n.url("/nodes"))
		press(t, tab, `#node-south a[href$="/`+step.verb+`"]`)
		press(t, tab, "#act-move button")
		wantSaid(t, tab, "south ")
		nodes.Eventually(t, waitTimeout, "south is "+step.state, func() bool { return state("south") == step.state })
	}
}
