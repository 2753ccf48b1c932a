package dashboard

import (
	"net/http"
	"testing"

	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/internal/incident"
)

func TestIncidentAPI(t *testing.T) {
	t.Parallel()
	h := handlerOf(dashboardtest.New())
	for _, term := range []string{"7", "latest"} {
		got := decode[incident.Incident](t, get(t, h, "/api/v1/leaders/scheduler/incidents/"+term))
		if got.Term != 7 || got.Old.EndReason != "crashed" || len(got.Ticks.Items) != 1 || !got.Lost.Nothing {
			t.Errorf("%s: %+v", term, got)
		}
	}
	for _, path := range []string{"scheduler/incidents/8", "scheduler/incidents/x", "scheduler/incidents/-1", "nobody/incidents/latest"} {
		if w := get(t, h, "/api/v1/leaders/"+path); w.Code != http.StatusNotFound {
			t.Errorf("%s: status %d", path, w.Code)
		}
	}
}
