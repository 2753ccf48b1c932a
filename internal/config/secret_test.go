package config

import (
	"encoding/json"
	"strings"
	"testing"
)

// An address that cannot be read may hold its password anywhere.
func TestBrokenAddressesHideTheirPassword(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"postgres://u:hun ter%zz@2@host/db":       "postgres://u:[redacted]@host/db",
		"postgres://u:hunter2/db":                 "postgres://u:[redacted]/db",
		"postgres://u:hunter2@host:notaport/db":   "postgres://u:[redacted]@host:notaport/db",
		"postgres://host:notaport/db?password=hi": "postgres://host:[redacted]/db?password=[redacted]",
		"host=h password='hun ter2":               "host=h password=[redacted]",
		`host=h password='hun\' ter2' user`:       "host=h password=[redacted] user",
		`host=h password=hun\ ter2 user`:          "host=h password=[redacted] user",
	} {
		if got := redactBroken(address); got != want {
			t.Errorf("redactBroken(%q) = %q, want %q", address, got, want)
		}
	}
}

// A secret that stands in the file itself is not shown either, where a name tells of it.
func TestLiteralSecretsAreNotShown(t *testing.T) {
	t.Parallel()
	const canary = "literal-c4nary"
	c, report, err := parseWith(strings.ReplaceAll(`
[database]
url = "postgres://forge:CANARY@db.example.com/forge"
[http]
allow_private_targets = true
[jobs.shell]
kind = "shell"
command = ["backup", "--api-token", "CANARY", "--password=CANARY", "sh -c 'PGPASSWORD=CANARY psql'", "-H", "Authorization: Bearer CANARY"]
env = { X_SIGNATURE = "CANARY", AUTH = "CANARY", DEPLOY_KEY = "CANARY" }
[jobs.http]
kind = "http"
url = "https://example.com/hook?api_key=CANARY&sig=1"
headers = { X-Auth = "CANARY", X-Signature = "CANARY" }
body = '{"client_secret": "CANARY", "name": "kept-name"}'
[jobs.sql]
kind = "sql"
statement = "ALTER ROLE a PASSWORD 'CANARY'"
database = "postgres://a:CANARY@db.example.com/a?sslpassword=CANARY"
[[crons]]
name = "aa"
schedule = "@hourly"
job = "http"
args = { token = "CANARY", nested = { api_key = "CANARY" }, day = "kept-day" }
[[crons]]
name = "bb"
schedule = "@hourly"
url = "https://example.com/?token=CANARY"
[[crons]]
name = "cc"
schedule = "@hourly"
command = ["curl", "--oauth2-token", "CANARY", "kept-word"]
`, "CANARY", canary), "")
	if err != nil {
		t.Fatalf("%v %v", err, report)
	}
	var shown strings.Builder
	if err := c.Show(&shown); err != nil {
		t.Fatal(err)
	}
	effective, err := json.Marshal(c.Effective())
	if err != nil {
		t.Fatal(err)
	}
	for where, text := range map[string]string{"config show": shown.String(), "the settings": string(effective)} {
		if at := strings.Index(text, canary); at >= 0 {
			t.Errorf("%s: %s", where, text[max(0, at-60):at+20])
		}
		for _, kept := range []string{"kept-name", "kept-day", "kept-word", "--api-token"} {
			if !strings.Contains(text, kept) {
				t.Errorf("%s lacks %s", where, kept)
			}
		}
	}
	// What is stored has the arguments, a change of which is one of the cron, and no more.
	stored, _, err := c.ClusterSections()
	if err != nil || strings.Count(string(stored), canary) != 2 {
		t.Errorf("%d are stored, %v: %s", strings.Count(string(stored), canary), err, stored)
	}
	if c.Crons[0].Args["token"] != canary || c.Jobs["shell"].Command[2] != canary {
		t.Error("what was to be shown changed what is run")
	}
}
