package dashboard

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
)

var hiddenField = regexp.MustCompile(`<input type="hidden" name="(\w+)" value="([^"]*)">`)

// The form reverts to what its page showed, and only to that.
func TestRevertOnThePage(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	h := handlerOf(c)
	const path = "/config/" + dashboardtest.OldHash + "/revert"
	page := get(t, h, path).Body.String()
	for _, want := range []string{
		"It removes 1 of 3 crons: z.", "Revert, remove 1 cron", "No running node defines these jobs so: dump.", "keep their own files", "No node puts its file in force again by itself",
		`<b>x</b>`, "added", `<code>&#34;a&#34;</code>`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the confirmation lacks %s", want)
		}
	}
	form := url.Values{}
	for _, field := range hiddenField.FindAllStringSubmatch(page, -1) {
		form.Set(field[1], field[2])
	}
	for name, value := range map[string]string{"in_force": "other", "reviewed": "other"} {
		changed := url.Values{"in_force": form["in_force"], "reviewed": form["reviewed"]}
		changed.Set(name, value)
		if w := post(t, h, path, formType, changed.Encode()); w.Code != http.StatusConflict || len(c.Done) > 0 {
			t.Errorf("with another %s: %d, did %v", name, w.Code, c.Done)
		}
	}
	w := post(t, h, path, formType, form.Encode())
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/config?did=revert" {
		t.Errorf("%d to %s", w.Code, w.Header().Get("Location"))
	}
	if diff := cmp.Diff([]string{"revert " + dashboardtest.OldHash}, c.Done); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if page := get(t, h, "/config?did=revert").Body.String(); !strings.Contains(page, "The earlier configuration is in force.") {
		t.Error("the list does not report the revert")
	}
	if page := get(t, h, "/config/"+dashboardtest.NewHash+"/revert").Body.String(); !strings.Contains(page, "This configuration is in force.") || strings.Contains(page, "act-revert") {
		t.Error("a revert to what is in force is offered")
	}
}

// Only admins are offered a revert.
func TestConfigurationsOfReaders(t *testing.T) {
	t.Parallel()
	_, options := clusterWithTokens()
	h := New(options)
	for token, may := range map[string]bool{"viewer": false, "operator": false, "admin": true} {
		for _, path := range []string{"/config", "/config/" + dashboardtest.OldHash} {
			if w := requestAs(t, h, token, http.MethodGet, path); w.Code != http.StatusOK || strings.Contains(w.Body.String(), "/revert") != may {
				t.Errorf("%s of %s: %d, want a revert: %t", path, token, w.Code, may)
			}
		}
		if w := requestAs(t, h, token, http.MethodGet, "/config/"+dashboardtest.OldHash+"/revert"); (w.Code == http.StatusOK) != may {
			t.Errorf("the confirmation of %s: %d", token, w.Code)
		}
	}
}
