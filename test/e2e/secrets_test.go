package e2e

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"html"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/test/nodes"
)

const secretsConfig = `
[dashboard]
auth = "token"
[dashboard.groups]
platform = "admin"
[dashboard.oidc]
issuer = "%[3]s"
client_id = "forge"
client_secret = "${env:CLIENT_SECRET}"
redirect_url = "%[4]s"
[http]
allow_private_targets = true
allow_receiver_cidrs = ["127.0.0.0/8"]
[jobs.leak]
kind = "shell"
command = ["sh", "-c", "echo $NODE says $ONE and $TWO; echo $ONE >&2; grep -qF $ONE /proc/$PPID/cmdline && echo in its $NODE arguments; exit 3"]
env = { ONE = "${env:CANARY}", TWO = "${file:%[1]s}", NODE = "%[2]s" }
retry = { max_attempts = 1 }
[jobs.call]
kind = "http"
url = "http://127.0.0.1:1/${env:CANARY}"
headers = { Authorization = "Bearer ${file:%[1]s}" }
retry = { max_attempts = 1 }
[notify.hook]
type = "webhook"
url = "${env:CANARY_URL}"
[notify.literalhook]
type = "webhook"
url = "http://user:l1teral-c4n4ry@127.0.0.1:1/?token=l1teral-c4n4ry"
http_config = { authorization = { credentials = "l1teral-c4n4ry" }, proxy_url = "http://user:l1teral-c4n4ry@127.0.0.1:1/" }
[notify.slack]
api_url = "http://127.0.0.1:1/l1teral-c4n4ry"
http_config = { basic_auth = { username = "forge", password = "l1teral-c4n4ry" } }
[notify.pagerduty]
url = "http://127.0.0.1:1/"
routing_key = "l1teral-c4n4ry"
[notify.email]
to = "a@example.com"
from = "b@example.com"
smarthost = "127.0.0.1:1"
auth_username = "forge"
auth_password = "l1teral-c4n4ry"
auth_secret = "l1teral-c4n4ry"
[[crons]]
name = "leaks"
schedule = "@hourly"
job = "leak"
on_failure = { notify = ["hook", "literalhook", "slack:#ops", "pagerduty", "email"] }
[[alerts]]
name = "always"
condition = "vector(1) > 0"
severity = "warning"
notify = ["hook"]
`

// planted is the name of the node, which is to be found wherever a secret might be seen.
const planted = "planted-c4nary"

// planting is a cluster that was given secrets, and has had the occasion to show them.
type planting struct {
	*cluster
	t      *testing.T
	node   *process
	env    []string
	follow *process
	token  string
	// front is the address of the pages for users of a provider, which refuses the node's secret.
	front string
	// secrets are by what they are. No encoding of text changes one.
	secrets map[string]string
	// told is what was answered to those who act.
	told []string
}

// TestSecretsStayUnseen looks for secrets wherever they might be seen. That it looks
// shows the name of the node.
func TestSecretsStayUnseen(t *testing.T) {
	t.Parallel()
	p := plant(t)
	p.act()
	p.secrets["the session"] = login(t, p.node.listen(), p.token)
	seen := p.everythingShown()
	wantNone(t, seen, p.secrets)
	if strings.Contains(seen["the database"], "in its "+planted+" arguments") {
		t.Error("who runs the job has the secret among its arguments")
	}
	for _, where := range []string{
		"the database", "the log", "/metrics", "/metrics/cluster", "/api/v1/jobs", "/api/v1/settings", "/api/v1/events", "/api/v1/audit", "/api/v1/activity", "/activity", "/settings", "/nodes", "/leaders", "/storage",
		"/alerts/always/silence", "/crons/leaks/backfill", "/events?page=overview", "/events?page=nodes", "forge config show", "forge token list -o json", "forge audit -o json",
	} {
		if !strings.Contains(seen[where], planted) {
			t.Errorf("nothing was found in %s: %.300s", where, seen[where])
		}
	}
	if !strings.Contains(seen["the database"], planted+" says [redacted] and [redacted]") {
		t.Error("the output of the job is not among what was looked at")
	}
}

// plant starts a node with a secret of each kind. What stands before the signs that
// encodings change is what is looked for: the signs see to it that they are encoded.
func plant(t *testing.T) *planting {
	t.Helper()
	const signs = "+/&<="
	address, err := url.Parse(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	password, given := address.User.Password()
	if !given { // the server asks nobody
		password = "pass-c4n4ry"
		address.User = url.UserPassword(address.User.Username(), password+signs)
	}
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("file-c4n4ry"+signs+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	users := newFront(t)
	redirect := users.URL + config.CallbackPath
	dex := startDex(t, redirect)
	p := &planting{
		t: t, cluster: clusterOn(t, address.String(), fmt.Sprintf(secretsConfig, file, planted, dex.issuer(), redirect)), front: users.URL,
		env: []string{"CANARY=env-c4n4ry" + signs, "CANARY_URL=http://127.0.0.1:1/hook-c4n4ry", "CLIENT_SECRET=client-c4n4ry" + signs},
	}
	p.node = p.startProgram(forgeBinary(t), planted, p.env...)
	users.node.Store(p.node.listen())
	users.callback.Store(p.node.listen())
	stdout, stderr, code := p.forge("token", "create", planted, "--scope", "admin")
	if code != 0 {
		t.Fatal(stderr)
	}
	p.token = strings.TrimSpace(stdout)
	p.secrets = map[string]string{
		"a literal": "l1teral-c4n4ry", "the variable": "env-c4n4ry", "the file": "file-c4n4ry", "the receiver": "hook-c4n4ry", "the client's secret": "client-c4n4ry", "the password": password, "the token": p.token,
	}
	p.follow = launch(t, []string{"FORGE_DATABASE_URL=" + p.url}, "audit", "--follow", "-o", "json")
	return p
}

func (p *planting) ask(method, path, body string) (int, http.Header, string) {
	return bearing(p.t, p.token, method, p.node.listen()+path, body)
}

// act has all that knows a secret fail, and tell of it.
func (p *planting) act() {
	p.t.Helper()
	for _, do := range []struct {
		path, body string
		want       int
	}{
		{"jobs", `{"kind": "call"}`, 201},
		{"crons/leaks/trigger", "", 201},
		{"alerts/always/test", "", 202},
		{"apply", "", 200},
		{"jobs", `{"kind": "nothing"}`, 422},
		{"jobs/1/retry", `[]`, 400},
	} {
		status, header, answer := p.ask("POST", "/api/v1/"+do.path, do.body)
		if p.told = append(p.told, fmt.Sprint(header), answer); status != do.want {
			p.t.Fatalf("%s: %d %s", do.path, status, answer)
		}
	}
	refused := newBrowser(p.t).get(p.front + "/login/oidc")
	if p.told = append(p.told, fmt.Sprint(refused.header), refused.body); refused.status == http.StatusOK || refused.url.Path != config.CallbackPath {
		p.t.Fatalf("a login with a secret that the provider refuses: %d at %s\n%s", refused.status, refused.url, refused.body)
	}
	eventually(p.t, "both have failed, and it was tried to tell", func() bool {
		return p.number(`SELECT count(*) FROM river_job WHERE metadata #>> '{forge:dead,group}' <> ''`) == 2 && p.number(`SELECT count(*) FROM forge_job_logs`) > 0 &&
			p.number(`SELECT count(DISTINCT target) FROM forge_notifications WHERE attempts > 0 AND error <> ''`) == 5 &&
			p.number(`SELECT count(*) FROM forge_alerts WHERE state = 'firing'`) == 1
	})
	eventually(p.t, "the cluster's metrics have the node", func() bool {
		_, _, answer := p.ask("GET", "/metrics/cluster", "")
		return strings.Contains(answer, planted)
	})
	eventually(p.t, "the jobs are counted", func() bool {
		status, _, _ := p.ask("GET", "/api/v1/job-counts", "")
		return status == http.StatusOK
	})
	eventually(p.t, "who follows the audit log is told", func() bool { return strings.Contains(p.follow.output.String(), `"action":"cron.trigger"`) })
}

// everythingShown is all that anybody may come to see, by where.
func (p *planting) everythingShown() map[string]string {
	p.t.Helper()
	seen := everyAnswer(p.t, p.cluster, p.ask)
	for _, page := range slices.Sorted(maps.Keys(seen)) {
		if found := stream.FindStringSubmatch(seen[page]); found != nil {
			path := html.UnescapeString(found[1])
			seen[path] = firstEvents(p.t, p.token, p.node.listen()+path)
		}
	}
	for _, args := range [][]string{
		{"config", "show"},
		{"token", "list", "-o", "json"},
		{"job", "list", "-o", "json"},
		{"job", "show", "1"},
		{"audit", "-o", "json"},
		{"doctor"},
		{"alerts", "list"},
		{"plan"},
		{"check"},
		{"events", "-o", "json"},
		{"job", "logs", "1"},
		{"dead", "list", "--jobs", "-o", "json"},
		{"node", "list", "-o", "json"},
		{"leader", "status", "-o", "json"},
		{"alerts", "check"},
		{"alerts", "export"},
		{"alerts", "test", "always"},
	} {
		stdout, stderr, _ := forgeWith(p.t, append(p.env, "FORGE_DATABASE_URL="+p.url, "FORGE_NODE_ID="+planted), append(args, "--config", p.config)...)
		seen["forge "+strings.Join(args, " ")] = stdout + stderr
	}
	seen["the answers to who acts"] = strings.Join(p.told, "\n")
	seen["the database"] = p.everything()
	seen["the log"], seen["forge audit --follow"] = p.node.output.String(), p.follow.output.String()
	return seen
}

// wantNone looks for each secret, also as bytes are written.
func wantNone(t *testing.T, seen, secrets map[string]string) {
	t.Helper()
	for where, text := range seen {
		for what, secret := range secrets {
			forms := []string{secret, hex.EncodeToString([]byte(secret)), base64.StdEncoding.EncodeToString([]byte(secret)[:len(secret)/3*3])}
			for _, form := range forms {
				if at := strings.Index(text, form); at >= 0 {
					t.Errorf("%s is in %s: %.200s", what, where, text[max(0, at-80):])
				}
			}
		}
	}
}

var stream = regexp.MustCompile(`sse-connect="(/[^"]*)`)

// firstEvents are those that a page's stream begins with: the last has an id.
func firstEvents(t *testing.T, token, address string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), nodes.WaitTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var events strings.Builder
	last := false
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		events.WriteString(lines.Text() + "\n")
		if last = last || strings.HasPrefix(lines.Text(), "id: "); last && lines.Text() == "" {
			return events.String()
		}
	}
	t.Errorf("%s ended: %s %s", address, response.Status, events.String())
	return events.String()
}

// bearing asks with a token.
func bearing(t *testing.T, token, method, address, body string) (status int, header http.Header, answer string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, response.Header, string(text)
}

// login returns the session of a browser.
func login(t *testing.T, address, token string) string {
	t.Helper()
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/login", strings.NewReader(url.Values{"token": {token}}.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	for _, cookie := range response.Cookies() {
		return cookie.Value
	}
	t.Fatalf("nobody is logged in: %s", response.Status)
	return ""
}

// everyAnswer gets every address of the API's document, and the pages, and holds
// each answer to the document.
func everyAnswer(t *testing.T, c *cluster, ask func(method, path, body string) (int, http.Header, string)) map[string]string {
	t.Helper()
	_, _, text := ask("GET", "/api/openapi.json", "")
	tree, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.AssertFormat()
	if err := compiler.AddResource("https://forge.test/openapi.json", tree); err != nil {
		t.Fatal(err)
	}
	doc := decode[struct {
		Paths map[string]map[string]any `json:"paths"`
	}](t, text)
	seen := map[string]string{}
	fill := c.filler()
	get := func(path, query string) (http.Header, string) {
		status, header, answer := ask("GET", fill.Replace(path)+query, "")
		if status != http.StatusOK {
			t.Errorf("%s: %d %s", path, status, answer)
		}
		seen[path] = fmt.Sprint(header) + answer
		return header, answer
	}
	for path, methods := range doc.Paths {
		if methods["get"] == nil {
			continue
		}
		query := map[string]string{"/api/v1/metrics/range": "?metric=forge_job_running", "/api/v1/metrics/breakdown": "?by=kind", "/api/v1/next": "?schedule=@hourly", "/api/v1/leaders/at": "?at=" + time.Now().UTC().Format(time.RFC3339)}[path]
		header, answer := get(path, query)
		if !strings.HasPrefix(header.Get("Content-Type"), "application/json") {
			continue
		}
		pointer := "/paths/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(path) + "/get/responses/200/content/application~1json/schema"
		schema, err := compiler.Compile("https://forge.test/openapi.json#" + pointer)
		if err != nil {
			t.Fatal(err)
		}
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(answer))
		if err == nil {
			err = schema.Validate(value)
		}
		if err != nil {
			t.Errorf("%s is not as documented: %v\n%.2000s", path, err, answer)
		}
	}
	everyPage(seen, func(path string) string {
		_, page := get(path, "")
		return page
	})
	return seen
}

var link = regexp.MustCompile(`href="(/[^"#]*)`)

// everyPage goes from the first page to all that its links lead to, and to theirs.
func everyPage(seen map[string]string, get func(path string) string) {
	const most = 200
	ahead := []string{"/", "/enqueue?kind=leak", "/login"}
	for visited := 0; len(ahead) > 0 && visited < most; visited++ {
		page := get(ahead[0])
		ahead = ahead[1:]
		for _, found := range link.FindAllStringSubmatch(page, -1) {
			path := html.UnescapeString(found[1])
			if _, known := seen[path]; !known && !strings.HasPrefix(path, "/static/") {
				seen[path] = ""
				ahead = append(ahead, path)
			}
		}
	}
}

// filler puts what exists into addresses.
func (c *cluster) filler() *strings.Replacer {
	c.t.Helper()
	var id, tick, group, hash string
	err := c.pool.QueryRow(c.t.Context(), `SELECT job_id::text, to_char(tick AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') FROM forge_cron_ticks WHERE job_id IS NOT NULL LIMIT 1`).Scan(&id, &tick)
	if err == nil {
		err = c.pool.QueryRow(c.t.Context(), `SELECT metadata #>> '{forge:dead,group}' FROM river_job WHERE id = $1::bigint`, id).Scan(&group)
	}
	if err == nil {
		err = c.pool.QueryRow(c.t.Context(), `SELECT hash FROM forge_config LIMIT 1`).Scan(&hash)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return strings.NewReplacer("/queues/{name}", "/queues/default", "{node}", c.text(`SELECT node_id FROM forge_nodes LIMIT 1`), "{hash}", hash, "{id}", id, "{tick}", url.PathEscape(tick), "{group}", group, "{name}", "leaks", "{role}", "scheduler", "{term}", "1", "{kind}", "leak")
}

// everything is each row of each table.
func (c *cluster) everything() string {
	c.t.Helper()
	rows, err := c.pool.Query(c.t.Context(), `SELECT format('SELECT t::text FROM %I.%I AS t', schemaname, tablename) FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')`)
	if err != nil {
		c.t.Fatal(err)
	}
	statements, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(statements) < 20 {
		c.t.Fatalf("%d tables, %v", len(statements), err)
	}
	var all strings.Builder
	for _, statement := range slices.Sorted(slices.Values(statements)) {
		rows, err := c.pool.Query(c.t.Context(), statement)
		if err != nil {
			c.t.Fatal(err)
		}
		texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			c.t.Fatal(err)
		}
		all.WriteString(strings.Join(texts, "\n") + "\n")
	}
	return all.String()
}
