package dashboard

import (
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/alerts"
)

func TestAlertsPage(t *testing.T) {
	t.Parallel()
	h := handlerOf(dashboardtest.New())
	page := get(t, h, "/alerts").Body.String()
	for _, want := range []string{
		`id="alert-no_scheduler_leader"`, "firing</span>", "inactive</span>", "<code>sum(forge_leader_is_leader{role=&#39;scheduler&#39;}) == 0</code>",
		"role=scheduler 0, since", `<a href="/leaders/scheduler/terms/latest">What happened</a>`, "pager, slack:#ops", `id="occurrence-7"`, "slack:#ops could not be told in 2 tries (gone)",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q:\n%s", want, page)
		}
	}
}

func TestAlertsAPI(t *testing.T) {
	t.Parallel()
	h := handlerOf(dashboardtest.New())
	found := decode[web.List[alerts.Status]](t, get(t, h, "/api/v1/alerts")).Items
	if len(found) != 2 || found[0].State != alerts.Firing || found[0].Occurrences[0].Labels["role"] != "scheduler" || found[1].State != alerts.Inactive {
		t.Errorf("alerts: %+v", found)
	}
	if past := decode[web.List[alerts.Occurrence]](t, get(t, h, "/api/v1/alerts/history?alert=a&limit=5")).Items; len(past) != 1 || past[0].ID != 7 {
		t.Errorf("history: %+v", past)
	}
	if told := decode[web.List[alerts.Notification]](t, get(t, h, "/api/v1/alerts/notifications")).Items; len(told) != 1 || told[0].Target != "slack:#ops" {
		t.Errorf("told: %+v", told)
	}
}
