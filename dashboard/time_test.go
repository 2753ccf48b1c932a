package dashboard

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/leaderstore"
)

// pastLeadership reads leaders and tenures from a database.
type pastLeadership struct {
	*leaderstore.Store

	rates *aggregator.Store
}

func (f pastLeadership) Rates(ctx context.Context) (aggregator.Rates, error) {
	return f.rates.Rates(ctx)
}

// pastHandler serves a cluster whose past is in a real database.
func pastHandler(t *testing.T) http.Handler {
	t.Helper()
	pool := pgtest.Pool(t)
	options := optionsOf(dashboardtest.New())
	options.Cluster.Source.Leadership = pastLeadership{leaderstore.New(pool), aggregator.NewStore(pool)}
	options.Cluster.Source.Events = eventstore.New(pool)
	options.Cluster.Source.History = aggregator.NewStore(pool)
	options.Cluster.Source.Crons = cronstore.New(pool)
	_, err := pool.Exec(t.Context(), `
		INSERT INTO forge_leaders (role, node_id, incarnation, term, acquired_at, renewed_at, lease_until)
			VALUES ('scheduler', 'node-2', 'b1', 3, '2026-11-10 12:00Z', '2026-11-20 12:00Z', '2100-01-01 12:00Z');
		INSERT INTO forge_leader_history (role, term, node_id, incarnation, acquired_at, ended_at, end_reason, gap) VALUES
			('scheduler', 1, 'node-1', 'a1', '2026-11-10 09:00Z', '2026-11-10 10:00Z', 'crashed', NULL),
			('scheduler', 2, 'node-2', 'b1', '2026-11-10 10:15Z', '2026-11-10 11:00Z', 'resigned', '15 min'),
			('scheduler', 3, 'node-2', 'b1', '2026-11-10 12:00Z', NULL, NULL, '1 hour');
		INSERT INTO forge_events (type, node_id, role, term, at) VALUES
			('leader_elected', 'node-2', 'scheduler', 2, '2026-11-10 10:15Z'), ('leader_lost', 'node-9', 'scheduler', 9, '2026-11-12 10:15Z');
		INSERT INTO forge_crons (name, spec, spec_hash, watermark, next_tick)
			VALUES ('nightly', '{"schedule": "0 * * * *", "timezone": "Europe/Berlin", "job": "nightly"}', 'x', '2026-11-20 11:00Z', '2026-11-20 12:00Z');
		INSERT INTO forge_cron_ticks (cron, tick, verdict, term, node_id)
			SELECT 'nightly', at, 'fired', 1, 'node-1' FROM generate_series('2026-11-10 00:00Z'::timestamptz, '2026-11-14 00:00Z', '1 hour') AS at;
		INSERT INTO forge_metrics_rollups (step, metric, labels, at, covered, value, last)
			SELECT 3600, metric, '{}', at, 3600, 120, 0
			FROM generate_series('2026-11-10 00:00Z'::timestamptz, '2026-11-11 00:00Z', '1 hour') AS at, unnest(ARRAY['forge_nodes', 'forge_job_started_total']) AS metric`)
	if err != nil {
		t.Fatal(err)
	}
	return New(options)
}

// A page shows the time that its address selects, in the zone that it selects.
func TestPagesShowSelectedTime(t *testing.T) {
	t.Parallel()
	h := pastHandler(t)
	for path, wants := range map[string][]string{
		"/leaders?from=2026-11-10T09:30&to=2026-11-10T11:30": {
			"2 changes of leader in this time.", `>09:45</text>`, "node-1, term 1", "No leader for 15m 00s", "Leader elected", "1 change of leader in this time, the longest gap 15m 00s",
			`data-from="1794303000000" data-to="1794310200000"`, `value="2026-11-10T09:30"`, `rel="prev">Earlier`, `from=2026-11-10T11%3A30%3A00Z&amp;to=2026-11-10T13%3A30%3A00Z" rel="next">Later`,
		},
		"/leaders?from=2026-11-10T09:30&to=2026-11-10T11:30&zone=Asia/Kolkata": {
			">09:45</text>", "2026-11-10 09:30 to 11:30 IST", `href="/leaders?from=2026-11-10T04%3A00%3A00Z&amp;to=2026-11-10T06%3A00%3A00Z"`,
		},
		"/charts?from=2026-11-10T04:00&to=2026-11-10T06:00": {"2026-11-10 04:00 UTC: started 2", "2026-11-10 05:00 UTC: started 2", ">04:15</text>"},
		"/crons/nightly?from=2026-11-12T02:00&to=2026-11-12T04:00": {
			"2026-11-12 02:00:00 CET", "2026-11-12 03:00:00 CET", "2026-11-12 02:00 to 04:00 CET", `aria-current="true">Europe/Berlin</a>`, `&amp;zone=UTC#h-ticks`,
		},
		"/crons/nightly?from=2026-11-12T02:00&to=2026-11-12T04:00&zone=UTC": {"2026-11-12 02:00:00 UTC", "2026-11-12 03:00:00 UTC"},
		"/jobs?from=2026-11-12T02:00&to=2026-11-12T04:00":                   {"since:2026-11-12T02:00:00Z until:2026-11-12T04:00:00Z", "2026-11-12 02:00 to 04:00 UTC", `value="2026-11-12T04:00"`},
		"/jobs?filter=since:6h&kind=a":                                      {`aria-current="true">6h</a>`, "last 6h", `href="/jobs?kind=a&amp;span=24h"`},
		"/jobs?span=7d&filter=since:6h":                                     {`value="since:7d"`, `aria-current="true">7d</a>`},
		"/jobs?sort=slowest&filter=since:6h":                                {`href="/jobs?sort=slowest&amp;span=24h"`, `name="sort" value="slowest"`},
		"/jobs":                                                             {"<summary>any time</summary>"},
	} {
		page := get(t, h, path).Body.String()
		for _, want := range wants {
			if !strings.Contains(page, want) {
				t.Errorf("%s does not say %q", path, want)
			}
		}
	}
	page := get(t, h, "/crons/nightly?from=2026-11-12T02:00&to=2026-11-12T04:00").Body.String()
	if got := strings.Count(page, `id="tick-`); got != 2 {
		t.Errorf("the ledger has %d ticks of two hours", got)
	}
	if page := get(t, h, "/leaders?from=2026-11-10T09:30&to=2026-11-10T11:30").Body.String(); strings.Contains(page, "node-9") || strings.Contains(page, "No leader now") {
		t.Error("the page shows what was not in its time")
	}
}

// A wrong time is named, with what was found and what is wanted.
func TestPagesNameMistakesInTime(t *testing.T) {
	t.Parallel()
	h := handlerOf(dashboardtest.New())
	for query, want := range map[string]string{
		"from=yesterday":                        `from: found &#34;yesterday&#34;, want an instant such as 2026-11-20T02:00:00Z, or 2026-11-20 02:00 in`,
		"from=2026-11-12&to=2026-11-11":         "from: found 2026-11-12 00:00:00",
		"span=forever":                          `span: found &#34;forever&#34;, want a duration from 1s to 3660d, such as 6h`,
		"span=1h&zone=Mars":                     `zone: found &#34;Mars&#34;, want`,
		"from=1971-01-01&to=2026-11-11":         "an instant at most 3660d after from",
		"span=1h&from=2026-11-12&to=2026-11-13": "want either span, or from and to",
	} {
		for _, path := range []string{"/leaders", "/charts", "/jobs", "/crons/backup"} {
			if w := get(t, h, path+"?"+query); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), want) {
				t.Errorf("%s?%s: status %d, it does not say %q", path, query, w.Code, want)
			}
		}
	}
}

// The page and the API say who led at an instant, or that nobody did.
func TestWhoLedAt(t *testing.T) {
	t.Parallel()
	h := pastHandler(t)
	rows := func(at string) string {
		page := get(t, h, "/leaders?at="+at).Body.String()
		_, page, _ = strings.Cut(page, `id="led-at"`)
		page, _, _ = strings.Cut(page, "</section>")
		return page
	}
	for at, wants := range map[string][]string{
		"2026-11-10T09:30":     {"node-1", `href="/leaders/scheduler/terms/1">1</a>`, "2026-11-10 10:00:00.000 UTC", "crashed"},
		"2026-11-10T10:10":     {"nobody", `href="/leaders/scheduler/terms/2">node-2, term 2</a>`, "2026-11-10 10:15:00.000 UTC"},
		"2026-11-15T10:10:00Z": {"node-2", "<td data-label=\"Until\">now</td>"},
		"2026-11-01T10:10:00Z": {"not recorded"},
	} {
		for _, want := range wants {
			if got := rows(at); !strings.Contains(got, want) {
				t.Errorf("at %s the page does not say %q:\n%s", at, want, got)
			}
		}
	}
	for at, want := range map[string]string{"noon": "at: found &#34;noon&#34;, want an instant", "2099-11-21T10:10": "want an instant that is not after now"} {
		if w := get(t, h, "/leaders?at="+at); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), want) {
			t.Errorf("at %s: status %d\n%s", at, w.Code, w.Body)
		}
	}
	list := decode[web.List[leaderstore.LedAt]](t, get(t, h, "/api/v1/leaders/at?at=2026-11-10T10:10:00Z"))
	if len(list.Items) == 0 || list.Items[0].State != leaderstore.Gap || list.Items[0].NextTerm != 2 {
		t.Errorf("the API says %+v", list.Items)
	}
	if w := get(t, h, "/api/v1/leaders/at?at=2027-01-01T00:00:00Z"); w.Code != http.StatusBadRequest {
		t.Errorf("an instant after now: status %d", w.Code)
	}
	items := func(path string) int { return len(decode[web.List[map[string]any]](t, get(t, h, path)).Items) }
	if got := items("/api/v1/leaders/history?from=2026-11-10T09:30:00Z&to=2026-11-10T10:10:00Z"); got != 2 {
		t.Errorf("%d tenures, want 2", got)
	}
	if got := items("/api/v1/crons/nightly/ticks?from=2026-11-12T01:00:00Z&to=2026-11-12T03:00:00Z"); got != 2 {
		t.Errorf("%d ticks, want 2", got)
	}
}
