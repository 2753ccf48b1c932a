package dashboard

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/cronstore"
)

// A revert over the API removes crons only with yes, and only for admins.
func TestRevertOverTheAPI(t *testing.T) {
	t.Parallel()
	c, options := clusterWithTokens()
	h := New(options)
	const path = "/api/v1/config/" + dashboardtest.OldHash + "/revert"
	for token, want := range map[string]int{"viewer": http.StatusForbidden, "operator": http.StatusForbidden, "admin": http.StatusConflict} {
		if w := requestAs(t, h, token, http.MethodPost, path); w.Code != want {
			t.Errorf("%s: %d, want %d", token, w.Code, want)
		}
	}
	open := handlerOf(c)
	if w := post(t, open, path, jsonType, "{}"); w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), `The configuration is not applied: it would remove 1 of 3 crons (z). Set \"yes\": true`) {
		t.Errorf("without yes: %d %s", w.Code, w.Body)
	}
	if len(c.Done) > 0 {
		t.Errorf("done: %v", c.Done)
	}
	if w := post(t, open, path, jsonType, `{"yes": true}`); w.Code != http.StatusOK || decode[cronstore.Outcome](t, w).InForce != dashboardtest.OldHash {
		t.Errorf("with yes: %d %s", w.Code, w.Body)
	}
	if diff := cmp.Diff([]string{"revert " + dashboardtest.OldHash}, c.Done); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if lines := c.AuditLines(); !strings.Contains(lines[len(lines)-1], "config.revert "+dashboardtest.OldHash+": done 200 configuration "+dashboardtest.OldHash) {
		t.Errorf("audit: %s", lines)
	}
	for path, want := range map[string]int{
		"/api/v1/config/dddd/plan": http.StatusNotFound, "/api/v1/config/cccc/plan": http.StatusConflict, "/api/v1/config/dddd/diff": http.StatusNotFound,
	} {
		if w := get(t, open, path); w.Code != want {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

func TestConfigurationsPageByPage(t *testing.T) {
	t.Parallel()
	h := handlerOf(dashboardtest.New())
	var hashes []string
	for _, a := range walk[cronstore.Application](t, h, "/api/v1/config?limit=1", func(int) {}) {
		hashes = append(hashes, a.Hash)
	}
	if diff := cmp.Diff([]string{dashboardtest.NewHash, dashboardtest.OldHash}, hashes); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if list := decode[web.List[cronstore.Application]](t, get(t, h, "/api/v1/config")); len(list.Items) != 2 || list.Next != "" {
		t.Errorf("the list is %+v", list)
	}
}
