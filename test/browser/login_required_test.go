package browser_test

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/test/nodes"
)

// checkLogin shows a node that wants tokens what it asks for, with and without
// scripts: a wrong token, one that may only see, and the way out.
func checkLogin(t *testing.T, n *node) {
	t.Helper()
	guarded := n.beside("guarded")
	guarded.await(t, guarded.launch(t, nodes.AnyPort, "FORGE_DASHBOARD_AUTH=token", "FORGE_NODE_ROLES=worker"))
	token := n.makeToken(t, "visitor", "viewer")
	checkLooks(t, guarded, []page{{"login", "/login"}})
	for _, tab := range []context.Context{newTab(t), newPlainTab(t)} {
		open(t, tab, guarded.url("/queues"))
		logIn(t, tab, "forge_wrong")
		do(t, tab, chromedp.WaitVisible(chromedp.CSS("main .alert")))
		logIn(t, tab, token)
		awaitTrue(t, tab, `location.pathname === "/queues" && document.querySelectorAll("tbody tr").length > 2`)
		if eval[bool](t, tab, `!!document.querySelector("main form[method=post]:not([action='/views']), main .acts")`) {
			t.Error("who may only see is offered to act on more than the own views")
		}
		press(t, tab, `form[action="/logout"] button`)
		do(t, tab, chromedp.WaitVisible(chromedp.CSS("#token")))
		open(t, tab, guarded.url("/queues"))
		do(t, tab, chromedp.WaitVisible(chromedp.CSS("#token")))
	}
	admin := n.makeToken(t, "chief", "admin")
	checkTokens(t, guarded, admin, newTab(t))
	checkTokens(t, guarded, admin, newPlainTab(t))
	n.addSessions(t, "a", "b")
	checkSessions(t, guarded, admin, newTab(t), strings.Repeat("a", 16))
	checkSessions(t, guarded, admin, newPlainTab(t), strings.Repeat("b", 16))
	checkReturnAfterLogin(t, guarded, token, admin)
	checkSignedOut(t, guarded, admin)
}

// checkTokens does the task "make and revoke a token" from the overview on.
func checkTokens(t *testing.T, guarded *node, admin string, tab context.Context) { //nolint:revive // the node is the test's
	t.Helper()
	open(t, tab, guarded.url("/"))
	logIn(t, tab, admin)
	awaitTrue(t, tab, `location.pathname === "/" && !!document.querySelector("nav")`)
	k := &task{T: t, node: guarded, tab: tab}
	k.click(`nav a[href="/tokens"]`)
	k.sees("#act-create [name=name]")
	do(t, tab, chromedp.SetValue(chromedp.CSS("#act-create [name=name]"), "brief"))
	k.click("#act-create button")
	k.sees("#secret")
	secret := eval[string](t, tab, `document.querySelector("#secret").textContent`)
	if status := statusAs(t, guarded, secret); status != http.StatusOK { //nolint:contextcheck // the tab's is the browser's
		t.Errorf("the new token gets %d", status)
	}
	k.click(`main a[href="/tokens/brief/revoke"]`)
	k.click("#act-move button")
	wantSaid(t, tab, "brief is revoked.")
	if status := statusAs(t, guarded, secret); status != http.StatusUnauthorized { //nolint:contextcheck // the tab's is the browser's
		t.Errorf("the revoked token gets %d", status)
	}
	if k.clicks > mostClicks {
		t.Errorf("it took %d clicks, want at most %d", k.clicks, mostClicks)
	}
}

// checkSessions ends the session of a user as an admin. id is that of the session.
func checkSessions(t *testing.T, guarded *node, admin string, tab context.Context, id string) { //nolint:revive // the node is the test's
	t.Helper()
	open(t, tab, guarded.url("/"))
	logIn(t, tab, admin)
	awaitTrue(t, tab, `location.pathname === "/" && !!document.querySelector("nav")`)
	press(t, tab, `.who a[href="/sessions"]`)
	end := `#session-` + id + ` button`
	do(t, tab, chromedp.WaitVisible(chromedp.CSS(end)))
	press(t, tab, end)
	wantSaid(t, tab, "The session of ann@example.com has ended.")
	awaitTrue(t, tab, `!document.querySelector("#session-`+id+`")`)
}

// addSessions adds sessions of a user, whose ids are of one digit.
func (n *node) addSessions(t *testing.T, digits ...string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), strings.TrimPrefix(n.database, "FORGE_DATABASE_URL="))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	if _, err := conn.Exec(t.Context(), `
		INSERT INTO forge_user_sessions (hash, issuer, subject, name, groups, sealed, valid_until, expires_at)
		SELECT decode(repeat(digit, 64), 'hex'), 'https://login.example.com', '42', 'ann@example.com', '{platform}', '', now() + interval '1 h', now() + interval '1 h'
		FROM unnest($1::text[]) AS digit`, digits); err != nil {
		t.Fatal(err)
	}
}

// statusAs is what the API answers to a token.
func statusAs(t *testing.T, n *node, token string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.url("/api/v1/whoami"), nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	return response.StatusCode
}

// checkReturnAfterLogin wants who may not see a page to be told why, and to be led there
// by logging in with a token that suffices.
func checkReturnAfterLogin(t *testing.T, guarded *node, viewer, admin string) {
	t.Helper()
	tab := newTab(t)
	open(t, tab, guarded.url("/tokens?did=nothing"))
	logIn(t, tab, viewer)
	awaitTrue(t, tab, `document.querySelector(".lost p:not(.lost-code)")?.textContent === "This needs the scope admin. The token visitor has the scope viewer."`)
	for _, v := range violations(t, axed(t, tab), everyRule) {
		t.Errorf("%s (%s)", v.Help, v.ID)
	}
	press(t, tab, `.lost a[href^="/login?"]`)
	logIn(t, tab, admin)
	awaitTrue(t, tab, `location.pathname + location.search === "/tokens?did=nothing" && !!document.querySelector("#act-create")`)
}

// checkSignedOut wants a live page to say that its session has ended, and to lead back to
// itself by a login.
func checkSignedOut(t *testing.T, guarded *node, admin string) {
	t.Helper()
	tab := newTab(t)
	const address = "/crons?filter=cron%3A*&sort=next"
	open(t, tab, guarded.url(address))
	logIn(t, tab, guarded.makeToken(t, "leaver", "viewer"))
	awaitTrue(t, tab, `location.pathname === "/crons" && document.querySelector("#conn")?.dataset.state === "live" && !document.querySelector("#signed-out").checkVisibility()`)
	guarded.token(t, "revoke", "leaver")
	awaitTrue(t, tab, `document.querySelector("#signed-out").checkVisibility() && document.querySelector("#conn-text").textContent === "Signed out"`)
	if got := eval[string](t, tab, `[document.querySelector("#signed-out").textContent.trim(), document.querySelector("#offline").checkVisibility()].join()`); got != "Signed out. Log in again,false" {
		t.Errorf("the page says %q", got)
	}
	for _, v := range violations(t, axed(t, tab), everyRule) {
		t.Errorf("%s (%s)", v.Help, v.ID)
	}
	press(t, tab, "#signed-out a")
	logIn(t, tab, admin)
	awaitTrue(t, tab, fmt.Sprintf(`location.pathname + location.search === %q && document.querySelector("#conn")?.dataset.state === "live"`, address))
}

// makeToken makes one as an administrator of the database does.
func (n *node) makeToken(t *testing.T, name, scope string) string {
	t.Helper()
	return n.token(t, "create", name, "--scope", scope)
}

// token runs forge token.
func (n *node) token(t *testing.T, args ...string) string {
	t.Helper()
	binary, err := forgeBinary()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), binary, append(append([]string{"token"}, args...), "--config", n.config)...)
	command.Env = append(command.Environ(), n.database)
	output, err := command.Output()
	if err != nil {
		t.Fatalf("forge token %q: %v", args, err)
	}
	return strings.TrimSpace(string(output))
}

func logIn(t *testing.T, tab context.Context, token string) { //nolint:revive // the test comes first
	t.Helper()
	do(t, tab, chromedp.WaitVisible(chromedp.CSS("#token")), chromedp.SetValue(chromedp.CSS("#token"), token))
	press(t, tab, "form.login button")
}
