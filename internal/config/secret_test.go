package config

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/internal/redact"
)

// An address that cannot be read may hold its password anywhere.
func TestBrokenAddressesHideTheirPassword(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"postgres://u:hun ter%zz@2@host/db":       "postgres://u:[redacted]@host/db",
		"postgres://u:hunter2/db":                 "postgres://u:[redacted]/db",
		"postgres://u:hunter2@host:notaport/db":   "postgres://u:[redacted]@host:notaport/db",
		"postgres://host:notaport/db?password=hi": "postgres://host:[redacted]/db?password=[redacted]",
		"postgres:hunter2@host/db":                "postgres:[redacted]@host/db",
		"postgres:/u:hunter2@host/db":             "postgres:[redacted]@host/db",
		"u:hunter2@host/db?x=http://y":            "u:[redacted]@host/db?x=http://y",
		"host=h password='hun ter2":               "host=h password=[redacted]",
		`host=h password='hun\' ter2' user`:       "host=h password=[redacted] user",
		`host=h password=hun\ ter2 user`:          "host=h password=[redacted] user",
	} {
		if got := redactBroken(address); got != want {
			t.Errorf("redactBroken(%q) = %q, want %q", address, got, want)
		}
	}
}

// plainKeys are the keys of receivers that hold no secrets. A key that is neither here nor
// hidden fails TestLiteralSecretsAreNotShown.
var plainKeys = []string{
	"type", "channel", "username", "icon_emoji", "icon_url", "color", "title", "title_link",
	"severity", "description", "client", "client_url", "class", "component", "group",
	"to", "from", "smarthost", "hello", "auth_username", "auth_identity", "require_tls", "html", "text",
	"http_config.authorization.type", "http_config.basic_auth.username", "send_resolved",
	"tls_config.ca_file", "tls_config.cert_file", "tls_config.key_file",
	"tls_config.server_name", "tls_config.insecure_skip_verify", "tls_config.min_version",
}

// literalReceivers returns a file with a receiver for each key that may hold a secret of
// each type, with a CANARY of its own in that key.
func literalReceivers() string {
	var text strings.Builder
	count := 0
	types, needs := map[string]string{}, map[string]string{}
	keys := scalars(reflect.TypeFor[Notify](), "", nil)
	for _, f := range fieldsOf(reflect.TypeFor[Notify]()) {
		types[f.name], needs[f.name] = f.tag.Get("of"), f.tag.Get("need")
		if f.typ.Kind() == reflect.Map {
			keys = append(keys, key{path: f.name, field: f})
		}
	}
	for _, k := range keys {
		if slices.Contains(plainKeys, strings.Replace(k.path, "http_config.tls", "tls", 1)) {
			continue
		}
		top, _, _ := strings.Cut(k.path, ".")
		for kind := range strings.SplitSeq(types[top], "|") {
			count++
			value := `"CANARY"`
			switch {
			case k.typ.Kind() == reflect.Map:
				value = `{ X-Api-Key = "CANARY" }`
			case k.path == "http_config.proxy_url":
				value = `"http://user:CANARY@proxy.example.com/?token=CANARY"`
			case strings.HasSuffix(k.path, "url"):
				value = `"https://user:CANARY@hooks.example.com/CANARY?token=CANARY"`
			}
			value = strings.ReplaceAll(value, "CANARY", fmt.Sprintf("CANARY-%d", count))
			fmt.Fprintf(&text, "[notify.%q]\ntype = %q\n%s = %s\n", kind+" "+k.path, kind, k.path, value)
			for name, needed := range map[string]string{
				"api_url": "${env:PLAIN_URL}", "routing_key": "${env:PLAIN_URL}", "url": "https://hooks.example.com/",
				"to": "a@example.com", "from": "b@example.com", "smarthost": "mail.example.com:587",
			} {
				if name != k.path && needs[name] == kind {
					fmt.Fprintf(&text, "%s = %q\n", name, needed)
				}
			}
		}
	}
	return text.String()
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
`+literalReceivers(), "CANARY", canary), "PLAIN_URL=https://hooks.example.com/")
	if err != nil {
		t.Fatalf("%v %v", err, report)
	}
	warned := strings.Join(messages(report), "\n")
	if strings.Contains(warned, canary) {
		t.Errorf("the report: %s", warned)
	}
	for name, receiver := range c.Notify {
		at := strings.IndexByte(name, ' ')
		kind, key := name[:at], name[at+1:]
		for _, want := range []string{"a secret in the file", "a password in the file"} {
			if line := fmt.Sprintf("notify.%q.%s: %s", name, key, want); strings.Count(warned, line) == 1 {
				warned = strings.Replace(warned, line, "", 1)
				key = ""
			}
		}
		if key != "" && key != "headers" {
			t.Errorf("no warning of %s of a receiver of type %s", key, kind)
		}
		receiver.Headers = nil // which no error has
		answer := fmt.Sprintf("%+v", receiver)
		answer += " " + regexp.MustCompile(canary+`-\d+`).FindString(answer)
		if left := redact.Values(answer, receiver.Secrets(), minSecret); strings.Contains(left, canary) {
			t.Errorf("an error of the receiver %s holds its secret: %s", name, left)
		}
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
