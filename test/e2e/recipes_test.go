package e2e

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/test/nodes"
)

const recipesDir = "../../examples/recipes"

// recipe is a cluster with the file of a recipe.
type recipe struct {
	*cluster

	env []string
}

// newRecipe returns a cluster without nodes that has a recipe's file, and more in the environment of its nodes.
func newRecipe(t *testing.T, name string, env ...string) *recipe {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(recipesDir, name, "forge.toml"))
	if err != nil {
		t.Fatal(err)
	}
	r := &recipe{cluster: newCluster(t, string(text)+unhurried)}
	programs := filepath.Dir(forgeBinary(t))
	r.env = append([]string{
		"PATH=" + strings.Join([]string{filepath.Dir(r.config), programs, pgtest.BinDir(), os.Getenv("PATH")}, ":"),
		"OPS_WEBHOOK_URL=https://ops.example.com", "DEADMAN_URL=https://deadman.example.com",
		"APP_DATABASE_URL=" + r.url, "FORGE_HTTP_ALLOW_PRIVATE_TARGETS=true",
	}, env...)
	return r
}

// run checks the recipe's file, with warnings as errors, and starts a node.
func (r *recipe) run(id string) {
	r.t.Helper()
	stdout, stderr, code := forgeWith(r.t, append(slices.Clone(r.env), "FORGE_DATABASE_URL="+r.url), "check", "--strict", "--config", r.config)
	if code != 0 {
		r.t.Fatalf("check: exit %d: %s%s", code, stdout, stderr)
	}
	r.startProgram(forgeBinary(r.t), id, slices.Clone(r.env)...)
}

// add writes a file beside the recipe's.
func (r *recipe) add(name, text string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(filepath.Dir(r.config), name), []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// trigger runs a cron and returns the output of its job, once that is completed.
func (r *recipe) trigger(cron string) (job, output string) {
	r.t.Helper()
	r.must("cron", "trigger", cron)
	id := r.number(`SELECT max(id) FROM river_job WHERE metadata ->> 'forge:cron' = $1`, cron)
	job = strconv.FormatInt(id, 10)
	r.awaitState(job, "completed")
	return job, r.must("job", "logs", job)
}

func TestRecipesAreTested(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("recipes_test.go")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/recipes.md")
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(recipesDir)
	if err != nil || len(entries) < 10 {
		t.Fatalf("%d recipes, %v", len(entries), err)
	}
	for _, entry := range entries {
		if !strings.Contains(string(source), `newRecipe(t, "`+entry.Name()+`"`) {
			t.Errorf("no test runs the recipe %s", entry.Name())
		}
		if !strings.Contains(string(page), "(../examples/recipes/"+entry.Name()+"/forge.toml)") {
			t.Errorf("docs/recipes.md does not link to the recipe %s", entry.Name())
		}
	}
}

func TestRecipeBackup(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := newRecipe(t, "backup", "BACKUP_DIR="+dir)
	r.run("a")
	job, _ := r.trigger("backup")
	if file, err := os.Stat(filepath.Join(dir, "app-"+job+".dump")); err != nil || file.Size() == 0 {
		t.Errorf("no backup: %v", err)
	}
}

func TestRecipeNightlyReport(t *testing.T) {
	t.Parallel()
	r := newRecipe(t, "nightly-report")
	r.run("a")
	if _, output := r.trigger("nightly-report"); !strings.Contains(output, "jobs") {
		t.Errorf("the report is %q", output)
	}
}

// TestRecipeRateLimitedAPI checks that no six calls start within a second.
func TestRecipeRateLimitedAPI(t *testing.T) {
	t.Parallel()
	r := newRecipe(t, "rate-limited-api", "GEOCODER_URL=https://geocoder.example.com")
	starts := filepath.Join(t.TempDir(), "starts")
	curl := filepath.Join(filepath.Dir(r.config), "curl")
	if err := nodes.WriteProgram(curl, strings.NewReader("#!/bin/sh\ndate +%s%N >>"+starts+"\n")); err != nil {
		t.Fatal(err)
	}
	r.run("a")
	r.run("b")
	const calls = 12
	for range calls {
		r.enqueue("geocode", "--args", `{"address": "Unter den Linden 1"}`)
	}
	eventually(t, "all calls", func() bool {
		return r.number(`SELECT count(*) FROM river_job WHERE kind = 'geocode' AND state = 'completed'`) == calls
	})
	text, err := os.ReadFile(starts) //nolint:gosec // just written
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Fields(string(text))
	if len(lines) != calls {
		t.Fatalf("%d calls, want %d", len(lines), calls)
	}
	slices.Sort(lines) // a call may append its time after that of a later call
	for i := range calls - 5 {
		first, _ := strconv.ParseInt(lines[i], 10, 64)
		sixth, _ := strconv.ParseInt(lines[i+5], 10, 64)
		if first == 0 || sixth-first < 1e9 {
			t.Errorf("calls %d to %d start within %d ns", i, i+5, sixth-first)
		}
	}
}

func TestRecipeTenantQueues(t *testing.T) {
	t.Parallel()
	r := newRecipe(t, "tenant-queues")
	r.run("a")
	for _, queue := range []string{"tenant-acme", "tenant-globex", "tenant-initech"} {
		r.awaitState(r.enqueue("import", "--queue", queue, "--args", `{"file": "a.csv"}`), "completed")
	}
	if _, _, code := r.forge("job", "enqueue", "import", "--queue", "tenant-acme"); code == 0 {
		t.Error("a job without a file was enqueued")
	}
}

func TestRecipeSingleton(t *testing.T) {
	t.Parallel()
	r := newRecipe(t, "singleton")
	r.run("a")
	r.must("queue", "pause", "default")
	job := r.enqueue("settle")
	if again := r.must("job", "enqueue", "settle"); !strings.Contains(again, "not enqueued: job "+job+" is the same") {
		t.Errorf("enqueued twice: %s", again)
	}
	r.must("queue", "resume", "default")
	r.awaitState(job, "completed")
	if _, output := r.trigger("settle"); !strings.Contains(output, "settled up to 20") {
		t.Errorf("got %q", output)
	}
}

func TestRecipeBlueGreen(t *testing.T) {
	t.Parallel()
	r := newRecipe(t, "blue-green")
	r.run("blue")
	_, term := r.leader(0)
	r.awaitTicks(term)
	r.run("green")
	script, err := filepath.Abs(filepath.Join(recipesDir, "blue-green", "switch.sh"))
	if err != nil {
		t.Fatal(err)
	}
	env := append(slices.Clone(r.env), "FORGE_DATABASE_URL="+r.url)
	if _, stderr, code := runToEnd(t, script, env, "grey", "--", "blue"); code == 0 {
		t.Errorf("switched to a node that does not exist: %s", stderr)
	}
	stdout, stderr, code := runToEnd(t, script, env, "green", "--", "blue")
	if code != 0 || !strings.Contains(stdout, "green") {
		t.Fatalf("exit %d: %s%s", code, stdout, stderr)
	}
	r.stop("blue")
	id, after := r.leader(term)
	if id != "green" {
		t.Errorf("%s leads", id)
	}
	r.awaitTicks(after)
	r.demandEveryTickOnce("every-second")
}

func TestRecipeFanOut(t *testing.T) {
	t.Parallel()
	r := newRecipe(t, "fan-out")
	r.run("a")
	job, _ := r.trigger("regions")
	all := func() bool {
		return r.number(`SELECT count(*) FROM river_job WHERE kind = 'region' AND state = 'completed'`) == 4
	}
	eventually(t, "a report for each region", all)
	r.must("job", "retry", job)
	eventually(t, "the second run", func() bool {
		return r.number(`SELECT count(*) FROM river_job WHERE kind = 'regions' AND state = 'completed' AND attempt = 2`) == 1
	})
	if n := r.number(`SELECT count(*) FROM river_job WHERE kind = 'region'`); n != 4 {
		t.Errorf("%d jobs after a second run, want 4", n)
	}
}

// TestRecipeRetries exhausts the attempts while the other system is down, and delivers when it is up.
func TestRecipeRetries(t *testing.T) {
	t.Parallel()
	var up atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !up.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	r := newRecipe(t, "retries", "DELIVER_URL="+server.URL)
	r.run("a")
	job := r.enqueue("deliver", "--args", `{"order": 1}`)
	for range 4 {
		r.awaitState(job, "retryable")
		r.must("job", "retry", job) // without the wait
	}
	r.awaitState(job, "discarded")
	eventually(t, "the dead letter", func() bool { return strings.Contains(r.must("dead", "list"), "deliver") })
	up.Store(true)
	r.must("dead", "retry", "--kind", "deliver", "--yes")
	r.awaitState(job, "completed")
}

func TestRecipeTimeZone(t *testing.T) {
	t.Parallel()
	r := newRecipe(t, "time-zone")
	r.run("a")
	next := r.must("cron", "next", "berlin-night", "--from", "2027-03-27T12:00:00Z", "-n", "2")
	for _, want := range []string{"2027-03-28 03:00:00 +02:00", "2027-03-29 02:30:00 +02:00"} {
		if !strings.Contains(next, want) {
			t.Errorf("no %s in %s", want, next)
		}
	}
	next = r.must("cron", "next", "berlin-night", "--from", "2027-10-30T12:00:00Z", "-n", "2")
	for _, want := range []string{"2027-10-31 02:30:00 +02:00", "2027-11-01 02:30:00 +01:00"} {
		if !strings.Contains(next, want) {
			t.Errorf("no %s in %s", want, next)
		}
	}
	if _, output := r.trigger("berlin-night"); !strings.Contains(output, "the night of 20") {
		t.Errorf("got %q", output)
	}
}

func TestRecipeSecrets(t *testing.T) {
	t.Parallel()
	r := newRecipe(t, "secrets", "PARTNER_TOKEN=partner-secret")
	r.add("api-token", "api-secret\n")
	r.run("a")
	if _, output := r.trigger("sync"); strings.TrimSpace(output) != "the token is [redacted]" {
		t.Errorf("got %q", output)
	}
	if n := r.number(`SELECT count(*) FROM forge_config c WHERE c::text LIKE '%-secret%'`); n != 0 {
		t.Error("the database has a secret")
	}
}
