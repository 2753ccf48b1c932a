package jobs_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/jobs"
)

// Problems that cannot be detected in the file fail the attempt with these messages. The
// numbers are the entries of the job catalogue in internal/config.
func TestRunTimeErrorMessages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	text, setuid := file("text", 0o600), file("setuid", 0o700|os.ModeSetuid)
	other := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(other.Close)
	server := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	t.Cleanup(server.Close)

	command := func(words ...string) config.Job { return config.Job{Kind: config.KindShell, Command: words} }
	inside := command("true")
	inside.Cwd = dir + "/none"
	inFile := command("true")
	inFile.Cwd = text
	as := command("true")
	as.User = "nobody-of-that-name"
	sendsBody := config.Job{Kind: config.KindHTTP, URL: server.URL, Body: "secret"}
	for name, test := range map[string]struct {
		job  config.Job
		want string
	}{
		"75 not there":       {command("/none/such"), `command[0]: no such program (got "/none/such"); want a program of this host`},
		"75 not on PATH":     {command("no-such-program"), "command[0]: no such program on the PATH " + os.Getenv("PATH") + ` (got "no-such-program"); want a program of this host`},
		"75 a directory":     {command(dir), `command[0]: not a program's file (got "` + dir + `"); want a program of this host`},
		"75 not executable":  {command(text), `command[0]: a file that is not executable (got "` + text + `"); want chmod +x, or its interpreter first`},
		"75 setuid":          {command(setuid), `command[0]: a setuid program, which leaves the job's user (got "` + setuid + `"); want user = NAME, and the command itself`},
		"77 no such user":    {as, `user: no such user (got "nobody-of-that-name"); want a user of this host`},
		"78 no directory":    {inside, `cwd: no such file or directory (got "` + dir + `/none"); want a directory of this host`},
		"78 not a directory": {inFile, `cwd: not a directory (got "` + text + `"); want a directory of this host`},
		"80 link-local": {
			config.Job{Kind: config.KindHTTP, URL: "http://169.254.169.254/"},
			`Get "http://169.254.169.254/": dial tcp 169.254.169.254:80: blocked address 169.254.169.254 (only allow_cidrs in [http] opens it)`,
		},
		"80 NAT64": {
			config.Job{Kind: config.KindHTTP, URL: "http://[64:ff9b::a9fe:a9fe]/"},
			`Get "http://[64:ff9b::a9fe:a9fe]/": dial tcp [64:ff9b::a9fe:a9fe]:80: blocked address 64:ff9b::a9fe:a9fe (only allow_cidrs in [http] opens it)`,
		},
		"82 the body to another host": {
			sendsBody,
			`Post "` + other.URL + `": redirect to ` + strings.TrimPrefix(other.URL, "http://") + " refused: it would send the body to another origin",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, done := runOnce(t, test.job, jobstore.NewJob{})
			if done.State != "discarded" || done.LastError != test.want {
				t.Errorf("%s\n got %s\nwant %s", done.State, done.LastError, test.want)
			}
		})
	}
}

// Catalogue entry 75: a node runs the commands that it allows, and the error for other
// commands lists those.
func TestDisallowedCommandsAreRejected(t *testing.T) {
	t.Parallel()
	path, err := osexec.LookPath("true")
	if err != nil {
		t.Fatal(err)
	}
	allow := func(programs ...string) func(*jobs.Options) {
		return func(o *jobs.Options) { o.AllowedCommands = programs }
	}
	job := config.Job{Kind: config.KindShell, Command: []string{"true"}}
	if _, done := runOnce(t, job, jobstore.NewJob{}, allow(path)); done.State != "completed" {
		t.Errorf("got %s, %s", done.State, done.LastError)
	}
	_, done := runOnce(t, job, jobstore.NewJob{}, allow("/opt/jobs/*", "/opt/report"))
	want := `command[0]: a program that this node does not allow (got "` + path + `"); want one of node.allowed_commands: /opt/jobs/*, /opt/report`
	if done.State != "discarded" || done.LastError != want {
		t.Errorf("%s\n got %s\nwant %s", done.State, done.LastError, want)
	}
}

func TestPrivateTargetsAreBlockedByDefault(t *testing.T) {
	t.Parallel()
	_, done := runOnce(t, config.Job{Kind: config.KindHTTP, URL: "http://127.0.0.1:1/"}, jobstore.NewJob{},
		func(o *jobs.Options) { o.AllowPrivateTargets = false })
	want := `Get "http://127.0.0.1:1/": dial tcp 127.0.0.1:1: blocked address 127.0.0.1 (allow_private_targets or allow_cidrs in [http] opens it)`
	if done.LastError != want {
		t.Errorf("got %s, want %s", done.LastError, want)
	}
}

func TestAllowedTargetRanges(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(server.Close)
	_, done := runOnce(t, config.Job{Kind: config.KindHTTP, URL: server.URL}, jobstore.NewJob{}, func(o *jobs.Options) {
		o.AllowPrivateTargets, o.AllowTargets = false, config.HTTP{AllowCIDRs: []string{"127.0.0.0/8"}}.AllowedTargets()
	})
	if done.State != "completed" {
		t.Errorf("got %+v", done)
	}
}

// The values of references appear nowhere, for any name of the variable.
func TestReferenceValuesAreRedacted(t *testing.T) {
	t.Parallel()
	const canary = "c4nary+s3cret"
	seen := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r.URL.Query().Get("a") + r.Header.Get("X-Plain")
		_, _ = w.Write([]byte("you said " + r.Header.Get("X-Plain")))
	}))
	t.Cleanup(server.Close)
	cfg, report, err := config.Parse("forge.toml", []byte(`
[http]
allow_private_targets = true
[jobs.echo]
kind = "shell"
command = ["sh", "-c", "echo $PLAIN; echo $PLAIN >&2; exit 3"]
env = { PLAIN = "${env:CANARY}" }
retry = { max_attempts = 1 }
[jobs.ask]
kind = "http"
url = "`+server.URL+`/?a=${env:CANARY}"
headers = { X-Plain = "is ${env:CANARY}" }
expect_status = [500]
retry = { max_attempts = 1 }
[jobs.lost]
kind = "http"
url = "http://127.0.0.1:1/${env:CANARY}"
retry = { max_attempts = 1 }
`), config.LoadOptions{Environ: func() []string { return []string{"CANARY=" + canary} }})
	if err != nil {
		t.Fatal(report)
	}
	var log bytes.Buffer
	n := startNode(t, cfg.Jobs, func(o *jobs.Options) { o.Logger = slog.New(slog.NewJSONHandler(&log, nil)) })
	for name := range cfg.Jobs {
		n.finish(t, n.work(t, jobstore.NewJob{Kind: name}), "discarded")
	}
	if got := <-seen; got != "c4nary s3cretis "+canary { // a plus in a query is a space
		t.Errorf("the server got %q", got)
	}
	n.stop()
	var rows string
	err = n.pool.QueryRow(t.Context(), `SELECT concat((SELECT string_agg(j::text, ' ') FROM river_job j),
		(SELECT string_agg(l::text, ' ') FROM forge_job_logs l))`).Scan(&rows)
	if err != nil || !strings.Contains(rows, "[redacted]") {
		t.Fatalf("nothing was redacted: %v, %s", err, rows)
	}
	for what, text := range map[string]string{"the database": rows, "the log": log.String()} {
		for _, form := range []string{canary, "c4nary%2Bs3cret", "c4nary"} {
			if strings.Contains(text, form) {
				t.Errorf("%s holds %s: %s", what, form, text)
			}
		}
	}
}

// Catalogue entry 73: a command that is only in the database is never run.
func TestDatabaseCannotSetCommand(t *testing.T) {
	t.Parallel()
	made := filepath.Join(t.TempDir(), "made")
	n := startNode(t, map[string]config.Job{"hello": once(shell("echo hello"))})
	args := []byte(`{"kind": "shell", "command": ["touch", "` + made + `"], "cwd": "/"}`)
	add := jobstore.NewJob{Args: args, MaxAttempts: 1, Metadata: map[string]any{"command": []string{"touch", made}, "forge:command": []string{"touch", made}}}

	add.Kind = "hello"
	done := n.finish(t, n.work(t, add), "completed")
	if got := n.logs(t, done.ID, 1, jobstore.StreamStdout); got != "hello\n" {
		t.Errorf("hello printed %q", got)
	}
	for _, kind := range []string{"unknown", "forge:events"} { // the second is the kind of forge's own worker
		add.Kind = kind
		want := "job kind is not registered in the client's Workers bundle: " + kind
		if done := n.finish(t, n.work(t, add), "discarded"); done.LastError != want {
			t.Errorf("%s: %q, want %q", kind, done.LastError, want)
		}
	}
	if _, err := os.Stat(made); err == nil {
		t.Error("a command from the database was run")
	}
}
