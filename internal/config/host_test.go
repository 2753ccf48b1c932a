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
