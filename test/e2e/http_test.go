package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

func TestProbesAndDocuments(t *testing.T) {
	t.Parallel()
	c := newCluster(t, everySecond+unhurried)
	c.startAll("a", "b")
	id, _ := c.leader(0)
	leader, standby := c.nodes[id].listen(), c.nodes[other(id)].listen()

	for _, node := range []string{leader, standby} {
		for _, path := range []string{"/healthz", "/readyz", "/metrics", "/cluster/status", "/cluster/leader", "/cluster/health", "/", "/jobs", "/crons/second", "/api/v1/leaders"} {
			eventually(t, path+" answers", func() bool { return status(node, path) == http.StatusOK })
		}
	}
	for node, want := range map[string]int{leader: http.StatusOK, standby: http.StatusServiceUnavailable} {
		eventually(t, fmt.Sprintf("/leader/scheduler: %d and %q", want, id), func() bool {
			code, _, header := get(node, "/leader/scheduler")
			return code == want && header.Get("Forge-Leader-Node") == id
		})
	}
	for _, want := range []string{
		`forge_leader_is_leader{node_id="` + id + `",role="scheduler"} 1`,
		`forge_leader_elections_total{node_id="` + id + `",result="won",role="scheduler"} 1`,
		`forge_leader_failovers_total{node_id="` + id + `",role="scheduler"} 0`,
		`forge_leader_tenure_seconds{node_id="` + id + `",role="scheduler"}`,
		`forge_cron_ticks_total{cron="second",verdict="fired"}`,
		`forge_job_finished_total{kind="second",outcome="failed"}`,
	} {
		eventually(t, "/metrics tells "+want, func() bool {
			_, body, _ := get(leader, "/metrics")
			return strings.Contains(string(body), want)
		})
	}
}

// described is the API's document, as far as it says what is written where.
type described struct {
	Paths map[string]map[string]struct {
		Parameters []struct {
			Name string `json:"name"`
			In   string `json:"in"`
		} `json:"parameters"`
		RequestBody struct {
			Content map[string]struct {
				Schema schema `json:"schema"`
			} `json:"content"`
		} `json:"requestBody"`
	} `json:"paths"`
	Components struct {
		Schemas map[string]schema `json:"schemas"`
	} `json:"components"`
}

type schema struct {
	Ref        string         `json:"$ref"`
	Properties map[string]any `json:"properties"`
}

// strange are texts that PostgreSQL does not take, and such as nobody means.
var strange = []string{
	"a\x00b", "a\xffb", "a\xed\xa0\x80b", "a\u202eb", strings.Repeat("a", 5000), "9223372036854775807", "-9223372036854775808", "2147483648",
	"0000-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z", "0001-01-01T00:00:00+23:59",
}

// TestInvalidTextIsRejected puts what the database does not take into each place
// of each address and body: it is the fault of who asks, and none of the database's.
func TestInvalidTextIsRejected(t *testing.T) {
	t.Parallel()
	c := newCluster(t, writesConfig)
	c.start("a")
	node := c.nodes["a"].listen()
	tokens := make([]string, 24) // a token may make few changes a second
	for i := range tokens {
		made, stderr, code := c.forge("token", "create", fmt.Sprint("admin-", i), "--scope", "admin")
		if code != 0 {
			t.Fatal(stderr)
		}
		tokens[i] = strings.TrimSpace(made)
	}
	_, _, text := bearing(t, tokens[0], http.MethodGet, node+"/api/openapi.json", "")
	doc := decode[described](t, text)
	asked, turn := 0, 0
	ask := func(method, path, body string) {
		asked++
		eventually(t, "the request is not throttled", func() bool {
			turn++
			code, _, answer := bearing(t, tokens[turn%len(tokens)], method, node+path, body)
			if code >= http.StatusInternalServerError {
				t.Errorf("%s %.300q %.300q: %d %s", method, path, body, code, answer)
			}
			return code != http.StatusTooManyRequests
		})
	}
	fill := strings.NewReplacer("{session}", "0", "{id}", "1", "{name}", "nightly", "{alert}", "quiet", "{role}", "scheduler", "{node}", "b", "{group}", "0", "{tick}", "2026-11-20T02:00:00Z", "{hash}", "0000")
	for path, methods := range doc.Paths {
		if path == "/leader/{role}" { // answers 503 to say that the node does not lead it
			continue
		}
		for method, op := range methods {
			for _, value := range strange {
				for _, p := range op.Parameters {
					switch p.In {
					case "path":
						ask(strings.ToUpper(method), fill.Replace(strings.ReplaceAll(path, "{"+p.Name+"}", url.PathEscape(value))), "")
					case "query":
						ask(strings.ToUpper(method), fill.Replace(path)+"?"+url.Values{p.Name: {value}}.Encode(), "")
					}
				}
				for _, body := range doc.bodies(t, op.RequestBody.Content["application/json"].Schema, value) {
					ask("POST", fill.Replace(path), body)
				}
			}
		}
	}
	if asked < 1000 {
		t.Errorf("only %d requests were sent", asked)
	}
}

// bodies have a value in one field each, as a text and, if it is one, as a number.
func (d described) bodies(t *testing.T, of schema, value string) (bodies []string) {
	t.Helper()
	if _, name, ok := strings.Cut(of.Ref, "#/components/schemas/"); ok {
		of = d.Components.Schemas[name]
	}
	for field := range of.Properties {
		for _, form := range []any{value, json.Number(value)} {
			body := map[string]any{"kind": "report", "for": "2h", "name": "x", "from": "2026-11-20T00:00:00Z", "to": "2026-11-20T01:00:00Z"}
			maps.DeleteFunc(body, func(other string, _ any) bool { return of.Properties[other] == nil })
			body[field] = form
			if text, err := json.Marshal(body); err == nil { // which fixes what is no UTF-8
				bodies = append(bodies, string(text))
			}
		}
	}
	return bodies
}
