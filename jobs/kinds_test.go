package jobs_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/jobs"
)

// tickMetadata is the metadata that the scheduler sets for a job of a tick.
var tickMetadata = map[string]any{
	jobstore.KeyCron: "nightly", jobstore.KeyTick: "2026-11-20T03:00:00Z", jobstore.KeyTerm: 7,
}

// once returns the job without retries.
func once(job config.Job) config.Job {
	job.Retry.MaxAttempts = 1
	return job
}

// runOnce runs one job of the kind until it ends.
func runOnce(t *testing.T, job config.Job, add jobstore.NewJob, change ...func(*jobs.Options)) (*node, jobstore.Job) {
	t.Helper()
	n := startNode(t, map[string]config.Job{"job": once(job)}, change...)
	add.Kind = "job"
	return n, n.finish(t, n.work(t, add), "completed", "discarded")
}

func TestShellEnvironmentIsExplicit(t *testing.T) {
	t.Setenv("FORGE_DATABASE_URL", "postgres://secret")
	job := config.Job{
		Kind: config.KindShell, Command: []string{"env"}, Cwd: "/",
		Env: map[string]string{"COLOUR": "blue", "FORGE_TERM": "forged"},
	}
	n, done := runOnce(t, job, jobstore.NewJob{Args: []byte(`{"n": 1}`), Metadata: tickMetadata})
	got := map[string]string{}
	for line := range strings.Lines(n.logs(t, done.ID, 1, jobstore.StreamStdout)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		got[name] = value
	}
	want := map[string]string{
		"FORGE_JOB_ID": strconv.FormatInt(done.ID, 10), "FORGE_JOB": "job", "FORGE_ATTEMPT": "1",
		"FORGE_CRON": "nightly", "FORGE_TICK": "2026-11-20T03:00:00Z", "FORGE_TERM": "7", "FORGE_NODE": nodeID,
		"FORGE_ARGS": `{"n": 1}`, "COLOUR": "blue", "PATH": os.Getenv("PATH"),
	}
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s is %q, want %q", name, got[name], value)
		}
		delete(got, name)
	}
	if path := got["FORGE_REPORT"]; !strings.HasPrefix(path, os.TempDir()+"/forge-report-") {
		t.Errorf("FORGE_REPORT is %q", path)
	}
	delete(got, "FORGE_REPORT")
	for name := range got {
		if name != "HOME" && name != "LANG" && name != "LC_ALL" && name != "TZ" && name != "TMPDIR" {
			t.Errorf("the command also sees %s", name)
		}
	}
}

func TestShellStartErrorNamesProgram(t *testing.T) {
	t.Parallel()
	_, done := runOnce(t, config.Job{Kind: config.KindShell, Command: []string{"no-such-program"}}, jobstore.NewJob{})
	if !strings.Contains(done.LastError, "no-such-program") || done.Attempts[0].ExitCode != nil {
		t.Errorf("got %+v", done)
	}
}

func TestTimeoutEndsProcessTree(t *testing.T) {
	t.Parallel()
	job := shell("setsid sleep 310 & echo $!; sh -c 'setsid sleep 311 & echo $!; wait' & echo $!; wait")
	var pids []string
	for timeout := 700 * time.Millisecond; len(pids) < 3; timeout *= 2 { // until all three have started before the timeout
		if timeout > waitTimeout {
			t.Fatalf("got pids %v, want 3", pids)
		}
		job.Timeout = config.Duration(timeout)
		n, done := runOnce(t, job, jobstore.NewJob{})
		if done.Attempts[0].Outcome != jobstore.OutcomeTimedOut || !strings.Contains(done.LastError, "timed out after "+timeout.String()) {
			t.Errorf("got %+v", done)
		}
		pids = strings.Fields(n.logs(t, done.ID, 1, jobstore.StreamStdout))
		for _, pid := range pids {
			wantGone(t, pid)
		}
	}
}

func wantGone(t *testing.T, text string) {
	t.Helper()
	pid, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return syscall.Kill(pid, 0) != nil },
		func() string { return "process " + text + " is still there" })
}

func TestOutputIsCapped(t *testing.T) {
	t.Parallel()
	barrier := filepath.Join(t.TempDir(), "barrier")
	job := shell(`head -c 100000 /dev/zero | tr '\0' x; until [ -e ` + barrier + ` ]; do sleep 0.01; done; printf 'a\000\377b' >&2`)
	job.Output.Capture = 50_000
	n := startNode(t, map[string]config.Job{"job": once(job)})
	id := n.work(t, jobstore.NewJob{Kind: "job"})
	stdout := ""
	eventually(t, func() bool {
		stdout = n.logs(t, id, 1, jobstore.StreamStdout)
		return len(stdout) >= 50_000
	}, func() string { return fmt.Sprintf("%d bytes arrived", len(stdout)) })
	open(t, barrier) // both streams share the limit, in the order of their output
	done := n.finish(t, id, "completed", "discarded")
	stdout = n.logs(t, id, 1, jobstore.StreamStdout)
	system := n.logs(t, done.ID, 1, jobstore.StreamSystem)
	if len(stdout) != 50_000 || !strings.Contains(system, "50004 bytes of output dropped") {
		t.Errorf("%d bytes kept, remark %q", len(stdout), system)
	}
	if a := done.Attempts[0]; a.OutputBytes != 100_004 || a.DroppedBytes != 50_004 {
		t.Errorf("got %+v", a)
	}
}

func TestOutputRedactsSecrets(t *testing.T) {
	t.Parallel()
	job := shell(`printf 'the word is open'; sleep 0.1; printf 'sesame\n'; echo "$API_TOKEN" >&2`)
	job.Env = map[string]string{"API_TOKEN": "opensesame"}
	n, done := runOnce(t, job, jobstore.NewJob{})
	if got := n.logs(t, done.ID, 1, jobstore.StreamStdout); got != "the word is [redacted]\n" {
		t.Errorf("stdout %q", got)
	}
	if got := n.logs(t, done.ID, 1, jobstore.StreamStderr); got != "[redacted]\n" {
		t.Errorf("stderr %q", got)
	}
}

func TestOutputRetentionPerJob(t *testing.T) {
	t.Parallel()
	job := shell("echo kept")
	job.Output.Retention = config.Duration(48 * time.Hour)
	n, done := runOnce(t, job, jobstore.NewJob{})
	var kept float64
	err := n.pool.QueryRow(t.Context(), `SELECT extract(epoch FROM keep_until - at)::float8 / 3600 FROM forge_job_logs WHERE job_id = $1`,
		done.ID).Scan(&kept)
	if err != nil || kept != 48 {
		t.Errorf("kept for %v hours, want 48: %v", kept, err)
	}
}

func TestOutputIsStoredWhileJobRuns(t *testing.T) {
	t.Parallel()
	n := startNode(t, map[string]config.Job{"job": once(shell("echo first; sleep 300"))},
		func(o *jobs.Options) { o.DrainTimeout = time.Millisecond })
	id := n.work(t, jobstore.NewJob{Kind: "job"})
	eventually(t, func() bool { return n.logs(t, id, 1, jobstore.StreamStdout) == "first\n" },
		func() string { return "no output while the job runs" })
	n.finish(t, id, "running")
}

func TestHTTPRequestAndResponse(t *testing.T) {
	t.Parallel()
	type request struct {
		method, body string
		header       http.Header
	}
	seen := make(chan request, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		seen <- request{r.Method, string(body), r.Header}
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, "done")
	}))
	t.Cleanup(server.Close)
	job := config.Job{
		Kind: config.KindHTTP, Method: "POST", URL: server.URL, Body: "ping",
		Headers: map[string]string{"X-Colour": "blue", "Idempotency-Key": "forged"},
	}
	n, done := runOnce(t, job, jobstore.NewJob{Metadata: tickMetadata})
	got := <-seen
	for name, want := range map[string]string{
		"X-Colour": "blue", "Idempotency-Key": "nightly@2026-11-20T03:00:00Z", "Forge-Job": "job",
		"Forge-Job-Id": strconv.FormatInt(done.ID, 10), "Forge-Attempt": "1", "Forge-Cron": "nightly",
		"Forge-Tick": "2026-11-20T03:00:00Z", "Forge-Term": "7", "Forge-Node": nodeID,
	} {
		if got.header.Get(name) != want {
			t.Errorf("header %s is %q, want %q", name, got.header.Get(name), want)
		}
	}
	if got.method != "POST" || got.body != "ping" {
		t.Errorf("got %s %q", got.method, got.body)
	}
	if a := done.Attempts[0]; done.State != "completed" || a.StatusCode == nil || *a.StatusCode != http.StatusAccepted {
		t.Errorf("got %+v", done)
	}
	if out := n.logs(t, done.ID, 1, jobstore.StreamStdout); out != "done" {
		t.Errorf("output is %q", out)
	}
}

func TestHTTPStatus(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	n := startNode(t, map[string]config.Job{
		"discarded": once(config.Job{Kind: config.KindHTTP, URL: server.URL}),
		"completed": once(config.Job{Kind: config.KindHTTP, URL: server.URL, ExpectStatus: []int{http.StatusNotFound}}),
	})
	for _, state := range []string{"discarded", "completed"} {
		done := n.finish(t, n.work(t, jobstore.NewJob{Kind: state}), "completed", "discarded")
		if done.State != state || *done.Attempts[0].StatusCode != http.StatusNotFound {
			t.Errorf("got %+v", done)
		}
	}
}

func TestHTTPRedirects(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "token %q referer %q", r.Header.Get("X-Token"), r.Referer())
	}))
	t.Cleanup(other.Close)
	mux := http.NewServeMux()
	mux.HandleFunc("/hops/{n}", func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.PathValue("n"))
		if n == 0 {
			return
		}
		http.Redirect(w, r, fmt.Sprintf("/hops/%d", n-1), http.StatusFound)
	})
	mux.Handle("/away", http.RedirectHandler(other.URL, http.StatusFound))
	mux.Handle("/metadata", http.RedirectHandler("http://169.254.169.254/latest", http.StatusFound))
	mux.Handle("/file", http.RedirectHandler("file:///etc/passwd", http.StatusFound))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)

	wants := map[string]string{
		"hops/5": "", "hops/6": "stopped after 5 redirects", "metadata": "blocked address 169.254.169.254 (only allow_cidrs in [http] opens it)",
		"file": "redirect to file refused", "away": "",
	}
	configured := map[string]config.Job{}
	for path := range wants {
		configured[path] = once(config.Job{
			Kind: config.KindHTTP, URL: server.URL + "/" + path, Headers: map[string]string{"X-Token": "hunter22"},
		})
	}
	n := startNode(t, configured)
	for path, want := range wants {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			done := n.finish(t, n.work(t, jobstore.NewJob{Kind: path}), "completed", "discarded")
			if want == "" && done.State != "completed" || !strings.Contains(done.LastError, want) {
				t.Errorf("got %s: %q, want %q", done.State, done.LastError, want)
			}
			if out := n.logs(t, done.ID, 1, jobstore.StreamStdout); path == "away" && out != `token "" referer ""` {
				t.Errorf("the job's header or address was sent to another host: %s", out)
			}
		})
	}
}

// After a redirect to another origin and back, the job's headers are sent to no later
// request of the chain.
func TestHTTPRedirectBackCarriesNoHeaders(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	home := httptest.NewServer(mux)
	t.Cleanup(home.Close)
	away := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/away" {
			http.Redirect(w, r, "/relative", http.StatusFound)
			return
		}
		http.Redirect(w, r, home.URL+"/back?host="+r.Host, http.StatusFound)
	}))
	t.Cleanup(away.Close)
	mux.HandleFunc("/start", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/second", http.StatusFound)
	})
	mux.HandleFunc("/second", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Token") != "hunter22" || r.Header.Get("Forge-Job") == "" || r.Referer() != "" {
			t.Errorf("a redirect within the origin came with %v", r.Header)
		}
		http.Redirect(w, r, away.URL+"/away", http.StatusFound)
	})
	mux.HandleFunc("/back", func(w http.ResponseWriter, r *http.Request) {
		header := r.Header.Clone()
		header.Del("Accept-Encoding") // set by the transport
		_, _ = fmt.Fprintf(w, "%v, host of the hop before: %t", header, "http://"+r.URL.Query().Get("host") == away.URL)
	})
	n, done := runOnce(t, config.Job{
		Kind: config.KindHTTP, URL: home.URL + "/start?key=first", Headers: map[string]string{
			"X-Token": "hunter22", "Authorization": "Bearer hunter22", "Cookie": "a=hunter22", "Referer": "http://hunter22/", "Host": "hunter22.example",
		},
	}, jobstore.NewJob{})
	want := "map[Connection:[close] User-Agent:[forge]], host of the hop before: true"
	if out := n.logs(t, done.ID, 1, jobstore.StreamStdout); out != want {
		t.Errorf("%s: the last hop got %s, want %s", done.State, out, want)
	}
}

func TestHTTPBlocksPrivateTargetsByDefault(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	_, done := runOnce(t, config.Job{Kind: config.KindHTTP, URL: server.URL}, jobstore.NewJob{},
		func(o *jobs.Options) { o.AllowPrivateTargets = false })
	if !strings.Contains(done.LastError, "allow_private_targets") {
		t.Errorf("got %+v", done)
	}
}

func TestHTTPTimeout(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(server.Close)
	job := config.Job{Kind: config.KindHTTP, URL: server.URL, Timeout: config.Duration(100 * time.Millisecond)}
	if _, done := runOnce(t, job, jobstore.NewJob{}); done.Attempts[0].Outcome != jobstore.OutcomeTimedOut {
		t.Errorf("got %+v", done)
	}
}

func TestErrorsRedactSecrets(t *testing.T) {
	t.Parallel()
	job := config.Job{Kind: config.KindHTTP, URL: "http://user:hunter22@127.0.0.1:1/?token=s3cr3t5"}
	_, done := runOnce(t, job, jobstore.NewJob{})
	if done.LastError == "" || strings.Contains(done.LastError, "hunter22") || strings.Contains(done.LastError, "s3cr3t5") {
		t.Errorf("the error is %q", done.LastError)
	}
}

func TestSQL(t *testing.T) {
	t.Parallel()
	testSQL(t)
}

func testSQL(t *testing.T, change ...func(*jobs.Options)) {
	t.Helper()
	tests := map[string]struct {
		statement, stdout, system, fails string
		timeout                          time.Duration
	}{
		"parameters": {
			statement: `SELECT @job_id > 0 AS id, @job AS job, @attempt AS attempt, @cron AS cron,
				to_char(@tick::timestamptz AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI') AS tick, @term AS term, @node AS node,
				@args::jsonb ->> 'n' AS n, NULL AS nothing`,
			stdout: "id\tjob\tattempt\tcron\ttick\tterm\tnode\tn\tnothing\n" +
				"t\tparameters\t1\tnightly\t2026-11-20 03:00\t7\tnode-a\t1\tNULL\n",
			system: "SELECT 1\n",
		},
		"rows-affected":   {statement: `INSERT INTO forge_events (type) SELECT @cron FROM generate_series(1, 3)`, system: "INSERT 0 3\n"},
		"many-rows":       {statement: `SELECT 1 AS one FROM generate_series(1, 102)`, stdout: "one\n" + strings.Repeat("1\n", 100), system: "2 more rows not shown\nSELECT 102\n"},
		"one-row-more":    {statement: `SELECT 1 AS one FROM generate_series(1, 101)`, stdout: "one\n" + strings.Repeat("1\n", 100), system: "1 more row not shown\nSELECT 101\n"},
		"no-transaction":  {statement: `VACUUM forge_events`, system: "VACUUM\n"},
		"error":           {statement: `SELECT 1/0`, fails: "division by zero"},
		"two-statements":  {statement: `SELECT 1; SELECT 2`, fails: "multiple commands"},
		"longest-timeout": {statement: `SELECT 1`, timeout: 30 * 24 * time.Hour, stdout: "?column?\n1\n", system: "SELECT 1\n"},
		"servers-timeout": {statement: `SELECT pg_sleep(60)`, timeout: 100 * time.Millisecond, fails: "timed out after 100ms"},
	}
	configured := map[string]config.Job{}
	for name, test := range tests {
		configured[name] = once(config.Job{
			Kind: config.KindSQL, Statement: test.statement, StatementTimeout: config.Duration(test.timeout),
		})
	}
	n := startNode(t, configured, change...)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			id := n.work(t, jobstore.NewJob{Kind: name, Args: []byte(`{"n": 1}`), Metadata: tickMetadata})
			done := n.finish(t, id, "completed", "discarded")
			if (done.State == "completed") != (test.fails == "") || !strings.Contains(done.LastError, test.fails) {
				t.Fatalf("got %s: %q, want %q", done.State, done.LastError, test.fails)
			}
			if got := n.logs(t, done.ID, 1, jobstore.StreamStdout); got != test.stdout {
				t.Errorf("output is %q, want %q", got, test.stdout)
			}
			if got := n.logs(t, done.ID, 1, jobstore.StreamSystem); got != test.system {
				t.Errorf("remarks are %q, want %q", got, test.system)
			}
		})
	}
}

func TestSQLIsCancelledOnTheServer(t *testing.T) {
	t.Parallel()
	job := config.Job{Kind: config.KindSQL, Statement: `SELECT pg_sleep(300)`, Timeout: config.Duration(300 * time.Millisecond)}
	n, done := runOnce(t, job, jobstore.NewJob{})
	if done.Attempts[0].Outcome != jobstore.OutcomeTimedOut {
		t.Errorf("got %+v", done)
	}
	eventually(t, func() bool {
		var left int
		err := n.pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND query LIKE '%pg_sleep(300)%' AND pid <> pg_backend_pid()`).Scan(&left)
		return err == nil && left == 0
	}, func() string { return "the statement still runs" })
}

func TestShellErrorIsLastLineOfStderr(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ script, want string }{
		"status":    {`echo out; echo first >&2; printf '\033[31mcannot read page %d\033[0m\n\n' 7 >&2; exit 3`, "cannot read page 7 (exit status 3)"},
		"signal":    {`echo "out of memory" >&2; kill -9 $$`, "out of memory (command ended by signal 9 (killed))"},
		"no stderr": {`echo out; exit 4`, "exit status 4"},
		"secret":    {`echo "login as $API_TOKEN failed" >&2; exit 5`, "login as [redacted] failed (exit status 5)"},
		"beyond the capture": {
			`head -c 50000 /dev/zero | tr '\0' e >&2; printf '\nno space left\n' >&2; exit 6`, "no space left (exit status 6)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			job := shell(test.script)
			job.Output.Capture = 1000
			job.Env = map[string]string{"API_TOKEN": "hunter22-abc"}
			_, done := runOnce(t, job, jobstore.NewJob{})
			if done.LastError != test.want || done.Attempts[0].Error != test.want {
				t.Errorf("%q and %q, want %q", done.LastError, done.Attempts[0].Error, test.want)
			}
		})
	}
}
