package browser_test

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// cronDocument is what the API says of a cron.
type cronDocument struct {
	PausedAt time.Time `json:"paused_at"`
}

// said waits for what a form has come to, and returns it.
func said(t *testing.T, tab context.Context) string { //nolint:revive // the test comes first
	t.Helper()
	do(t, tab, chromedp.WaitVisible(chromedp.CSS(".said")))
	awaitTrue(t, tab, isWhole)
	return strings.Join(strings.Fields(eval[string](t, tab, `document.querySelector(".said").textContent`)), " ")
}

// checkByHand presses every button of a cron's page.
func checkByHand(t *testing.T, n *node, tab context.Context) { //nolint:revive // the node is the test's
	t.Helper()
	page := n.url("/crons/" + byHand)
	open(t, tab, page)
	press(t, tab, "#act-trigger button")
	if got := said(t, tab); !regexp.MustCompile(`^It runs now, as job \d+$`).MatchString(got) {
		t.Errorf("after Run now: %s", got)
	}
	paused := func() bool { //nolint:contextcheck // the tab's is the browser's
		var cron cronDocument
		return n.get("/api/v1/crons/"+byHand, &cron) == nil && !cron.PausedAt.IsZero()
	}
	open(t, tab, page)
	press(t, tab, "#act-pause button")
	do(t, tab, chromedp.WaitVisible(chromedp.CSS("#act-resume button")))
	if got := said(t, tab); got != "It is paused." || !paused() {
		t.Errorf("after Pause: %s, paused %v", got, paused())
	}
	if held := eval[string](t, tab, `document.querySelector(".held").textContent`); !strings.HasPrefix(held, "Paused by hand since ") {
		t.Errorf("held: %s", held)
	}
	press(t, tab, "#act-resume button")
	do(t, tab, chromedp.WaitVisible(chromedp.CSS("#act-pause button")))
	if got := said(t, tab); got != "It is resumed." || paused() {
		t.Errorf("after Resume: %s, paused %v", got, paused())
	}
	checkBackfill(t, n, tab, page)
}

// checkBackfill previews one, which runs nothing, and then runs it.
func checkBackfill(t *testing.T, n *node, tab context.Context, page string) { //nolint:revive // the node is the test's
	t.Helper()
	recorded := func() (count int) { //nolint:contextcheck // the tab's is the browser's
		var ticks struct {
			Items []struct{ Verdict string }
		}
		if err := n.get("/api/v1/crons/"+byHand+"/ticks?limit=1000", &ticks); err != nil {
			t.Fatal(err)
		}
		for _, tick := range ticks.Items {
			if tick.Verdict == "backfilled" {
				count++
			}
		}
		return count
	}
	before := recorded()
	press(t, tab, `.acts a[href$="/backfill"]`)
	do(t, tab, chromedp.WaitVisible(chromedp.CSS("#preview button")), chromedp.SetValue(chromedp.CSS("#preview [name=limit]"), "3"))
	press(t, tab, "#preview button")
	do(t, tab, chromedp.WaitVisible(chromedp.CSS("#act-backfill button")))
	if got := eval[string](t, tab, `document.querySelector("#h-plan").textContent`); got != "3 ticks would run" || recorded() != before {
		t.Errorf("the preview: %s; %d ticks backfilled, before %d", got, recorded(), before)
	}
	press(t, tab, "#act-backfill button")
	if got := said(t, tab); got != "Backfilled: 3 ticks run." || recorded() != before+3 {
		t.Errorf("after the backfill: %s; %d ticks backfilled, before %d", got, recorded(), before)
	}
	if at := eval[string](t, tab, `location.href`); !strings.HasPrefix(at, page) {
		t.Errorf("it led to %s", at)
	}
}

// checkZone wants the next runs of a cron in the reader's own zone, which a server does
// not know.
func checkZone(t *testing.T, n *node) {
	t.Helper()
	const zone = "Asia/Tokyo"
	tokyo, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	tab := newTab(t)
	if _, err := chromedp.Call(tab, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: zone}); err != nil {
		t.Fatal(err)
	}
	open(t, tab, n.url("/crons/"+seldom))
	awaitTrue(t, tab, `document.querySelector("[data-zone]").textContent === "Your time, `+zone+`"`)
	type run struct {
		At   int64  `json:"at"`
		Text string `json:"text"`
	}
	runs := eval[[]run](t, tab, `[...document.querySelectorAll("time[data-local]")].map((e) => ({at: +e.dataset.local, text: e.textContent}))`)
	if len(runs) != 5 {
		t.Errorf("%d next runs, want 5", len(runs))
	}
	for _, r := range runs {
		if want := time.UnixMilli(r.At).In(tokyo).Format("Mon 2006-01-02 15:04:05"); r.Text != want {
			t.Errorf("the reader is told of a run at %q, want %q", r.Text, want)
		}
	}
}
