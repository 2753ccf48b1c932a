package browser_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	oidcconfig "github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/test/nodes"
)

const usersConfig = `
[dashboard]
auth = "token"
[dashboard.groups]
platform = "admin"
[dashboard.oidc]
issuer = %q
client_id = "forge"
client_secret = "s3cret-of-the-client"
redirect_url = %q
scopes = ["openid", "profile", "email", "groups", "offline_access"]
[[crons]]
name = "nightly"
schedule = "0 2 * * *"
command = ["true"]
`

// startDex runs dex, which logs everybody in as ann, and returns its address.
func startDex(t *testing.T, redirect string) string {
	t.Helper()
	program := filepath.Join(binaries, "dex")
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-w", "-o", program, ".")
	build.Dir, build.Env = "../dex", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build dex: %v\n%s", err, out)
	}
	listen := nodes.FreeAddress(t)
	_, output := nodes.Launch(t, program, nil, "-listen", listen, "-redirect", redirect, "-life", "3s")
	nodes.Eventually(t, waitTimeout, "dex listens", func() bool { return strings.Contains(output.String(), "issuer=") })
	return listen
}

// A user logs in with a provider, sees who that is, and logs out. A live page says that the
// provider has ended the session.
func TestLoginWithProvider(t *testing.T) {
	t.Parallel()
	newTab(t) // not run without a browser, before there are nodes
	listen := nodes.FreeAddress(t)
	redirect := "http://" + listen + oidcconfig.CallbackPath
	dex := startDex(t, redirect)
	n := &node{id: "north", config: filepath.Join(t.TempDir(), "forge.toml"), database: "FORGE_DATABASE_URL=" + pgtest.URL(t)}
	if err := os.WriteFile(n.config, fmt.Appendf(nil, usersConfig, "http://"+dex+"/dex", redirect), 0o600); err != nil {
		t.Fatal(err)
	}
	n.await(t, n.launch(t, listen))
	for _, tab := range []context.Context{newTab(t), newPlainTab(t)} {
		logInAsUser(t, tab, n)
		session := sessionOf(t, tab)
		if status := statusWith(t, n, session); status != http.StatusOK {
			t.Errorf("with the session: %d", status)
		}
		press(t, tab, `form[action="/logout"] button`)
		do(t, tab, chromedp.WaitVisible(chromedp.CSS(`a[href*="/login/oidc"]`)))
		if status := statusWith(t, n, session); status != http.StatusUnauthorized {
			t.Errorf("with the session after the logout: %d", status)
		}
		open(t, tab, n.url("/crons"))
		do(t, tab, chromedp.WaitVisible(chromedp.CSS(`a[href*="/login/oidc"]`)))
	}
	tab := newTab(t)
	logInAsUser(t, tab, n)
	do(t, tab, live())
	answer, err := http.Post("http://"+dex+"/identity", "application/json", strings.NewReader(`{"Ended": true}`))
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("end the session at the provider: %v, %v", answer, err)
	}
	_ = answer.Body.Close()
	awaitTrue(t, tab, `document.querySelector("#signed-out").checkVisibility() && document.querySelector("#conn-text").textContent === "Signed out"`)
}

// logInAsUser goes from a page to the provider and back, and wants the page to say who reads it.
func logInAsUser(t *testing.T, tab context.Context, n *node) { //nolint:revive // the test comes first
	t.Helper()
	open(t, tab, n.url("/crons"))
	do(t, tab, chromedp.WaitVisible(chromedp.CSS(`a[href*="/login/oidc"]`)), chromedp.Click(chromedp.CSS(`a[href*="/login/oidc"]`)))
	awaitTrue(t, tab, `location.pathname === "/crons" && !!document.querySelector(".who")`)
	if who := eval[string](t, tab, `document.querySelector(".who").textContent`); !strings.Contains(who, "ann@example.com") || !strings.Contains(who, "admin") {
		t.Errorf("the page is read by %q", who)
	}
}

// sessionOf is the cookie of the session, which no script can read.
func sessionOf(t *testing.T, tab context.Context) *http.Cookie { //nolint:revive // the test comes first
	t.Helper()
	var found *http.Cookie
	do(t, tab, chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		got, err := chromedp.Call(ctx, network.GetCookies, network.GetCookiesParams{})
		if err != nil {
			return err
		}
		for _, cookie := range got.Cookies {
			if strings.HasPrefix(cookie.Value, "forgeuser_") {
				found = &http.Cookie{Name: cookie.Name, Value: cookie.Value}
				if !cookie.HTTPOnly {
					t.Error("scripts can read the session")
				}
			}
		}
		return nil
	}))
	if found == nil {
		t.Fatal("the browser has no session")
	}
	return found
}

// statusWith is what the API answers to a session.
func statusWith(t *testing.T, n *node, session *http.Cookie) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.url("/api/v1/whoami"), nil)
	if err != nil {
		t.Fatal(err)
	}
	request.AddCookie(session)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	return response.StatusCode
}
