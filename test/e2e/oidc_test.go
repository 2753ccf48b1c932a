package e2e

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

const usersConfig = `
[dashboard]
auth = "token"
[dashboard.groups]
platform = "admin"
readers = "viewer"
[dashboard.oidc]
issuer = %q
client_id = "forge"
client_secret = "${env:CLIENT_SECRET}"
redirect_url = %q
scopes = ["openid", "profile", "email", "groups", "offline_access"]
[[crons]]
name = "nightly"
schedule = "0 2 * * *"
command = ["true"]
`

// newUsers starts dex, a proxy and two nodes. The provider's answers go to another node than
// all other requests.
func newUsers(t *testing.T) (*cluster, *front, *provider) {
	t.Helper()
	f := newFront(t)
	redirect := f.URL + "/login/oidc/callback"
	dex := startDex(t, redirect)
	c := newCluster(t, fmt.Sprintf(usersConfig, dex.issuer(), redirect))
	for _, id := range []string{"a", "b"} {
		c.startProgram(forgeBinary(t), id, "CLIENT_SECRET=s3cret-of-the-client")
	}
	f.node.Store(c.nodes["a"].listen())
	f.callback.Store(c.nodes["b"].listen())
	return c, f, dex
}

// Users of dex log in on one node and use the other.
func TestUsersLogInWithDex(t *testing.T) {
	t.Parallel()
	c, f, dex := newUsers(t)
	a, b := c.nodes["a"].listen(), c.nodes["b"].listen()
	ann := newBrowser(t)
	p := ann.get(f.URL + "/crons")
	if want := f.URL + "/login/oidc?next=%2Fcrons"; p.url.Path != "/login" || !strings.Contains(p.body, want) {
		t.Fatalf("at %s, without %s:\n%s", p.url, want, p.body)
	}
	p = ann.get(f.URL + "/login/oidc?next=%2Fcrons")
	if p.status != http.StatusOK || p.header.Get("Refresh") != "0; url=/crons" {
		t.Fatalf("%d, refresh %q at %s:\n%s", p.status, p.header.Get("Refresh"), p.url, p.body)
	}
	for _, node := range []string{a, b} {
		who, status := ann.whoami(node)
		if want := (caller{Name: "user:ann@example.com", Scope: "admin", Subject: who.Subject, Groups: "platform"}); status != 200 || who != want || who.Subject == "" {
			t.Errorf("%s: %d %+v", node, status, who)
		}
	}
	c.demandActionsOf(ann, f.URL)

	// The same answer of the provider opens no second session.
	if again := ann.get(p.url.String()); again.status != http.StatusBadRequest {
		t.Errorf("an answer that comes again: %d", again.status)
	}
	if stranger := newBrowser(t).get(p.url.String()); stranger.status != http.StatusBadRequest {
		t.Errorf("an answer in another browser: %d", stranger.status)
	}

	dex.set(false, "readers")
	eventually(t, "the session has the new groups", func() bool {
		who, status := ann.whoami(a)
		return status == 200 && who.Scope == "viewer"
	})
	c.demandExtendedOnce(ann, a, b)

	dex.set(true)
	eventually(t, "the session is not valid without the provider's word", func() bool {
		_, status := ann.whoami(b)
		return status == 401
	})

	dex.set(false, "strangers")
	p = ann.get(f.URL + "/login/oidc")
	if p.status != http.StatusForbidden || !strings.Contains(p.body, "platform") || !strings.Contains(p.body, "strangers") {
		t.Errorf("a user of no known group: %d\n%s", p.status, p.body)
	}
	// With that login dex has replaced the refresh token of the session.
	if _, status := ann.whoami(a); status != 401 {
		t.Errorf("a session that dex has ended: %d", status)
	}
	if n := c.number(`SELECT count(*) FROM forge_user_sessions`); n != 0 {
		t.Errorf("%d sessions are left", n)
	}
}

// demandActionsOf demands that what a user does is recorded with the user.
func (c *cluster) demandActionsOf(ann *browser, origin string) {
	c.t.Helper()
	if p := ann.post(origin+"/crons/nightly/pause", url.Values{}); p.status != http.StatusOK {
		c.t.Fatalf("pause: %d\n%s", p.status, p.body)
	}
	out := c.must("audit", "--actor", "user:ann@example.com", "-o", "json")
	for _, action := range []string{"login", "cron.pause"} {
		if !strings.Contains(out, `"action": "`+action+`"`) {
			c.t.Errorf("the audit log lacks %s:\n%s", action, out)
		}
	}
	who, _ := ann.whoami(strings.TrimPrefix(origin, "http://"))
	if n := c.number(`SELECT count(*) FROM forge_audit WHERE subject = $1 AND action = 'cron.pause' AND outcome = 'done'`, who.Subject); n != 1 {
		c.t.Errorf("%d entries with the subject", n)
	}
	if out := c.must("audit", "--subject", who.Subject); !strings.Contains(out, "cron.pause") {
		c.t.Errorf("not found by subject:\n%s", out)
	}
	if p := ann.get(origin + "/api/v1/activity"); !strings.Contains(p.body, "user:ann@example.com") {
		c.t.Errorf("the activity lacks the user:\n%s", p.body)
	}
}

// demandExtendedOnce demands that many requests at the end of the provider's word succeed:
// dex accepts each refresh token once.
func (c *cluster) demandExtendedOnce(ann *browser, nodes ...string) {
	c.t.Helper()
	time.Sleep(idLife + time.Second/2)
	var requests sync.WaitGroup
	for i := range 10 {
		requests.Go(func() {
			if _, status := ann.whoami(nodes[i%len(nodes)]); status != 200 {
				c.t.Errorf("request %d: %d", i, status)
			}
		})
	}
	requests.Wait()
}

// A provider that does not answer ends users' sessions, and nothing else.
func TestNodesServeWithoutTheirProvider(t *testing.T) {
	t.Parallel()
	c, f, dex := newUsers(t)
	ann := newBrowser(t)
	if p := ann.get(f.URL + "/login/oidc"); p.status != http.StatusOK {
		t.Fatalf("%d\n%s", p.status, p.body)
	}
	dex.kill()
	eventually(t, "the session ends", func() bool {
		_, status := ann.whoami(c.nodes["a"].listen())
		return status == 401
	})
	late := c.startProgram(forgeBinary(t), "c", "CLIENT_SECRET=s3cret-of-the-client")
	f.node.Store(late.listen())
	if p := newBrowser(t).get(f.URL + "/login"); p.status != http.StatusOK || !strings.Contains(p.body, "does not answer") {
		t.Errorf("the login page: %d\n%s", p.status, p.body)
	}
	if p := newBrowser(t).get(f.URL + "/login/oidc"); p.status != http.StatusServiceUnavailable {
		t.Errorf("a login: %d\n%s", p.status, p.body)
	}
	token := strings.TrimSpace(c.must("token", "create", "me", "--scope", "viewer"))
	bob := newBrowser(t)
	if p := bob.post(f.URL+"/login", url.Values{"token": {token}, "next": {"/crons"}}); p.status != http.StatusOK || p.url.Path != "/crons" {
		t.Errorf("with a token: %d at %s", p.status, p.url)
	}
	dex.start()
	eventually(t, "users log in again", func() bool {
		return newBrowser(t).get(f.URL+"/login/oidc").status == http.StatusOK
	})
	// Another dex does not know the old session.
	eventually(t, "the session is gone", func() bool {
		_, status := ann.whoami(c.nodes["a"].listen())
		return status == 401 && c.number(`SELECT count(*) FROM forge_user_sessions WHERE created_at < now() - interval '2 seconds' AND valid_until < now()`) == 0
	})
	if out := c.nodes["a"].output.String() + c.nodes["b"].output.String() + late.output.String(); strings.Contains(out, "s3cret-of-the-client") {
		t.Error("the secret of the client is in the log")
	}
}
