package browser_test

import (
	"context"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// checkTimes wants each age on the pages to have its instant for whoever points at it, and to
// be printed as that instant.
func checkTimes(t *testing.T, n *node) {
	t.Helper()
	tab := newTab(t)
	for _, p := range everyPage(n) {
		open(t, tab, n.url(p.path))
		awaitTrue(t, tab, isWhole)
		for _, wrong := range eval[[]string](t, tab, `[...document.querySelectorAll("time[data-mode]")]
			.filter((el) => Number.isNaN(Date.parse(el.dateTime)) || el.title !== el.dateTime).map((el) => el.outerHTML)`) {
			t.Errorf("%s has no instant in %s", p.name, wrong)
		}
		media(t, tab, "print")
		for _, wrong := range eval[[]string](t, tab, `[...document.querySelectorAll("time[data-mode]")].filter((el) => el.checkVisibility())
			.filter((el) => getComputedStyle(el, "::after").content !== JSON.stringify(el.dateTime) || getComputedStyle(el).fontSize !== "0px").map((el) => el.outerHTML)`) {
			t.Errorf("%s prints no instant for %s", p.name, wrong)
		}
		media(t, tab, "")
	}
}

// media has the tab show its page as on paper, or as on a screen if it is empty.
func media(t *testing.T, tab context.Context, as string) { //nolint:revive // the test comes first
	t.Helper()
	do(t, tab, chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: as})
		return err
	}))
}
