package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

func TestAlertsSilence(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	path := filepath.Join(t.TempDir(), "forge.toml")
	if err := os.WriteFile(path, []byte("[database]\nurl = \""+url+"\"\n"+someAlerts), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := forge.LoadConfig(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := forge.Apply(t.Context(), pgtest.Connect(t, url), cfg, true); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		line string
		code int
		want string
	}{
		{"silence frequent_failovers --for 3d --reason noon", exitOK, "frequent_failovers is silenced until "},
		{"list -o wide", exitOK, ": noon"},
		{"list -o json", exitOK, `"reason": "noon"`},
		{"silence frequent_failovers --until 2020-01-01T00:00:00Z", exitUsage, "a silence has to end in the future"},
		{"silence frequent_failovers --until tomorrow", exitUsage, "want RFC 3339"},
		{"silence frequent_failovers --for 2y", exitUsage, "want a time such as 90m, 2h or 3d"},
		{"silence frequent_failovers --for 2h --until 2099-01-01T00:00:00Z", exitUsage, "--for and --until: want one of them"},
		{"silence nobody", exitNotFound, `no alert "nobody"; see forge alerts list`},
		{"unsilence frequent_failovers", exitOK, "frequent_failovers is no longer silenced"},
		{"unsilence frequent_failovers", exitOK, "frequent_failovers is not silenced"},
		{"unsilence frequent_failovers -o json", exitOK, `"changed": false`},
		{"unsilence nobody", exitNotFound, `no alert "nobody"`},
		{"unsilence frequent_failover", exitNotFound, `no alert "frequent_failover" (did you mean frequent_failovers?)`},
	} {
		var out, said bytes.Buffer
		code := run(t.Context(), append([]string{"--config", path, "alerts"}, strings.Fields(step.line)...), &out, &said)
		if code != step.code || !strings.Contains(out.String()+said.String(), step.want) {
			t.Errorf("%s: exit %d, %s%s", step.line, code, &out, &said)
		}
	}
}
