package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/internal/tokenstore"
)

func TestTokens(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	file := fileWith(t, "[database]\nurl = \""+url+"\"\n")
	forge := func(args ...string) (code int, out, errOut string) {
		var stdout, stderr bytes.Buffer
		code = run(t.Context(), append([]string{"token", "--config", file}, args...), &stdout, &stderr)
		return code, stdout.String(), stderr.String()
	}
	code, out, errOut := forge("create", "ci", "--scope", "operator")
	if code != exitOK || !strings.Contains(errOut, "The token ci (operator, expires ") {
		t.Fatalf("exit %d: %s", code, errOut)
	}
	of, err := tokenstore.Verify(t.Context(), pool, strings.TrimSpace(out))
	if err != nil || of.Name != "ci" || of.Scope != tokenstore.Operator {
		t.Errorf("what was printed is the token of %+v, %v", of, err)
	}
	if code, out, _ = forge("create", "prometheus", "--expires", "never", "-o", "json"); code != exitOK {
		t.Fatalf("exit %d", code)
	}
	var made madeToken
	if err := json.Unmarshal([]byte(out), &made); err != nil || made.Scope != tokenstore.Viewer || !made.ExpiresAt.IsZero() {
		t.Errorf("made %+v, %v", made, err)
	}
	if _, err := tokenstore.Verify(t.Context(), pool, made.Secret); err != nil {
		t.Error(err)
	}
	if code, out, _ = forge("list"); code != exitOK || strings.Contains(out, "forge_") || !strings.Contains(out, "prometheus   viewer     active   never") {
		t.Errorf("exit %d:\n%s", code, out)
	}
	if code, out, _ = forge("revoke", "ci"); code != exitOK || out != "ci is revoked\n" {
		t.Errorf("exit %d: %s", code, out)
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"create", "prometheus"}, exitConflict, `a token "prometheus" exists`},
		{[]string{"revoke", "ci"}, exitNotFound, `no token "ci" that is not revoked`},
		{[]string{"create", "../x"}, exitUsage, `the name "../x": want 1 to 63`},
		{[]string{"create", "x", "--scope", "root"}, exitUsage, `--scope: unknown scope "root"; want viewer, operator or admin`},
		{[]string{"create", "x", "--expires", "5"}, exitUsage, `--expires "5": want a duration`},
		{[]string{"create", "x", "--expires", "-5h"}, exitUsage, `--expires "-5h": want a duration`},
	} {
		if code, _, errOut := forge(c.args...); code != c.code || !strings.Contains(errOut, c.want) {
			t.Errorf("%v: exit %d: %s", c.args, code, errOut)
		}
	}
}

// fileWith is the path of a configuration.
func fileWith(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "forge.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
