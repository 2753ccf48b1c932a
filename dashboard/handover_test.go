package dashboard

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/internal/nodestore"
)

func TestHandOverAPI(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		path, body string
		status     int
		says, done string
	}{
		{"leaders/scheduler/step-down", "{}", 202, `{"role":"scheduler","term":7,"leader_id":"node-1","asked":true}`, `hand scheduler over to "" by the API from 127.0.0.1`},
		{"leaders/scheduler/transfer", `{"to":"node-2"}`, 202, `"to":"node-2","asked":true`, `hand scheduler over to "node-2" by the API from 127.0.0.1`},
		{"leaders/scheduler/transfer", `{"to":"node-1"}`, 202, `"asked":false`, `hand scheduler over to "node-1" by the API from 127.0.0.1`},
		{"leaders/scheduler/transfer", `{}`, 422, "to is missing", ""},
		{"leaders/scheduler/transfer", `{"node":"node-2"}`, 422, "the fields are to", ""},
		{"leaders/scheduler/transfer", `{"to":"mute"}`, 409, "Mute cannot lead.", ""},
		{"leaders/king/step-down", "", 404, "No role king.", ""},
		{"leaders/scheduler/step-down", `{"to":"node-2"}`, 422, "is unknown", ""},
		{"leaders/scheduler/drill", "", 200, `"from":"node-1","from_term":7,"to":"node-2","to_term":8`, "drill by the API from 127.0.0.1"},
		{"leaders/log_compactor/drill", "", 409, "Nobody has taken log_compactor over in time; it stays where it is.", ""},
		{"leaders/king/drill", "", 404, "No role king.", ""},
		{"leaders/scheduler/drill", `{"role":"scheduler"}`, 422, "is unknown", ""},
		{"nodes/node-1/drain", "", 202, `{"node_id":"node-1","state":"draining","roles":[{"role":"scheduler","term":7`, "drain by the API from 127.0.0.1"},
		{"nodes/node-1/undrain", "", 202, `"state":"active","roles":[]`, "undrain by the API from 127.0.0.1"},
		{"nodes/node-9/drain", "", 404, "No node node-9.", ""},
	} {
		c := dashboardtest.New()
		w := post(t, handlerOf(c), "/api/v1/"+test.path, jsonType, test.body)
		if w.Code != test.status || !strings.Contains(w.Body.String(), test.says) {
			t.Errorf("%s %s: %d %s", test.path, test.body, w.Code, w.Body)
		}
		if done := strings.Join(c.Done, "; "); done != test.done {
			t.Errorf("%s %s did %q, want %q", test.path, test.body, done, test.done)
		}
	}
}

func TestHandOverPages(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	h := handlerOf(c)
	for _, step := range []struct{ path, body, location, says string }{
		{"/leaders/scheduler/step-down", "", "/leaders?did=step-down&of=scheduler", "The leader of scheduler was asked to step down. node-1 leads it now, in term 7."},
		{"/leaders/scheduler/transfer", "to=node-2", "/leaders?did=transfer&of=scheduler&target=node-2", "asked to hand over to node-2."},
		{"/nodes/node-1/drain", "", "/nodes/node-1?did=drain", "node-1 is drained"},
		{"/nodes/node-1/undrain", "", "/nodes/node-1?did=undrain", "node-1 works again."},
	} {
		before := len(c.Done)
		w := post(t, h, step.path, formType, step.body)
		if w.Code != http.StatusSeeOther || w.Header().Get("Location") != step.location || len(c.Done) != before+1 {
			t.Fatalf("%s: %d to %s, did %v", step.path, w.Code, w.Header().Get("Location"), c.Done)
		}
		if page := get(t, h, step.location).Body.String(); !strings.Contains(page, step.says) || len(c.Done) != before+1 {
			t.Errorf("%s: the page does not say %q, or did it again", step.path, step.says)
		}
	}
	for path, want := range map[string]int{"/leaders/king/step-down": 404, "/nodes/node-9/drain": 404, "/leaders/scheduler/transfer": 422} {
		if w := post(t, h, path, formType, ""); w.Code != want || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") {
			t.Errorf("%s: %d %s", path, w.Code, w.Header().Get("Content-Type"))
		}
	}
}

func TestReadOnlyServerShowsNoButtons(t *testing.T) {
	t.Parallel()
	options := optionsOf(dashboardtest.New())
	options.Cluster.RoleOps, options.Cluster.Settings = nil, nil
	h := New(options)
	for _, path := range []string{"/leaders", "/nodes"} {
		if page := get(t, h, path).Body.String(); strings.Contains(page, "/transfer") || strings.Contains(page, "/drain\"") || strings.Contains(page, "/settings") {
			t.Errorf("%s offers what cannot be done", path)
		}
	}
	for _, path := range []string{"/settings", "/api/v1/settings", "/nodes/node-1/drain"} {
		if w := get(t, h, path); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}

// Nodes that are gone are listed separately, drained nodes can be undrained, and a role
// without another candidate has no buttons.
func TestNodesThatAreGoneOrDrained(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	c.Nodes[1].State = nodestore.Draining
	c.Nodes = append(c.Nodes, nodestore.Node{NodeID: "node-3", State: nodestore.Dead, LastHeartbeatAt: dashboardtest.Epoch.Add(-time.Hour), Now: dashboardtest.Epoch})
	h := handlerOf(c)
	page := get(t, h, "/nodes").Body.String()
	for want, there := range map[string]bool{
		`id="gone-node-3"`: true, `href="/nodes/node-3/drain"`: false, `href="/nodes/node-2/undrain"`: true, "1 draining": true,
	} {
		if strings.Contains(page, want) != there {
			t.Errorf("%q is %v", want, !there)
		}
	}
	if page := get(t, h, "/leaders").Body.String(); strings.Contains(page, "/leaders/scheduler/transfer") {
		t.Error("the page offers to transfer a role that nobody can take")
	}
	if page := get(t, h, "/nodes/node-3/drain").Body.String(); !strings.Contains(page, "It is dead.") || strings.Contains(page, "<form") {
		t.Error("the page offers to drain a node that is dead")
	}
}
