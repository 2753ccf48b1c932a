package browser_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/forge-scheduler/forge/test/nodes"
)

// checkLogin shows a node that wants tokens what it asks for, with and without
// scripts: a wrong token, one that may only see, and the way out.
func checkLogin(t *testing.T, n *node) {
	t.Helper()
	gate := n.beside("gate")
	gate.await(t, gate.launch(t, nodes.AnyPort, "FORGE_DASHBOARD_AUTH=token", "FORGE_NODE_ROLES=worker"))
	var made struct{ Token string }
	if err := json.Unmarshal(n.post(t, "/api/v1/tokens", `{"name": "reader", "scope": "viewer"}`), &made); err != nil || made.Token == "" {
		t.Fatalf("no token was made: %v", err)
	}
	checkLooks(t, gate, []page{{"login", "/login"}})
	for _, tab := range []context.Context{newTab(t), newPlainTab(t)} {
		open(t, tab, gate.url("/queues"))
		logIn(t, tab, "forge_wrong")
		do(t, tab, chromedp.WaitVisible(chromedp.CSS("main .alert")))
		logIn(t, tab, made.Token)
		awaitTrue(t, tab, `location.pathname === "/queues" && document.querySelectorAll("tbody tr").length > 2`)
		if eval[bool](t, tab, `!!document.querySelector("main form, main .acts")`) {
			t.Error("who may only see is offered to act")
		}
		press(t, tab, `form[action="/logout"] button`)
		do(t, tab, chromedp.WaitVisible(chromedp.CSS("#token")))
		open(t, tab, gate.url("/queues"))
		do(t, tab, chromedp.WaitVisible(chromedp.CSS("#token")))
	}
}

func logIn(t *testing.T, tab context.Context, token string) { //nolint:revive // the test comes first
	t.Helper()
	do(t, tab, chromedp.WaitVisible(chromedp.CSS("#token")), chromedp.SetValue(chromedp.CSS("#token"), token))
	press(t, tab, "form.login button")
}
