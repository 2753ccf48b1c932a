package browser_test

import (
	"context"
	"os/exec"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/forge-scheduler/forge/test/nodes"
)

// checkLogin shows a node that wants tokens what it asks for, with and without
// scripts: a wrong token, one that may only see, and the way out.
func checkLogin(t *testing.T, n *node) {
	t.Helper()
	guarded := n.beside("guarded")
	guarded.await(t, guarded.launch(t, nodes.AnyPort, "FORGE_DASHBOARD_AUTH=token", "FORGE_NODE_ROLES=worker"))
	token := n.makeToken(t, "reader")
	checkLooks(t, guarded, []page{{"login", "/login"}})
	for _, tab := range []context.Context{newTab(t), newPlainTab(t)} {
		open(t, tab, guarded.url("/queues"))
		logIn(t, tab, "forge_wrong")
		do(t, tab, chromedp.WaitVisible(chromedp.CSS("main .alert")))
		logIn(t, tab, token)
		awaitTrue(t, tab, `location.pathname === "/queues" && document.querySelectorAll("tbody tr").length > 2`)
		if eval[bool](t, tab, `!!document.querySelector("main form, main .acts")`) {
			t.Error("who may only see is offered to act")
		}
		press(t, tab, `form[action="/logout"] button`)
		do(t, tab, chromedp.WaitVisible(chromedp.CSS("#token")))
		open(t, tab, guarded.url("/queues"))
		do(t, tab, chromedp.WaitVisible(chromedp.CSS("#token")))
	}
}

// makeToken makes one as an administrator of the database does.
func (n *node) makeToken(t *testing.T, name string) string {
	t.Helper()
	binary, err := forgeBinary()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), binary, "token", "create", name, "--config", n.config)
	command.Env = append(command.Environ(), n.database)
	token, err := command.Output()
	if err != nil {
		t.Fatalf("no token was made: %v", err)
	}
	return strings.TrimSpace(string(token))
}

func logIn(t *testing.T, tab context.Context, token string) { //nolint:revive // the test comes first
	t.Helper()
	do(t, tab, chromedp.WaitVisible(chromedp.CSS("#token")), chromedp.SetValue(chromedp.CSS("#token"), token))
	press(t, tab, "form.login button")
}
