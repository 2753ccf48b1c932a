package config

import (
	"reflect"
	"strings"
)

// elsewhere holds keys that people write where they do not belong.
var elsewhere = map[string]string{
	"crons.*.every":                     `schedule = "@every 5m"`,
	"crons.*.cron":                      `"schedule"`,
	"crons.*.tz":                        `"timezone"`,
	"crons.*.enabled":                   "paused = true to hold it",
	"crons.*.statement":                 `"sql"`,
	"crons.*.kind":                      "kind in [jobs.NAME] and job = NAME here",
	"crons.*.queue":                     "queue in [jobs.NAME] and job = NAME here",
	"crons.*.priority":                  "priority in [jobs.NAME] and job = NAME here",
	"crons.*.timeout":                   "timeout in [jobs.NAME] and job = NAME here",
	"crons.*.retry":                     "retry in [jobs.NAME] and job = NAME here",
	"crons.*.env":                       "env in [jobs.NAME] and job = NAME here",
	"crons.*.headers":                   "headers in [jobs.NAME] and job = NAME here",
	"crons.*.method":                    "method in [jobs.NAME] and job = NAME here",
	"crons.*.body":                      "body in [jobs.NAME] and job = NAME here",
	"crons.*.database":                  "database in [jobs.NAME] and job = NAME here",
	"crons.*.output":                    "output in [jobs.NAME] and job = NAME here",
	"jobs.*.schedule":                   "[[crons]] with this schedule and job = NAME",
	"jobs.*.sql":                        `"statement"`,
	"dashboard.oidc.groups":             "[dashboard.groups]",
	"dashboard.proxy_auth.groups":       "[dashboard.groups]",
	"dashboard.oidc.client_secret_file": `client_secret = "${file:PATH}"`,
	"http.port":                         `listen = "127.0.0.1:PORT"`,
	"http.host":                         `listen = "HOST:8080"`,
}

// unknown reports a key that the struct does not have.
func (l *loader) unknown(path, name string, table reflect.Type, value any) {
	if right, ok := elsewhere[pattern(path)]; ok {
		l.wrongKey(path, "unknown key", right)
		return
	}
	names := fieldNames(table)
	for _, right := range names {
		if strings.EqualFold(name, right) {
			l.wrongKey(path, "wrong case", `"`+right+`"`)
			return
		}
	}
	what := "unknown key"
	switch value.(type) {
	case map[string]any, []map[string]any:
		what = "unknown section"
	}
	l.wrongKey(path, what, suggest(name, names))
}

// pattern replaces the names and indexes in a path by *.
func pattern(path string) string {
	var parts []string
	for ; path != ""; path = parent(path) {
		up := parent(path)
		last := strings.TrimPrefix(path[len(up):], ".")
		if strings.HasPrefix(last, "[") || chosen(up) {
			last = "*"
		}
		parts = append([]string{last}, parts...)
	}
	return strings.Join(parts, ".")
}

// chosen says whether the keys of the table at a path are names that the user
// chose.
func chosen(path string) bool {
	switch path {
	case "jobs", "queues", "notify", "dashboard.groups", "cluster.leader_election.roles":
		return true
	}
	return false
}
