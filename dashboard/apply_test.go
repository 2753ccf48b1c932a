package dashboard

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
)

// Readers of a cluster whose nodes agree on an earlier file see what differs; those who may
// apply it see the button.
func TestRevertedFileIsOfferedToAdmins(t *testing.T) {
	t.Parallel()
	c, options := clusterWithTokens()
	for i := range c.Nodes {
		c.Nodes[i].ConfigHash = "b"
	}
	options.Pages.Applied = func(context.Context) (string, error) { return "a", nil }
	options.Pages.Differs = func(context.Context, string, string) (string, error) { return "crons ~y", nil }
	h := New(options)
	for _, path := range []string{"/", "/nodes"} {
		for token, want := range map[string]bool{"viewer": false, "operator": false, "admin": true} {
			page := requestAs(t, h, token, http.MethodGet, path).Body.String()
			if !strings.Contains(page, "active nodes run an earlier file than the one in force") || !strings.Contains(page, "crons ~y") {
				t.Errorf("%s does not say what is wrong", path)
			}
			if strings.Contains(page, `class="button" href="/apply"`) != want || strings.Contains(page, "Give every node the same file") {
				t.Errorf("%s offers a %s something else than it should", path, token)
			}
		}
	}
	for token, want := range map[string]string{"viewer": "needs the scope admin", "admin": `id="act-apply"`} {
		page := requestAs(t, h, token, http.MethodGet, "/apply").Body.String()
		for _, want := range []string{
			"queue bulk: limit_per_key = { key = &#34;args.tenant&#34;, limit = 2 } would hold back 40 of the waiting jobs now, of 3 values.",
			"queue mail is removed while jobs wait in it (5): no node with this file takes them.",
			"Further new or changed limits, for which nothing was counted: 7<",
		} {
			if !strings.Contains(page, want) {
				t.Errorf("the page does not say %s", want)
			}
		}
		for _, want := range []string{want, "<b>x</b>", "<dt>schedule</dt>", "All active nodes run this file"} {
			if !strings.Contains(page, want) {
				t.Errorf("the page of a %s does not say %q:\n%s", token, want, page)
			}
		}
	}
}

// The form applies what the page has shown, and says so in the audit log.
func TestFormAppliesFile(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	for i := range c.Nodes {
		c.Nodes[i].ConfigHash = "b"
	}
	h := handlerOf(c)
	if w := post(t, h, "/apply", formType, "hash=b&in_force=c"); w.Code != http.StatusConflict || len(c.Done) > 0 {
		t.Errorf("another configuration is in force than was shown: status %d, done %q", w.Code, c.Done)
	}
	if w := post(t, h, "/apply", formType, "hash=b&in_force=a"); w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/nodes?did=apply" || len(c.Done) != 1 {
		t.Errorf("status %d, to %s, done %q", w.Code, w.Header().Get("Location"), c.Done)
	}
	if page := get(t, h, "/nodes?did=apply").Body.String(); !strings.Contains(page, "The file of the nodes is in force.") {
		t.Error("the page does not say what was done")
	}
	if lines := c.AuditLines(); len(lines) != 2 || !strings.Contains(lines[1], "apply") || !strings.Contains(lines[1], "configuration b") {
		t.Errorf("the audit log has %q", lines)
	}
}
