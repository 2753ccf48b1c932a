package main

import (
	"bytes"
	"crypto/rand"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/internal/pgtest"
)

// TestMissingRightsAreExplained checks that the error for missing privileges has the GRANT statements
// that fix it.
func TestMissingRightsAreExplained(t *testing.T) {
	t.Parallel()
	address, err := url.Parse(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	owner := pgtest.Connect(t, address.String())
	role := "forge_test_" + strings.ToLower(rand.Text()[:12])
	if _, err := owner.Exec(t.Context(), "CREATE ROLE "+role+" LOGIN PASSWORD 'x'"); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = owner.Exec(t.Context(), "DROP ROLE "+role) }()
	address.User = url.UserPassword(role, "x")
	path := filepath.Join(t.TempDir(), "forge.toml")
	if err := os.WriteFile(path, []byte("[database]\nurl = \""+address.String()+"\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	var granted string
	for _, command := range [][]string{{"job", "list"}, {"serve", "--listen", "127.0.0.1:0"}, {"migrate", "up"}} {
		out.Reset()
		errs.Reset()
		code := run(t.Context(), append(command, "--config", path), &out, &errs)
		_, statements, found := strings.Cut(errs.String(), "see forge doctor:\n")
		if code != exitFailed || !found || !strings.Contains(errs.String(), "permission denied for table") {
			t.Errorf("forge %s: exit %d: %s", command, code, errs.String())
		}
		if !strings.HasPrefix(strings.TrimSpace(statements), "GRANT ") || !strings.Contains(statements, `TO "`+role+`";`) {
			t.Errorf("forge %s: %q", command, statements)
		}
		granted = statements
	}
	if _, err := owner.Exec(t.Context(), granted); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = owner.Exec(t.Context(), "DROP OWNED BY "+role) }()
	errs.Reset()
	if code := run(t.Context(), []string{"job", "list", "--config", path}, &out, &errs); code != exitOK {
		t.Errorf("with the statements run: exit %d: %s", code, errs.String())
	}
}

func TestMissingTableIsExplained(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		pgtest.EmptyURL(t): "has no forge tables yet",
		pgtest.URL(t):      "a table is missing although its migration is recorded as applied",
	} {
		if _, err := pgtest.Connect(t, address).Exec(t.Context(), "ALTER TABLE IF EXISTS river_job RENAME TO gone"); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "forge.toml")
		if err := os.WriteFile(path, []byte("[database]\nurl = \""+address+"\"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		var out, errs bytes.Buffer
		if code := run(t.Context(), []string{"job", "list", "--config", path}, &out, &errs); code == exitOK || !strings.Contains(errs.String(), want) {
			t.Errorf("exit %d: %s, want %q", code, errs.String(), want)
		}
	}
}
