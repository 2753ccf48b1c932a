package config

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestEnvironmentOverridesTheFile(t *testing.T) {
	t.Parallel()
	c, report, err := parseWith("[node]\nslots = 3\n[database]\nurl = \"postgres://file\"\n",
		"FORGE_NODE_SLOTS=7", "FORGE_HTTP_LISTEN=127.0.0.1:9000", "FORGE_NODE_ROLES=worker, scheduler",
		"FORGE_CLUSTER_LEADER_ELECTION_LEASE_DURATION=6s", "FORGE_DATABASE_URL=postgres://environment",
		"FORGE_HTTP_ALLOW_PRIVATE_TARGETS=true", "FORGE_CRON_DEFAULTS_CATCH_UP=false", "DATABASE_URL=postgres://last",
		"FORGE_NODE=reserved", "FORGE_JOB_ID=1", "FORGE_CONFIG=/etc/forge.toml")
	if err != nil || len(report.Problems) > 0 {
		t.Fatalf("error %v, report %s", err, report)
	}
	if c.Node.Slots != 7 || c.HTTP.Listen != "127.0.0.1:9000" || !c.HTTP.AllowPrivateTargets ||
		c.Cluster.LeaderElection.LeaseDuration.Std() != 6*time.Second || c.CronDefaults.CatchUp != "none" {
		t.Errorf("not overridden: %+v", c)
	}
	if !cmp.Equal(c.Node.Roles, []string{"worker", "scheduler"}) {
		t.Errorf("roles = %v", c.Node.Roles)
	}
	if c.Database.URL != "postgres://environment" || c.Database.LeaderURL != "postgres://environment" {
		t.Errorf("database = %+v", c.Database)
	}
}

func TestDatabaseURLIsTheLastResort(t *testing.T) {
	t.Parallel()
	if c := mustParse(t, "", "DATABASE_URL=postgres://last"); c.Database.URL != "postgres://last" {
		t.Errorf("url = %q", c.Database.URL)
	}
	if c := mustParse(t, "[database]\nurl = \"postgres://file\"\n", "DATABASE_URL=postgres://last"); c.Database.URL != "postgres://file" {
		t.Errorf("url = %q", c.Database.URL)
	}
}

func TestEveryScalarKeyHasAVariable(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, k := range scalarKeys() {
		name := k.override()
		if other, twice := seen[name]; twice {
			t.Errorf("%s overrides %s and %s", name, other, k.path)
		}
		for _, reserved := range notOverrides {
			if name == reserved {
				t.Errorf("%s of %s is reserved", name, k.path)
			}
		}
		seen[name] = k.path
	}
	for _, name := range []string{"FORGE_DATABASE_URL", "FORGE_NODE_SLOTS", "FORGE_RETENTION_CRON_TICKS"} {
		if seen[name] == "" {
			t.Errorf("no key for %s", name)
		}
	}
}

func TestOverriddenReferenceIsNotResolved(t *testing.T) {
	t.Parallel()
	const text = "[database]\nurl = \"${env:UNSET}\"\n"
	if c := mustParse(t, text, "FORGE_DATABASE_URL=postgres://variable"); c.Database.URL != "postgres://variable" {
		t.Errorf("url = %q", c.Database.URL)
	}
	if c := mustParse(t, text, "FORGE_DATABASE_URL=${env:SET}", "SET=postgres://reference"); c.Database.URL != "postgres://reference" {
		t.Errorf("url = %q", c.Database.URL)
	}
	for _, variable := range []string{"FORGE_DATABASE_URL=", "DATABASE_URL=postgres://last"} { // neither overrides
		if _, _, err := parseWith(text, variable); err == nil {
			t.Errorf("with %s the reference to an unset variable is accepted", variable)
		}
	}
}

func TestBadEnvironment(t *testing.T) {
	t.Parallel()
	_, report, err := parseWith("[node]\nslots = 3\n",
		"FORGE_NODE_SLOTS=many", "FORGE_NODE_SLOT=3", "FORGE_TEST_DATABASE_URL=x", "FORGE_NODE_ID=", "FORGE_HTTP_LISTEN=:80",
		"FORGE_CLUSTER_LEADER_ELECTION_LEASE_DURATION=60", "FORGE_NODE_ROLES=worker,shedular")
	want := []string{
		"environment: warning: FORGE_NODE_ID: empty, and so ignored",
		"environment: warning: FORGE_NODE_SLOT: not a variable of forge, and so ignored; want FORGE_NODE_SLOTS",
		`environment: FORGE_CLUSTER_LEADER_ELECTION_LEASE_DURATION: duration without a unit (got "60"); want a string such as "60s"`,
		`environment: FORGE_NODE_SLOTS: wrong type (got "many"); want an integer from 1 to 10000`,
		`environment: FORGE_NODE_ROLES: unknown role (got "shedular"); want "scheduler"`,
		`environment: FORGE_HTTP_LISTEN: not a loopback address, and there is no authentication (got ":80"); want auth = "token" in [dashboard], or "127.0.0.1:80"`,
		"environment: warning: FORGE_TEST_DATABASE_URL: not a variable of forge, and so ignored",
	}
	got := messages(report)
	for _, line := range want {
		if !strings.Contains(strings.Join(got, "\n"), line) {
			t.Errorf("missing %s", line)
		}
	}
	if len(got) != len(want) || err == nil {
		t.Errorf("error %v, report:\n%s", err, report)
	}
}

func TestRequireDatabase(t *testing.T) {
	t.Parallel()
	err := mustParse(t, "").RequireDatabase()
	if !errors.Is(err, ErrNoDatabase) || !strings.Contains(err.Error(), "forge dev") || !strings.Contains(err.Error(), "FORGE_DATABASE_URL") {
		t.Errorf("error = %v", err)
	}
	if err := mustParse(t, "", "DATABASE_URL=postgres://a").RequireDatabase(); err != nil {
		t.Errorf("error = %v", err)
	}
}

const canary = "c4nary-s3cret"

// TestSecretsAreNeverShown greps all that leaves the package for one value.
func TestSecretsAreNeverShown(t *testing.T) {
	t.Parallel()
	text := `
[database]
url = "postgres://forge:` + canary + `@localhost/forge"
leader_url = "host=localhost password=` + canary + `"
[jobs.hook]
kind = "http"
url = "https://example.com/${env:TOKEN}"
headers = { Authorization = "Bearer ` + canary + `", X-Key = "${env:TOKEN}" }
body = "token=${env:TOKEN}"
[jobs.shell]
kind = "shell"
command = ["echo", "` + canary + `"]
env = { API_TOKEN = "` + canary + `", OTHER = "x${env:TOKEN}y" }
[jobs.sql]
kind = "sql"
statement = "SELECT 1"
database = "postgres://app:` + canary + `@localhost/app"
[notify.hook]
type = "webhook"
url = "https://hooks.example.com/` + canary + `"
http_config = { authorization = { credentials = "${env:TOKEN}" }, proxy_url = "http://u:${env:TOKEN}@proxy" }
[notify.slack]
api_url = "https://hooks.example.com/${env:TOKEN}"
[notify.pagerduty]
routing_key = "${env:TOKEN}"
[notify.email]
to = "a@example.com"
from = "b@example.com"
smarthost = "mail.example.com:587"
auth_username = "forge"
auth_password = "${env:TOKEN}"
auth_secret = "${env:TOKEN}"
[[crons]]
name = "short"
schedule = "@daily"
url = "https://example.com/?t=${env:TOKEN}"
[[crons]]
name = "dump"
schedule = "@daily"
command = ["pg_dump", "postgres://u:` + canary + `@h/db"]
`
	c, report, err := parseWith(text, "TOKEN="+canary)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Jobs["short"].URL; got != "https://example.com/?t="+canary {
		t.Errorf("short.url = %q, want it resolved", got)
	}
	if got := c.Jobs["shell"].Env["OTHER"]; got != "x"+canary+"y" {
		t.Errorf("OTHER = %q, want it resolved", got)
	}
	var shown bytes.Buffer
	if err := c.Show(&shown); err != nil {
		t.Fatal(err)
	}
	canonical, _, err := c.ClusterSections()
	if err != nil {
		t.Fatal(err)
	}
	for name, output := range map[string]string{"show": shown.String(), "sections": string(canonical), "report": report.String()} {
		if strings.Contains(strings.Replace(output, `"command":["echo","`+canary+`"]`, "", 1), canary) { // a literal word, not a secret
			t.Errorf("%s shows the secret:\n%s", name, output)
		}
	}
	if !strings.Contains(shown.String(), "https://example.com/?t=${env:TOKEN}") {
		t.Errorf("show lacks the reference as written:\n%s", shown.String())
	}
	if c.Database.URL != "postgres://forge:"+canary+"@localhost/forge" {
		t.Errorf("Show changed the configuration: %s", c.Database.URL)
	}
}

func TestReferences(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil { // whatever the umask is
			t.Fatal(err)
		}
		return path
	}
	good, open, empty := write("good", canary+"\n", 0o600), write("open", canary, 0o644), write("empty", "\n", 0o600)
	mounted, writable := write("mounted", canary, 0o440), write("writable", canary, 0o660)
	const want = "; want ${env:NAME} with a value or ${file:PATH} of mode 0640 or less"
	for _, c := range []struct{ body, value, problem string }{
		{body: "plain $ ${HOME} text", value: "plain $ ${HOME} text"},
		{body: "a ${env:TOKEN} b ${env:OTHER}", value: "a t b ${env:TOKEN}"}, // once, not again
		{body: "${file:" + good + "}", value: canary},
		{body: "${file:" + mounted + "}", value: canary},
		{body: "${file:" + writable + "}", problem: "the secret's file has mode 0660, more than 0640 (got ${file:" + writable + "})" + want},
		{body: "${env:UNSET}", problem: "the environment variable UNSET is not set (got ${env:UNSET})" + want},
		{body: "${env:EMPTY}", problem: "the environment variable EMPTY is empty (got ${env:EMPTY})" + want},
		{body: "${env:TOKEN", problem: "reference without its closing brace; want ${env:NAME} or ${file:PATH}"},
		{body: "${env}", problem: "reference without a name (got ${env})" + want},
		{body: "${file:" + open + "}", problem: "the secret's file has mode 0644, more than 0640 (got ${file:" + open + "})" + want},
		{body: "${file:" + empty + "}", problem: "the secret's file is empty (got ${file:" + empty + "})" + want},
		{body: "${file:/nowhere}", problem: "read the secret: no such file or directory (got ${file:/nowhere})" + want},
		{body: "${file:/}", problem: "the secret is not a regular file (got ${file:/})" + want},
	} {
		text := "[jobs.hook]\nkind = \"http\"\nurl = \"https://example.com\"\nbody = '" + c.body + "'\n"
		config, report, err := parseWith(text, "TOKEN=t", "OTHER=${env:TOKEN}", "EMPTY=")
		if c.problem != "" {
			if got := report.String(); got != "forge.toml:4:8: jobs.hook.body: "+c.problem {
				t.Errorf("%s: report = %s", c.body, got)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.body, err)
		} else if got := config.Jobs["hook"].Body; got != c.value {
			t.Errorf("%s = %q, want %q", c.body, got, c.value)
		}
	}
}

func TestLoadFinds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "other.toml")
	if err := os.WriteFile(path, []byte("[node]\nid = \"${file:no}\"\nslots = 9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	environ := func(pairs ...string) LoadOptions { return LoadOptions{Environ: func() []string { return pairs }} }
	if c, _, err := Load(path, environ()); err != nil || c.Node.Slots != 9 || c.Node.ID != "${file:no}" {
		t.Errorf("Load(path) = %+v, %v", c, err)
	}
	if c, _, err := Load("", environ("FORGE_CONFIG="+path)); err != nil || c.Node.Slots != 9 {
		t.Errorf("Load of $FORGE_CONFIG = %+v, %v", c, err)
	}
	_, _, err := Load("", environ()) // there is no forge.toml beside the tests
	const want = `forge.toml: not found (looked for --config, $FORGE_CONFIG and ./forge.toml); "forge init" writes one`
	if !errors.Is(err, ErrNotFound) || err.Error() != want {
		t.Errorf("Load of nothing: %v", err)
	}
}

func TestLoadRefusesWhatIsNoFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		dir:                          dir + ": is a directory",
		fifo:                         fifo + ": not a regular file",
		filepath.Join(dir, "x", "y"): "not found",
	} {
		if _, _, err := Load(path, LoadOptions{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Load(%s) = %v, want %s", path, err, want)
		}
	}
}

func TestLoadChecksWhoMayWrite(t *testing.T) {
	t.Parallel()
	shell := "[[crons]]\nname = \"beat\"\nschedule = \"@daily\"\ncommand = [\"true\"]\n"
	for _, c := range []struct {
		text string
		mode os.FileMode
		want string
	}{
		{shell, 0o644, ""},
		{shell, 0o664, ": warning: a group may write this file, and it defines shell jobs (got mode 0664); want chmod go-w "},
		{shell, 0o666, ": anyone may write this file, and it defines shell jobs (got mode 0666); want chmod go-w "},
		{"", 0o666, ""},
	} {
		path := filepath.Join(t.TempDir(), "forge.toml")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, c.mode); err != nil {
			t.Fatal(err)
		}
		want := ""
		if c.want != "" {
			want = path + c.want + path
		}
		_, report, err := Load(path, LoadOptions{Environ: func() []string { return nil }})
		if report.String() != want || (err != nil) != (c.mode == 0o666 && c.text != "") {
			t.Errorf("mode %04o: error %v, report %s, want %s", c.mode, err, report, want)
		}
	}
}
