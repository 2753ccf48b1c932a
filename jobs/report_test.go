package jobs_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

// state describes the end of a job in one line.
func state(job jobstore.Job) string {
	attempts := make([]string, len(job.Attempts))
	for i, a := range job.Attempts {
		attempts[i] = fmt.Sprint(a.Attempt, " ", a.Outcome)
	}
	return fmt.Sprintf("%s, %d of %d attempts (%s), %d snoozes, error %q, progress %q, result %s",
		job.State, job.Attempt, job.MaxAttempts, strings.Join(attempts, "; "), job.Snoozes, job.LastError, job.Progress.Text(), job.Result)
}

func TestShellReports(t *testing.T) {
	t.Parallel()
	secret := "s3cr3t-of-the-file"
	coded := func(script string) config.Job {
		job := shell(script)
		job.ExitCodes = config.ExitCodes{Snooze: 75, Cancel: 76, Discard: 77}
		return job
	}
	echo := func(line string) string { return `echo '` + line + `' >>"$FORGE_REPORT"; ` }
	hidden := shell(echo(`{"result": {"key": "`+secret+`"}, "message": "`+secret+`"}`) + `true`)
	hidden.Env = map[string]string{"API_TOKEN": secret}
	for name, test := range map[string]struct {
		job  config.Job
		want string
	}{
		"result": {
			shell(echo(`{"result": {"rows": 7}, "progress": 50, "message": "half"}`) + echo(`{"progress": 100}`)),
			`completed, 1 of 3 attempts (1 completed), 0 snoozes, error "", progress "100%: half", result {"rows": 7}`,
		},
		"without-newline": {
			shell(`printf '{"result": [1, "a"]}' >"$FORGE_REPORT"`),
			`completed, 1 of 3 attempts (1 completed), 0 snoozes, error "", progress "", result [1, "a"]`,
		},
		"failed": {
			shell(echo(`{"result": "partial", "progress": 12.5}`) + `exit 3`),
			`retryable, 1 of 3 attempts (1 failed), 0 snoozes, error "exit status 3", progress "12.5%", result "partial"`,
		},
		"snoozed": {
			shell(echo(`{"snooze": "10m"}`)),
			`scheduled, 0 of 3 attempts (1 snoozed), 1 snoozes, error "", progress "", result `,
		},
		"failed-snooze": {
			shell(echo(`{"snooze": "10m"}`) + `exit 3`),
			`retryable, 1 of 3 attempts (1 failed), 0 snoozes, error "exit status 3", progress "", result `,
		},
		"cancelled": {
			shell(echo(`{"cancel": "no such customer"}`) + `exit 1`),
			`cancelled, 1 of 3 attempts (1 cancelled), 0 snoozes, error "no such customer", progress "", result `,
		},
		"discarded": {
			shell(echo(`{"discard": "bad data"}`)),
			`discarded, 1 of 3 attempts (1 failed), 0 snoozes, error "bad data", progress "", result `,
		},
		"the-last-counts": {
			shell(echo(`{"discard": "bad data"}`) + echo(`{"snooze": "1h"}`)),
			`scheduled, 0 of 3 attempts (1 snoozed), 1 snoozes, error "", progress "", result `,
		},
		"code-snooze":  {coded(`exit 75`), `scheduled, 0 of 3 attempts (1 snoozed), 1 snoozes, error "", progress "", result `},
		"code-cancel":  {coded(`echo gone >&2; exit 76`), `cancelled, 1 of 3 attempts (1 cancelled), 0 snoozes, error "gone (exit status 76)", progress "", result `},
		"code-discard": {coded(echo(`{"discard": "bad data"}`) + `exit 77`), `discarded, 1 of 3 attempts (1 failed), 0 snoozes, error "bad data", progress "", result `},
		"code-of-none": {shell(`exit 75`), `retryable, 1 of 3 attempts (1 failed), 0 snoozes, error "exit status 75", progress "", result `},
		"signal":       {shell(echo(`{"snooze": "1h"}`) + `kill -9 $$`), `retryable, 1 of 3 attempts (1 failed), 0 snoozes, error "command ended by signal 9 (killed)", progress "", result `},
		"secret":       {hidden, `completed, 1 of 3 attempts (1 completed), 0 snoozes, error "", progress "[redacted]", result {"key": "[redacted]"}`},
		"replaced":     {shell(echo(`{"result": 1}`) + `rm "$FORGE_REPORT"; ln -s /etc/passwd "$FORGE_REPORT"`), `completed, 1 of 3 attempts (1 completed), 0 snoozes, error "", progress "", result 1`},
		"a-terabyte":   {shell(echo(`{"result": 1}`) + `truncate -s 1T "$FORGE_REPORT"`), `completed, 1 of 3 attempts (1 completed), 0 snoozes, error "", progress "", result 1`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			job := test.job
			job.Retry = config.Retry{MaxAttempts: 3, Backoff: config.Duration(time.Hour), MaxBackoff: config.Duration(time.Hour)}
			n := startNode(t, map[string]config.Job{"k": job})
			id := n.work(t, jobstore.NewJob{Kind: "k", MaxAttempts: 3})
			if got := state(n.finish(t, id, "completed", "cancelled", "discarded", "scheduled", "retryable")); got != test.want {
				t.Errorf("\n got %s\nwant %s\n%s", got, test.want, n.logs(t, id, 1, "system"))
			}
		})
	}
}

// Each bad line is named in the output and changes nothing else.
func TestBadReportLinesAreNamed(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 70_000)
	script := `{ cat <<'END'
{"progress": 101}
{"prog": 1}
[1]

{"progress": 1} {"progress": 2}
{"snooze": "soon"}
{"cancel": "a", "discard": "b"}
not JSON
{"result": "` + long + `"}
{"result": {"a": "\u0000"}}
{"progress": "1"}
{"progress": 7}
END
yes '[]' | head -n 20; } >"$FORGE_REPORT"`
	file := t.TempDir() + "/script"
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	job := config.Job{Kind: config.KindShell, Command: []string{"sh", file}}
	n := startNode(t, map[string]config.Job{"k": job})
	id := n.work(t, jobstore.NewJob{Kind: "k"})
	if got := n.finish(t, id, "completed", "retryable", "discarded"); got.State != "completed" || got.Progress.Text() != "7%" || got.Result != nil {
		t.Errorf("got %s", state(got))
	}
	logs := n.logs(t, id, 1, "system")
	for _, want := range []string{
		"report: line 1 ignored: progress is out of range (got 101); want 0 to 100\n",
		`report: line 2 ignored: json: unknown field "prog"; want an object with progress, message, result, snooze, cancel or discard` + "\n",
		"report: line 3 ignored: json: cannot unmarshal array into Go value",
		"report: line 5 ignored: more than one value; want one object a line\n",
		`report: line 6 ignored: snooze is no duration, or out of range (got "soon"); want 1s to 366d, such as 10m` + "\n",
		"report: line 7 ignored: more than one of snooze, cancel and discard; want one\n",
		"report: line 8 ignored: invalid character",
		"report: line 9 ignored: longer than 66 KiB\n",
		"report: line 10 ignored: result.a: a NUL character, which PostgreSQL's jsonb refuses; want text without it\n",
		"report: line 11 ignored: json: cannot unmarshal string into Go struct field reportLine.progress of type float64",
		"report: 20 more bad lines\n",
	} {
		if !strings.Contains(logs, want) {
			t.Errorf("the output lacks %q:\n%s", want, logs)
		}
	}
}

// A result that PostgreSQL would reject is ignored, whatever its length.
func TestLongResultsAreChecked(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ result, want string }{
		"half a pair":     {strings.Repeat("<", 20_000) + `\ud800`, `report: line 1 ignored: result: half of a surrogate pair`},
		"NUL":             {strings.Repeat("x", 65_517) + `\u0000`, `report: line 1 ignored: result: a NUL character`},
		"the longest":     {strings.Repeat("<", 65_523), ""},
		"a byte too long": {strings.Repeat("x", 65_524), "report: line 1 ignored: the result has 65526 bytes; want at most 65525\n"},
		"an invalid byte": {strings.Repeat("x", 65_520) + "\xff", `report: line 1 ignored: result: invalid UTF-8`},
		"of a short line": {"<", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := t.TempDir() + "/report"
			if err := os.WriteFile(file, []byte(`{"result": "`+test.result+`"}`), 0o600); err != nil {
				t.Fatal(err)
			}
			n := startNode(t, map[string]config.Job{"k": shell(`cat ` + file + ` >"$FORGE_REPORT"`)})
			id := n.work(t, jobstore.NewJob{Kind: "k", MaxAttempts: 1})
			job := n.finish(t, id, "completed", "discarded")
			logs := n.logs(t, id, 1, "system")
			if stored := string(job.Result) == `"`+test.result+`"`; job.State != "completed" || stored != (test.want == "") || !strings.HasPrefix(logs, test.want) {
				t.Errorf("the job is %s, %d bytes are stored, and the output has %q", job.State, len(job.Result), logs)
			}
		})
	}
}

// Progress is stored while the command runs, and its file is removed.
func TestProgressIsStoredWhileItRuns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n := startNode(t, map[string]config.Job{"k": shell(`echo '{"progress": 25, "message": "page 1 of 4"}' >>"$FORGE_REPORT"
echo "$FORGE_REPORT" >` + dir + `/path; while [ ! -e ` + dir + `/go ]; do sleep 0.05; done`)})
	id := n.work(t, jobstore.NewJob{Kind: "k"})
	eventually(t, func() bool {
		job, err := jobstore.New(n.pool).Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return job.State == "running" && job.Progress.Text() == "25%: page 1 of 4" && job.Progress.Attempt == 1 && time.Since(job.Progress.At) < waitTimeout
	}, func() string { return "no progress is stored" })
	if err := os.WriteFile(dir+"/go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n.finish(t, id, "completed")
	path, err := os.ReadFile(dir + "/path")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(strings.TrimSpace(string(path))); !os.IsNotExist(err) {
		t.Errorf("the file is still there: %v", err)
	}
}

// A stale attempt cannot change the progress.
func TestProgressOfAnotherAttemptIsRefused(t *testing.T) {
	t.Parallel()
	n := startNode(t, map[string]config.Job{"k": shell(`sleep 60`)})
	id := n.work(t, jobstore.NewJob{Kind: "k"})
	n.finish(t, id, "running")
	client := nodeID + "-" + n.incarnation
	for _, test := range []struct {
		client  string
		attempt int
		want    string
	}{{client, 2, ""}, {"node-b-" + n.incarnation, 1, ""}, {client, 1, "mine"}} {
		if err := jobstore.New(n.pool).SetProgress(t.Context(), id, test.client, jobstore.Progress{Attempt: test.attempt, Message: "mine"}); err != nil {
			t.Fatal(err)
		}
		job, err := jobstore.New(n.pool).Get(t.Context(), id)
		if err != nil || job.Progress.Text() != test.want {
			t.Errorf("attempt %d of %s: got %q, %v", test.attempt, test.client, job.Progress.Text(), err)
		}
	}
	exec(t, n.pool, `SELECT forge_cancel($1)`, id)
	if job := n.finish(t, id, "cancelled"); job.Progress.Text() != "mine" {
		t.Errorf("got %s", state(job))
	}
}

// Jobs that do nothing but snooze fail in the end.
func TestSnoozesAreBounded(t *testing.T) {
	t.Parallel()
	n := startNode(t, map[string]config.Job{"k": shell(`echo '{"snooze": "1h"}' >>"$FORGE_REPORT"`)})
	id, err := n.Insert(t.Context(), jobstore.NewJob{Kind: "k", MaxAttempts: 1, Metadata: map[string]any{"snoozes": 1000}})
	if err != nil {
		t.Fatal(err)
	}
	n.offer(t, id)
	if job := n.finish(t, id, "discarded", "scheduled"); job.LastError != "snoozed 1000 times, which is the maximum" {
		t.Errorf("got %s", state(job))
	}
}

func TestHTTPReports(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		headers map[string]string
		status  int
		body    string
		snoozes int
		want    string
		wait    time.Duration
	}{
		"plain":            {nil, 200, `{"result": 1}`, 0, `completed, 1 of 3 attempts (1 completed), 0 snoozes, error "", progress "", result `, 0},
		"lines":            {map[string]string{"Forge-Report": "lines"}, 200, "{\"progress\": 50}\n{\"result\": {\"n\": 1}}\n", 0, `completed, 1 of 3 attempts (1 completed), 0 snoozes, error "", progress "50%", result {"n": 1}`, 0},
		"lines-cancel":     {map[string]string{"Forge-Report": "lines"}, 200, `{"cancel": "gone"}`, 0, `cancelled, 1 of 3 attempts (1 cancelled), 0 snoozes, error "gone", progress "", result `, 0},
		"snooze":           {map[string]string{"Forge-Snooze": "30m"}, 202, ``, 0, `scheduled, 0 of 3 attempts (1 snoozed), 1 snoozes, error "", progress "", result `, 30 * time.Minute},
		"cancel":           {map[string]string{"Forge-Cancel": "no such customer"}, 404, ``, 0, `cancelled, 1 of 3 attempts (1 cancelled), 0 snoozes, error "no such customer", progress "", result `, 0},
		"discard":          {map[string]string{"Forge-Discard": "bad data"}, 422, ``, 0, `discarded, 1 of 3 attempts (1 failed), 0 snoozes, error "bad data", progress "", result `, 0},
		"bad":              {map[string]string{"Forge-Snooze": "soon"}, 200, ``, 0, `completed, 1 of 3 attempts (1 completed), 0 snoozes, error "", progress "", result `, 0},
		"retry-after":      {map[string]string{"Retry-After": "600"}, 429, ``, 0, `scheduled, 0 of 3 attempts (1 snoozed), 1 snoozes, error "", progress "", result `, 10 * time.Minute},
		"retry-after-time": {map[string]string{"Retry-After": time.Now().Add(2 * time.Hour).UTC().Format(http.TimeFormat)}, 503, ``, 0, `scheduled, 0 of 3 attempts (1 snoozed), 1 snoozes, error "", progress "", result `, 2 * time.Hour},
		"retry-after-long": {map[string]string{"Retry-After": "9999999"}, 503, ``, 0, `scheduled, 0 of 3 attempts (1 snoozed), 1 snoozes, error "", progress "", result `, 24 * time.Hour},
		"retry-after-20":   {map[string]string{"Retry-After": "600"}, 503, ``, 20, `retryable, 1 of 3 attempts (1 failed), 20 snoozes, error "status 503 Service Unavailable, want 2xx", progress "", result `, 0},
		"retry-after-500":  {map[string]string{"Retry-After": "600"}, 500, ``, 0, `retryable, 1 of 3 attempts (1 failed), 0 snoozes, error "status 500 Internal Server Error, want 2xx", progress "", result `, 0},
		"retry-after-bad":  {map[string]string{"Retry-After": "later"}, 503, ``, 0, `retryable, 1 of 3 attempts (1 failed), 0 snoozes, error "status 503 Service Unavailable, want 2xx", progress "", result `, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				for key, value := range test.headers {
					w.Header().Set(key, value)
				}
				w.WriteHeader(test.status)
				_, _ = w.Write([]byte(test.body))
			}))
			defer server.Close()
			n := startNode(t, map[string]config.Job{"k": {Kind: config.KindHTTP, URL: server.URL, Retry: config.Retry{
				MaxAttempts: 3, Backoff: config.Duration(time.Hour), MaxBackoff: config.Duration(time.Hour),
			}}})
			id, err := n.Insert(t.Context(), jobstore.NewJob{Kind: "k", MaxAttempts: 3, Metadata: map[string]any{"snoozes": test.snoozes}})
			if err != nil {
				t.Fatal(err)
			}
			n.offer(t, id)
			job := n.finish(t, id, "completed", "cancelled", "discarded", "scheduled", "retryable")
			if got := state(job); got != test.want {
				t.Errorf("\n got %s\nwant %s\n%s", got, test.want, n.logs(t, id, 1, "system"))
			}
			if wait := job.ScheduledAt.Sub(job.AttemptedAt); test.wait > 0 && (wait < test.wait-time.Minute || wait > test.wait+time.Minute) {
				t.Errorf("snoozed for %v, want %v", wait, test.wait)
			}
		})
	}
}

// The progress of a response is stored while it is sent.
func TestHTTPProgressIsStoredWhileItRuns(t *testing.T) {
	t.Parallel()
	goOn := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Forge-Report", "lines")
		_, _ = w.Write([]byte("{\"message\": \"reading\"}\n"))
		_ = http.NewResponseController(w).Flush()
		<-goOn
	}))
	defer server.Close()
	n := startNode(t, map[string]config.Job{"k": {Kind: config.KindHTTP, URL: server.URL}})
	id := n.work(t, jobstore.NewJob{Kind: "k"})
	eventually(t, func() bool {
		job, err := jobstore.New(n.pool).Get(t.Context(), id)
		return err == nil && job.State == "running" && job.Progress.Text() == "reading"
	}, func() string { return "no progress is stored" })
	close(goOn)
	n.finish(t, id, "completed")
}

// A command runs without a report if the node has no directory for its file.
func TestCommandRunsWithoutReport(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir()+"/none")
	n := startNode(t, map[string]config.Job{"k": shell(`test -z "$FORGE_REPORT"`)})
	id := n.work(t, jobstore.NewJob{Kind: "k"})
	if job := n.finish(t, id, "completed", "retryable", "discarded"); job.State != "completed" {
		t.Errorf("got %s", state(job))
	}
	if logs := n.logs(t, id, 1, "system"); !strings.Contains(logs, "report: none is read: ") {
		t.Errorf("the output does not say so: %q", logs)
	}
}
