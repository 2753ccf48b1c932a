package dashboard

import (
	"encoding/json"
	"html"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/dashboard/api"
	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
)

// Every list has the bar, which keeps the filter and suggests terms, and the fields.
func TestListsHaveFilterBars(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	c.Nodes[1].Tags = map[string]string{"zone": "eu"}
	h := handlerOf(c)
	for path, want := range map[string][]string{
		"/crons?filter=cron:back*":                                 {`value="cron:back*"`, ">backup</a>", `<option value="is:overdue">`, `href="/crons?filter=cron%3Aback%2A&amp;is=paused"`},
		"/crons?job=du*":                                           {`value="job:du*"`, ">backup</a>"},
		"/crons?filter=job:nothing":                                {"No cron matches the filter."},
		"/crons?q=BACK&is=overdue":                                 {`name="q" value="BACK"`, `type="hidden" name="is" value="overdue"`},
		"/queues?filter=is:paused":                                 {`value="is:paused"`, `<option value="is:unworked">`, `href="/queues?filter=is%3Apaused&amp;sort=waits"`, "Save view"},
		"/queues?filter=queue:none":                                {"No queue matches the filter."},
		"/nodes?filter=host:beta":                                  {`value="host:beta"`, `id="node-node-2"`, `<option value="tag:zone=eu">`},
		"/nodes?tag=zone=*":                                        {`value="tag:zone=*"`, `id="node-node-2"`},
		"/nodes?filter=state:dead":                                 {"No node matches the filter."},
		"/dead?filter=kind:nobody":                                 {`value="kind:nobody"`, `<option value="error:timeout">`},
		"/dead?kind=dump":                                          {`value="kind:dump"`},
		"/alerts?filter=state:firing":                              {`value="state:firing"`, `id="alert-no_scheduler_leader"`, `<option value="receiver:pager">`, `href="/alerts?filter=state%3Afiring&amp;sort=name"`, "Save view"},
		"/alerts?receiver=slack*":                                  {`value="receiver:slack*"`, `id="alert-no_scheduler_leader"`},
		"/alerts?filter=alert:nothing":                             {"No alert matches the filter."},
		"/alerts?sort=name":                                        {`aria-sort="ascending"><a href="/alerts?sort=name"`, `type="hidden" name="sort" value="name"`},
		"/config?filter=is:reverted":                               {`value="is:reverted"`, `id="config-1"`, "Save view"},
		"/config?by=ad*":                                           {`value="by:ad*"`, `id="config-1"`},
		"/config?filter=file:nothing":                              {"No configuration matches the filter."},
		"/config?filter=since:1m&before=1":                         {`<a href="/config?filter=since%3A1m">Newest</a>`},
		"/activity?sort=oldest":                                    {`aria-sort="ascending"><a href="/activity"`, `type="hidden" name="sort" value="oldest"`},
		"/activity":                                                {`aria-sort="descending"><a href="/activity?sort=oldest"`},
		"/dead/" + dashboardtest.DeadGroup + "?filter=node:node-2": {`value="node:node-2"`, ">#42</a>", `action="/dead/` + dashboardtest.DeadGroup + `"`},

		"/config":                         {`aria-sort="descending"><a href="/config?sort=oldest" title="Oldest first">In force since</a>`},
		"/config?filter=by:*&sort=oldest": {`aria-sort="ascending"><a href="/config?filter=by%3A%2A" title="Newest first">In force since</a>`, `<input type="hidden" name="sort" value="oldest">`, "the oldest first"},
		"/config?sort=oldest&after=1":     {`<a href="/config?sort=oldest">Oldest</a>`, `id="config-2"`},
	} {
		page := get(t, h, path).Body.String()
		for _, text := range want {
			if !strings.Contains(page, text) {
				t.Errorf("%s lacks %s", path, text)
			}
		}
		if strings.Contains(path, "config?filter=is:") && strings.Contains(page, `id="config-2"`) || strings.HasPrefix(path, "/alerts?filter") && strings.Contains(page, `id="alert-quiet"`) {
			t.Errorf("%s lists another row", path)
		}
		if strings.HasPrefix(path, "/nodes") && strings.Contains(page, `id="node-node-1"`) {
			t.Errorf("%s lists another node", path)
		}
	}
}

// Page and API filter and sort the queues.
func TestQueuesFiltered(t *testing.T) {
	t.Parallel()
	h := handlerOf(dashboardtest.New())
	names := func(query string) (names []string) {
		for _, q := range decode[web.List[jobstore.Queue]](t, get(t, h, "/api/v1/queues?"+query)).Items {
			names = append(names, q.Name)
		}
		page := get(t, h, "/queues?"+query).Body.String()
		last := 0
		for _, name := range names {
			at := strings.Index(page, `id="queue-`+name+`"`)
			if at < last {
				t.Errorf("?%s: the page has %s at %d, after %d", query, name, at, last)
			}
			last = at
		}
		if strings.Count(page, `<tr id="queue-`) != len(names) {
			t.Errorf("?%s: the page lists others than %v", query, names)
		}
		return names
	}
	all := names("")
	for query, want := range map[string]func(q jobstore.Queue) bool{
		"filter=is:paused":  func(q jobstore.Queue) bool { return !q.PausedAt.IsZero() },
		"filter=is:waiting": func(q jobstore.Queue) bool { return q.Available > 0 },
		"filter=queue:d*":   func(q jobstore.Queue) bool { return strings.HasPrefix(q.Name, "d") },
		"filter=waits:>1s":  func(q jobstore.Queue) bool { return q.Wait() > time.Second },
		"filter=is:running": func(q jobstore.Queue) bool { return q.Running > 0 },
	} {
		var matching []string
		for _, q := range decode[web.List[jobstore.Queue]](t, get(t, h, "/api/v1/queues")).Items {
			if want(q) {
				matching = append(matching, q.Name)
			}
		}
		if got := names(query); !slices.Equal(got, matching) || len(got) == len(all) {
			t.Errorf("?%s lists %v of %v, want %v", query, got, all, matching)
		}
	}
	if sorted := names("sort=running"); slices.Equal(sorted, all) || len(sorted) != len(all) {
		t.Errorf("sorted: %v of %v", sorted, all)
	}
}

// Page and API show the crons in the order that is asked for; that by the last verdict begins
// with the crons that did not fire.
func TestSortedCrons(t *testing.T) {
	t.Parallel()
	c := someCrons()
	for name, verdict := range map[string]cronstore.Verdict{"bill-1": cronstore.Fired, "bill-2": cronstore.SkippedOverlap, "report": cronstore.Failed} {
		c.Ticks[name] = []cronstore.Tick{{Cron: name, Tick: dashboardtest.Epoch, Verdict: verdict}}
	}
	c.Crons[0].NextTick, c.Crons[1].NextTick = dashboardtest.Epoch.Add(2*time.Hour), dashboardtest.Epoch.Add(time.Hour)
	h := handlerOf(c)
	for sort, want := range map[string][]string{
		"":        {"bill-1", "bill-2", "report"},
		"next":    {"bill-2", "bill-1", "report"},
		"verdict": {"report", "bill-2", "bill-1"},
	} {
		var names []string
		for _, cron := range decode[web.List[api.CronItem]](t, get(t, h, "/api/v1/crons?filter=job:dump&sort="+sort)).Items {
			names = append(names, cron.Name)
		}
		if !slices.Equal(names, want) {
			t.Errorf("sort=%s lists %v, want %v", sort, names, want)
		}
	}
	page := get(t, h, "/crons?sort=verdict").Body.String()
	first, second, third := strings.Index(page, `id="cron-report"`), strings.Index(page, `id="cron-bill-2"`), strings.Index(page, `id="cron-bill-1"`)
	if first < 0 || first > second || second > third || !strings.Contains(page, `aria-sort="other"><a href="/crons?sort=verdict"`) {
		t.Errorf("the page has the rows at %d, %d, %d: %s", first, second, third, page)
	}
}

// Pages and API reject an unknown term with the place, what was found and what is wanted.
func TestListsRefuseFilters(t *testing.T) {
	t.Parallel()
	h := handlerOf(dashboardtest.New())
	for _, test := range []struct{ paths, filter, want string }{
		{"/crons /api/v1/crons", "cron:a stat:b", `filter, character 8: found the key "stat", want one of cron, job, is, next`},
		{"/crons /api/v1/crons", "is:late", `filter, character 4: found "late", want one of paused, overdue, blocked`},
		{"/queues /api/v1/queues", "is:late", `filter, character 4: found "late", want one of paused, waiting, running, unworked`},
		{"/alerts /api/v1/alerts", "state:lost", `filter, character 7: found "lost", want one of firing, pending, inactive`},
		{"/config /api/v1/config", "hsh:3f9a", `filter, character 1: found the key "hsh", want "hash"`},
		{"/activity /api/v1/activity", "typ:x", `filter, character 1: found the key "typ", want "type"`},
		{"/nodes /api/v1/nodes", "stat:active", `filter, character 1: found the key "stat", want "state"`},
		{"/dead /api/v1/dead /api/v1/dead-letters", "state:discarded", `filter, character 1: found the key "state", want one of kind, queue, cron, node, took, error, tag, since, until`},
		{"/dead/" + dashboardtest.DeadGroup + " /api/v1/dead/" + dashboardtest.DeadGroup, "kind:", `filter, character 6: found "", want a text, such as kind:send*`},
	} {
		for path := range strings.FieldsSeq(test.paths) {
			w := get(t, h, path+"?filter="+url.QueryEscape(test.filter))
			if said := strings.ReplaceAll(html.UnescapeString(w.Body.String()), `\"`, `"`); w.Code != http.StatusBadRequest || !strings.Contains(said, test.want) {
				t.Errorf("%s?filter=%s: %d %s, want %s", path, test.filter, w.Code, said, test.want)
			}
			again := `action="` + path + `" role="search"><label class="bar-field">Filter <input type="search" name="filter" value="` + test.filter + `"`
			if isList := strings.Count(path, "/") == 1; strings.Contains(w.Body.String(), again) != isList {
				t.Errorf("%s?filter=%s can be corrected: %t", path, test.filter, !isList)
			}
		}
	}
	w := post(t, h, "/api/v1/bulk/dead/retry", jsonType, `{"filter": "knd:a"}`)
	if got := decode[web.Problem](t, w); w.Code != http.StatusUnprocessableEntity || len(got.Errors) != 1 || got.Errors[0].Pointer != "#/filter" {
		t.Errorf("%d %+v", w.Code, got)
	}
}

func TestListOfNodesIsFiltered(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	c.Nodes[0].Tags, c.Nodes[1].Tags = map[string]string{"zone": "eu-1"}, map[string]string{"zone": "us-1", "disk": "ssd"}
	c.Nodes[0].Capabilities, c.Nodes[1].State = []string{"general", "gpu"}, nodestore.Draining
	h := handlerOf(c)
	for filter, want := range map[string]string{
		"":                                "node-1 node-2",
		"tag:zone=*":                      "node-1 node-2",
		"tag:zone=eu*":                    "node-1",
		"capability:gpu":                  "node-1",
		"state:draining":                  "node-2",
		"state:draining state:active":     "node-1 node-2",
		"host:beta":                       "node-2",
		"node:node-* role:scheduler":      "node-1 node-2",
		"version:v2*":                     "",
		"tag:disk=ssd node:node-1":        "",
		"tag:zone=us* version:v1 host:b*": "node-2",
	} {
		var got []string
		for _, n := range decode[web.List[nodestore.Node]](t, get(t, h, "/api/v1/nodes?filter="+url.QueryEscape(filter))).Items {
			got = append(got, n.NodeID)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: %v, want %s", filter, got, want)
		}
	}
}

// The API filters and sorts the alerts and the configurations as the pages do.
func TestAlertsAndConfigurationsFiltered(t *testing.T) {
	t.Parallel()
	h := handlerOf(dashboardtest.New())
	for query, want := range map[string]string{
		"/api/v1/alerts": "no_scheduler_leader quiet", "/api/v1/alerts?filter=is:silenced": "quiet", "/api/v1/alerts?filter=severity:c*": "no_scheduler_leader",
		"/api/v1/alerts?filter=receiver:pager+state:inactive": "", "/api/v1/alerts?sort=name": "no_scheduler_leader quiet", "/api/v1/alerts?filter=alert:q*": "quiet",
		"/api/v1/config": "2 1", "/api/v1/config?filter=is:in_force": "2", "/api/v1/config?filter=until:30m": "1", "/api/v1/config?filter=by:node-2": "1", "/api/v1/config?filter=by:nobody": "",
		"/api/v1/config?sort=newest": "2 1", "/api/v1/config?sort=oldest": "1 2", "/api/v1/config?sort=oldest&after=1": "2", "/api/v1/config?sort=oldest&limit=1": "1",
	} {
		var got []string
		for _, item := range decode[web.List[struct {
			Name string
			ID   json.Number
		}]](t, get(t, h, query)).Items {
			got = append(got, item.Name+item.ID.String())
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s lists %v, want %s", query, got, want)
		}
	}
	for _, path := range []string{"/alerts", "/api/v1/alerts", "/activity", "/api/v1/activity", "/config", "/api/v1/config"} {
		if w := get(t, h, path+"?sort=size"); w.Code != http.StatusBadRequest {
			t.Errorf("%s has an order by size: %d", path, w.Code)
		}
	}
}
