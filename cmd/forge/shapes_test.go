package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/test/nodes"
)

// passing are the keys whose values change between two reads.
var passing = []string{
	"now", "lease_until", "lease_remaining_seconds", "renewed_at", "last_heartbeat_at", "wait_seconds", "reported_at", "running", "at", "coming",
	"last_used_at", "from", "until", "renewals", "heartbeats", "bytes", "rows", "live_rows", "dead_rows", "next_tick", "watermark", "config_checked_at",
}

// more are the keys that a command prints and that the API has at other addresses: the arguments of
// listed jobs, and the newest ticks of a cron.
var more = map[string][]string{"job list": {"args"}, "cron show yearly": {"recent"}}

// compared are the commands that read, with the address of the same document in the API.
var compared = map[string]string{
	"leader status": "leaders", "leader history": "leaders/history", "node list": "nodes", "node show n1": "nodes/n1",
	"cron list": "crons", "cron show yearly": "crons/yearly", "cron history yearly": "crons/yearly/ticks",
	"job list": "jobs", "job show 1": "jobs/1", "job explain 1": "jobs/1/explain", "dead list": "dead",
	"queue list": "queues", "queue show mail": "queues/mail", "queue limits": "limits", "alerts list": "alerts",
	"token list": "tokens", "config history": "config", "events": "events", "alerts history": "alerts/history",
	"cron next yearly -n 5": "crons/yearly/next", "job logs 1": "jobs/1/logs", "leader incident scheduler 1": "leaders/scheduler/incidents/1",
	"alerts check": "alerts/check", "compact status": "compaction", "activity": "activity", "audit": "audit", "session list": "sessions",
	"plan": "plan",
}

// notCompared are the other commands that read.
var notCompared = map[string]string{
	"alerts export": "prints YAML for Prometheus", "config diff": "needs two configurations", "config show": "reads the file of its machine",
	"cron why": "explains a tick, whose time is not known before", "doctor": "checks the connection of its machine",
	"job wait": "waits", "leader watch": "follows", "metrics": "prints a table of its own", "status": "joins several documents", "version": "is about the program",
}

// TestEveryReadingCommandIsCompared takes the commands from the table in docs/api.md.
func TestEveryReadingCommandIsCompared(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| `([a-z -]+)` \\| `GET ").FindAllStringSubmatch(string(page), -1)
	if len(rows) < len(notCompared) {
		t.Fatalf("%d commands read", len(rows))
	}
	for _, row := range rows {
		found := notCompared[row[1]] != ""
		for command := range compared {
			found = found || command == row[1] || strings.HasPrefix(command, row[1]+" ")
		}
		if !found {
			t.Errorf("forge %s is not compared with the API", row[1])
		}
	}
}

// without removes a key from a document or from the documents of a list.
func without(document any, key string) any {
	switch v := document.(type) {
	case map[string]any:
		delete(v, key)
	case []any:
		for i := range v {
			v[i] = without(v[i], key)
		}
	}
	return document
}

// settled returns a document of JSON without what changes between two reads.
func settled(t *testing.T, body []byte) any {
	t.Helper()
	var document any
	if err := json.Unmarshal(body, &document); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	var settle func(any) any
	settle = func(v any) any {
		switch v := v.(type) {
		case map[string]any:
			for name := range v {
				if v[name] = settle(v[name]); slices.Contains(passing, name) {
					v[name] = "passing"
				}
			}
			return v
		case []any:
			for i := range v {
				v[i] = settle(v[i])
			}
		}
		return v
	}
	return settle(document)
}

// TestDocumentsAreTheAPIs compares what commands print with -o json with the answers of a node's API.
func TestDocumentsAreTheAPIs(t *testing.T) {
	t.Parallel()
	address := nodes.FreeAddress(t)
	path := startNode(t, fmt.Sprintf("[database]\nurl = %q\n[node]\nid = \"n1\"\n[http]\nlisten = %q\n[queues.mail]\nglobal_limit = 3\n"+
		"[jobs.send]\nkind = \"shell\"\ncommand = [\"false\"]\nqueue = \"mail\"\nretry = { max_attempts = 1 }\n"+
		"[[crons]]\nname = \"yearly\"\nschedule = \"0 0 1 1 *\"\njob = \"send\"\n"+
		"[[alerts]]\nname = \"NoLeader\"\ncondition = \"forge_leader_is_leader == 9\"\n", pgtest.URL(t), address))
	forge := func(line string) (int, []byte) {
		var out, errs bytes.Buffer
		code := run(t.Context(), append(strings.Fields(line), "--config", path, "-o", "json"), &out, &errs)
		return code, out.Bytes()
	}
	get := func(path string) []byte {
		response, err := http.Get("http://" + address + path)
		if err != nil {
			return nil
		}
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != http.StatusOK {
			return nil
		}
		return body
	}
	nodes.Eventually(t, time.Minute, "a healthy cluster", func() bool { code, _ := forge("status"); return code == exitOK && get("/readyz") != nil })
	if code, out := forge("cron trigger yearly"); code != exitOK {
		t.Fatalf("%s", out)
	}
	nodes.Eventually(t, time.Minute, "a dead letter", func() bool { _, out := forge("dead list"); return bytes.Contains(out, []byte(`"send"`)) })
	for command, request := range compared {
		code, out := forge(command)
		if code != exitOK {
			t.Errorf("forge %s: exit %d", command, code)
			continue
		}
		body := get("/api/v1/" + request)
		if body == nil {
			t.Errorf("no /api/v1/%s", request)
			continue
		}
		want, got := settled(t, body), settled(t, out)
		if page, ok := want.(map[string]any); ok && page["items"] != nil {
			want = page["items"]
		}
		for _, key := range more[command] {
			got = without(got, key)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("forge %s (-API +command):\n%s", command, diff)
		}
	}
}
