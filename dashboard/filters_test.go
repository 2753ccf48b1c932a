package dashboard

import (
	"html"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/nodestore"
)

// Every list has the bar, which keeps the filter and suggests terms, and the fields.
func TestListsHaveFilterBars(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	c.Nodes[1].Tags = map[string]string{"zone": "eu"}
	h := handlerOf(c)
	for path, want := range map[string][]string{
		"/crons?filter=cron:back*":  {`value="cron:back*"`, ">backup</a>", `<option value="is:overdue">`, `href="/crons?filter=cron%3Aback%2A&amp;is=paused"`},
		"/crons?job=du*":            {`value="job:du*"`, ">backup</a>"},
		"/crons?filter=job:nothing": {"No cron matches the filter."},
		"/crons?q=BACK&is=overdue":  {`name="q" value="BACK"`, `type="hidden" name="is" value="overdue"`},
		"/nodes?filter=host:beta":   {`value="host:beta"`, `id="node-node-2"`, `<option value="tag:zone=eu">`},
		"/nodes?tag=zone=*":         {`value="tag:zone=*"`, `id="node-node-2"`},
		"/nodes?filter=state:dead":  {"No node matches the filter."},
		"/dead?filter=kind:nobody":  {`value="kind:nobody"`, `<option value="error:timeout">`},
		"/dead?kind=dump":           {`value="kind:dump"`},
		"/dead/" + dashboardtest.DeadGroup + "?filter=node:node-2": {`value="node:node-2"`, ">#42</a>", `action="/dead/` + dashboardtest.DeadGroup + `"`},
	} {
		page := get(t, h, path).Body.String()
		for _, text := range want {
			if !strings.Contains(page, text) {
				t.Errorf("%s lacks %s", path, text)
			}
		}
		if strings.HasPrefix(path, "/nodes") && strings.Contains(page, `id="node-node-1"`) {
			t.Errorf("%s lists another node", path)
		}
	}
}

// Pages and API reject an unknown term with the place, what was found and what is wanted.
func TestListsRefuseFilters(t *testing.T) {
	t.Parallel()
	h := handlerOf(dashboardtest.New())
	for _, test := range []struct{ paths, filter, want string }{
		{"/crons /api/v1/crons", "cron:a stat:b", `filter, character 8: found the key "stat", want one of cron, job, is, next`},
		{"/crons /api/v1/crons", "is:late", `filter, character 4: found "late", want one of paused, overdue, blocked`},
		{"/nodes /api/v1/nodes", "stat:active", `filter, character 1: found the key "stat", want "state"`},
		{"/dead /api/v1/dead /api/v1/dead-letters", "state:discarded", `filter, character 1: found the key "state", want one of kind, queue, cron, node, took, error, tag, since, until`},
		{"/dead/" + dashboardtest.DeadGroup + " /api/v1/dead/" + dashboardtest.DeadGroup, "kind:", `filter, character 6: found "", want a text, such as kind:send*`},
	} {
		for path := range strings.FieldsSeq(test.paths) {
			w := get(t, h, path+"?filter="+url.QueryEscape(test.filter))
			if said := strings.ReplaceAll(html.UnescapeString(w.Body.String()), `\"`, `"`); w.Code != http.StatusBadRequest || !strings.Contains(said, test.want) {
				t.Errorf("%s?filter=%s: %d %s, want %s", path, test.filter, w.Code, said, test.want)
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
