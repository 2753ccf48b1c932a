package browser_test

import (
	"net/url"
	"testing"
)

// inForce is the hash of the configuration in force.
func inForce(n *node) string {
	var history struct{ Items []struct{ Hash string } }
	if err := n.get("/api/v1/config?limit=1", &history); err != nil || len(history.Items) != 1 {
		return ""
	}
	return history.Items[0].Hash
}

// checkRevert finds out what the last configuration has changed, and reverts to the one before,
// as a task that begins at the overview. checkReverted has put both in force.
func checkRevert(t *testing.T, n *node) {
	t.Helper()
	before := inForce(n)
	k := &task{T: t, node: n, tab: newTab(t)}
	open(t, k.tab, n.url("/"))
	k.click(`nav a[href="/activity"]`)
	k.click(`.activity a[href="/config/` + before + `"]`)
	awaitTrue(t, k.tab, `document.querySelector("main .diff")?.textContent.includes("monthly")`)
	k.click("#act-to-revert")
	awaitTrue(t, k.tab, `location.pathname.endsWith("/revert") && document.querySelector("main .diff")?.textContent.includes("monthly")`)
	k.click("#act-revert button")
	wantSaid(t, k.tab, "The earlier configuration is in force. What changed")
	if k.clicks > mostClicks {
		t.Errorf("it took %d clicks, want at most %d", k.clicks, mostClicks)
	}
	if inForce(n) == before {
		t.Error("the configuration in force is still the same")
	}
	n.post(t, "/api/v1/config/"+url.PathEscape(before)+"/revert", "{}")
	if inForce(n) != before {
		t.Error("the revert is not undone")
	}
}
