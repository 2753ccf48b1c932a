package config

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// 75, 77, 78: a node's own file is held against its host, with warnings: another
// node may have what is missing here.
func TestHostsOwn(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "forge.toml")
	text := `[database]
url = "${env:DB}"
[jobs.xy]
kind = "shell"
command = ["/none/such"]
cwd = "/none"
user = "nobody-of-that-name"
[jobs.elsewhere]
kind = "shell"
command = ["/none/such"]
capability = "gpu"
[jobs.tagged]
kind = "shell"
command = ["/none/such"]
tags = { zone = "b" }
[jobs.fine]
kind = "shell"
command = ["true"]
cwd = "/"
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, report, err := Load(path, LoadOptions{Environ: func() []string { return []string{"DB=postgres://localhost/x"} }})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		path + `:5:12: warning: jobs.xy.command[0]: on this host: no such program (got "/none/such"); want a program of this host`,
		path + `:6:7: warning: jobs.xy.cwd: on this host: no such file or directory (got "/none"); want a directory of this host`,
		path + `:7:8: warning: jobs.xy.user: on this host: no such user (got "nobody-of-that-name"); want a user of this host`,
	}
	if diff := cmp.Diff(want, messages(report)); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}

// 75: what a node allows is the program as it is found, by its own name, whatever
// links lead to its directory.
func TestAllowedCommands(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, sub := range []string{"bin", "jobs/deep"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, program := range []string{"bin/many", "jobs/report", "jobs/deep/report"} {
		if err := os.WriteFile(filepath.Join(dir, program), []byte("#!/bin/sh\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{"links": "bin", "bin/list": "many", "bin/shell": "many", "jobs/shell": "../bin/many"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	allowed := AllowedCommands{dir + "/links/list", dir + "/jobs/*"}
	for program, fine := range map[string]bool{
		dir + "/bin/list": true, dir + "/links/list": true, "list": true, dir + "/bin/../links/list": true,
		dir + "/jobs/report": true, dir + "/jobs/shell": true, // whoever may put it there decides
		dir + "/bin/many": false, dir + "/bin/shell": false, dir + "/links/shell": false, dir + "/jobs/deep/report": false,
		dir + "/jobs/../bin/shell": false, "shell": false,
	} {
		job := Job{Kind: KindShell, Command: []string{program}, Env: map[string]string{"PATH": dir + "/bin"}}
		wrong := job.CheckHost(allowed)
		if fine != (len(wrong) == 0) {
			t.Errorf("%s: %v", program, wrong)
		}
		if unbounded := job.CheckHost(nil); len(unbounded) != 0 {
			t.Errorf("%s without a list: %v", program, unbounded)
		}
	}
	job := Job{Kind: KindShell, Command: []string{"list"}, Env: map[string]string{"PATH": dir + "/bin:/${run:job}"}}
	want := `env.PATH: it depends on the run, and node.allowed_commands bounds what it leads to (got "` + dir + `/bin:/${run:job}"); want an absolute path in command[0]`
	if wrong := job.CheckHost(allowed); len(wrong) != 1 || wrong[0].Error() != want {
		t.Errorf("got %v, want %s", wrong, want)
	}
}

func TestAllowedCommandsAreShown(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "forge.toml")
	text := "[node]\nallowed_commands = [\"/opt/jobs/*\"]\n" + shellWith("")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, report, err := Load(path, LoadOptions{Environ: func() []string { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	found, _ := findProgram("true", Job{}.CommandPath())
	want := path + `:5:12: warning: jobs.xy.command[0]: on this host: a program that this node does not allow (got "` + found + `"); want one of node.allowed_commands: /opt/jobs/*`
	if report.String() != want {
		t.Errorf("report %s, want %s", report, want)
	}
	shown := showText(t, cfg)
	if again := mustParse(t, shown); !cmp.Equal(again.Node.AllowedCommands, cfg.Node.AllowedCommands) {
		t.Errorf("shown as\n%s", shown)
	}
}

func TestSecretsInArgs(t *testing.T) {
	t.Parallel()
	_, report, _ := parseWith(inCron(daily+"command = [\"true\"]\nargs = { a = \"${env:CANARY}\", api_token = \"x\" }"), "CANARY=c")
	want := []string{
		"forge.toml:5:14: warning: crons[0].args.a: references are not resolved in args, which are stored and shown; want env or headers of the job",
		"forge.toml:5:43: warning: crons[0].args.api_token: a secret in the args, which are stored and shown; want env or headers of the job, with \"${env:NAME}\"",
	}
	if diff := cmp.Diff(want, messages(report)); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}
