package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAdoptKeepsWhatNeedsARestart(t *testing.T) {
	t.Parallel()
	now := mustParse(t, running, "DSN=postgres://u:topsecret@localhost/db", "TOKEN=one-secret")
	next := mustParse(t, `
[database]
url = "postgres://localhost/other"
[node]
id = "n2"
slots = 4
tags = { zone = "eu" }
[cluster.leader_election]
lease_duration = "4s"
[http]
listen = "127.0.0.1:9999"
[retention]
completed = "2h"
[jobs.ping]
kind = "http"
url = "https://example.com/"
headers = { Authorization = "Bearer ${env:TOKEN}" }
`+inCron("schedule = \"@hourly\"\njob = \"ping\""), "TOKEN=two-secret")
	adopted, restart := now.Adopt(next)
	want := []string{
		"database.url", "database.leader_url", "node.id", "cluster.leader_election.lease_duration",
		"cluster.leader_election.roles", "http.listen",
	}
	if diff := cmp.Diff(want, restart); diff != "" {
		t.Errorf("keys that need a restart (-want +got):\n%s", diff)
	}
	if adopted.Node.ID != "n1" || adopted.HTTP.Listen != now.HTTP.Listen || adopted.Database.URL != now.Database.URL {
		t.Errorf("a fixed key changed: %+v", adopted.Node)
	}
	if adopted.Node.Slots != 4 || adopted.Node.Tags["zone"] != "eu" || len(adopted.Crons) != 1 ||
		adopted.Retention.Completed != next.Retention.Completed {
		t.Errorf("a live key did not change: %+v", adopted.Node)
	}
	if next.Node.ID != "n2" || now.Node.Slots != 3 {
		t.Error("one of the two was changed")
	}
	if got := adopted.Jobs["ping"].Headers["Authorization"]; got != "Bearer two-secret" {
		t.Errorf("the job's secret is %q", got)
	}
	var shown strings.Builder
	if err := adopted.Show(&shown); err != nil {
		t.Fatal(err)
	}
	if text := shown.String(); strings.Contains(text, "secret\"") || !strings.Contains(text, `url = "${env:DSN}"`) {
		t.Errorf("secrets of what was adopted:\n%s", text)
	}
	if again, restart := adopted.Adopt(adopted); len(restart) > 0 || !again.Means(adopted) || again.Means(now) {
		t.Errorf("the same file needs a restart for %v", restart)
	}
}
