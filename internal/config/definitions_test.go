package config

import (
	"strings"
	"testing"
)

const running = `
[database]
url = "${env:DSN}"
[node]
id = "n1"
slots = 3
[cluster.leader_election.roles.scheduler]
lock_id = 7
[jobs.ping]
kind = "http"
url = "https://example.com/"
headers = { Authorization = "Bearer ${env:TOKEN}" }
`

func TestDefinitions(t *testing.T) {
	t.Parallel()
	digest := func(text string, environ ...string) string {
		body, _ := sections(t, text, environ...)
		digests, err := Definitions([]byte(body))
		if err != nil || len(digests) != 1 || len(digests["ping"]) != 16 {
			t.Fatalf("digests %v, %v", digests, err)
		}
		return digests["ping"]
	}
	base := digest(running, "DSN=postgres://localhost/a", "TOKEN=one")
	if other := digest(running+inCron("schedule = \"@hourly\"\njob = \"ping\""), "DSN=postgres://localhost/b", "TOKEN=two"); other != base {
		t.Error("a cron or a secret's value changes the digest of a job")
	}
	if other := digest(running+"\nunique.by_args = true\n", "DSN=postgres://localhost/a", "TOKEN=one"); other != base {
		t.Error("which jobs are added changes the digest of what runs")
	}
	if other := digest(running+"\nlimit_per_key = { key = \"args.tenant\", limit = 2 }\nrate_limit = { limit = 2, per = \"1m\" }\nweight = 2\n", "DSN=postgres://localhost/a", "TOKEN=one"); other != base {
		t.Error("a limit changes the digest of what runs")
	}
	if other := digest(strings.Replace(running, "example.com", "example.org", 1), "DSN=postgres://localhost/a", "TOKEN=one"); other == base {
		t.Error("another URL leaves the digest as it is")
	}
}
