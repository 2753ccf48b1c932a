package dashboard

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
)

func TestFileAPI(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	h := handlerOf(c)
	for path, want := range map[string]string{
		"plan":                         `"until":"2026-11-27T12:00:00Z"`,
		"plan?days=1":                  `"changes":{"crons":{"added":["x"]`,
		"plan?days=0":                  "days must be from 1 to 366",
		"crons/backup/next":            `"utc":"2026-11-25T02:00:00Z"`,
		"crons/backup/next?limit=1":    `{"items":[{"tick":"2026-11-21T02:00:00Z","utc":"2026-11-21T02:00:00Z"}]}`,
		"crons/backup/next?from=noon":  "from must be a time such as",
		"crons/backup/next?limit=1001": "limit must be from 1 to 1000",
		"crons/nobody/next":            "There is no such cron.",
		"crons/backup/next?from=2027-01-01T00:00:00Z&limit=1": `{"items":[{"tick":"2027-01-01T02:00:00Z"`,
	} {
		if w := get(t, h, "/api/v1/"+path); !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	if w := post(t, h, "/api/v1/apply", jsonType, ""); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"in_force":"b"`) {
		t.Errorf("apply: %d %s", w.Code, w.Body)
	}
	if diff := cmp.Diff([]string{"apply"}, c.Done); diff != "" {
		t.Errorf("did (-want +got):\n%s", diff)
	}
}

func TestTokensOverTheAPI(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	h := handlerOf(c)
	for _, step := range []struct {
		path, body string
		status     int
		want, did  string
	}{
		{"tokens", `{"name": "cd"}`, 201, `"token":"forge_secret"`, "token cd viewer 2160h0m0s by the API from 127.0.0.1"},
		{"tokens", `{"name": "cd", "scope": "admin", "expires": "never"}`, 201, `"scope":"admin"`, "token cd admin 0s by the API from 127.0.0.1"},
		{"tokens", `{"name": "ci"}`, 409, `A token \"ci\" exists.`, ""},
		{"tokens", `{"name": "", "scope": "root", "expires": "5s"}`, 422, `"pointer":"#/expires"`, ""},
		{"tokens/ci/revoke", "", 200, `"state":"revoked"`, "revoke ci"},
		{"tokens/nobody/revoke", "", 404, "There is no such token.", ""},
	} {
		c.Done = nil
		w := post(t, h, "/api/v1/"+step.path, jsonType, step.body)
		if w.Code != step.status || !strings.Contains(w.Body.String(), step.want) || strings.Join(c.Done, ";") != step.did {
			t.Errorf("%s %s: %d %s, did %v", step.path, step.body, w.Code, w.Body, c.Done)
		}
	}
	for _, line := range c.AuditLines() {
		if strings.Contains(line, "forge_secret") {
			t.Errorf("the audit log has the secret: %s", line)
		}
	}
	if w := get(t, h, "/api/v1/tokens"); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"name":"ci"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
