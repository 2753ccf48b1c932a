package dashboard

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/internal/cronstore"
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

func TestIncidentPage(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	page := get(t, handlerOf(c), "/leaders/scheduler/terms/7").Body.String()
	for _, want := range []string{
		"node-2 crashed. node-1 became the leader 8ms later.", `href="/leaders/scheduler/terms/6"`, `href="/crons/backup"`, ">1.04 s<",
		`href="/jobs/42"`, `<a href="/crons/backup?at=2026-11-20T11%3A58%3A59Z#h-ticks"><time`, ">What changed before<", ">node-1 started its election<", ">2026-11-20 11:59:00.000 UTC<", "Nothing was lost.", "after 8.0 ms without a leader",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	for path, want := range map[string]string{
		"/leaders": `href="/leaders/scheduler/terms/7"`, "/": `<a href="/leaders/scheduler/terms/7">Last failover: Scheduler, `, "/leaders?span=7d": `<a class="gap brief" href="/leaders/scheduler/terms/7"`,
	} {
		if !strings.Contains(get(t, handlerOf(c), path).Body.String(), want) {
			t.Errorf("%s has no %s", path, want)
		}
	}
	for _, path := range []string{"/leaders/scheduler/terms/8", "/leaders/scheduler/terms/x", "/leaders/nobody/terms/1"} {
		if w := get(t, handlerOf(c), path); w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "The history has no such term.") {
			t.Errorf("%s: status %d", path, w.Code)
		}
	}
}

// What could be lost is shown, and what could not be checked.
func TestIncidentPageShowsLosses(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		alter func(*incident.Incident)
		want  []string
	}{
		"lost": {func(i *incident.Incident) {
			i.Lost = incident.Lost{Ticks: &cronstore.Unrecorded{LostCount: 1, Lost: []cronstore.DueTick{{Cron: "gone", Tick: i.ElectedAt}}}}
		}, []string{`href="/crons/gone"`, "1 due tick is not in the ledger.", `<li class="bad">`}},
		"orphaned": {func(i *incident.Incident) { i.Lost.Nothing, i.Jobs.Orphaned = false, 3 }, []string{"3 jobs are still orphaned.", `<li class="warn">`}},
		"waiting": {func(i *incident.Incident) {
			i.Lost = incident.Lost{Ticks: &cronstore.Unrecorded{WaitingCount: 7, Waiting: []cronstore.DueTick{{Cron: "due", Tick: i.ElectedAt}}}}
		}, []string{`href="/crons/due"`, "7 due ticks are not recorded yet.", ">6 more<"}},
		"unchecked": {func(i *incident.Incident) {
			i.Lost, i.EventsKept, i.Events, i.Jobs = incident.Lost{Unchecked: "The events are gone."}, false, nil, incident.Jobs{}
		}, []string{">unknown<", "none known", "The events are gone.", "past <code>retention.events</code>"}},
		"no ledger": {func(i *incident.Incident) { i.Ticks, i.Lost = nil, incident.Lost{Unchecked: "They are gone."} }, []string{"past <code>retention.cron_ticks</code>", "They are gone."}},
		"no leader": {func(i *incident.Incident) {
			i.Kind, i.NodeID, i.ElectedAt, i.FirstTick, i.Ticks = incident.NoLeader, "", time.Time{}, nil, nil
		}, []string{">no leader<", "until now", "The next leader records the ticks that are due meanwhile."}},
		"quiet": {func(i *incident.Incident) { i.Ticks, i.Lost.Ticks = &cronstore.GapTicks{}, &cronstore.Unrecorded{} }, []string{"no tick was due", "No tick was delayed."}},
		"first term": {func(i *incident.Incident) {
			*i = incident.Incident{Role: i.Role, Term: 7, Kind: incident.FirstTerm, NodeID: "a"}
		}, []string{">first term<"}},
		"many ticks": {func(i *incident.Incident) { i.Ticks.Count = 501 }, []string{"500 ticks were delayed by less.", ">501<"}},
		"many jobs":  {func(i *incident.Incident) { i.Jobs.Rescued = 301 }, []string{">300 more<"}},
	} {
		c := dashboardtest.New()
		altered := dashboardtest.AnIncident()
		test.alter(&altered)
		c.Incident = &altered
		page := get(t, handlerOf(c), "/leaders/scheduler/terms/7").Body.String()
		for _, want := range test.want {
			if !strings.Contains(page, want) {
				t.Errorf("%s: the page has no %q", name, want)
			}
		}
	}
}
