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

// A role without rights on the tables is told where it finds the statements that
// give them.
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
	code := run(t.Context(), []string{"job", "list", "--config", path}, &out, &errs)
	const want = "permission denied for table river_job; forge doctor says what else is missing, with the GRANT statements that give it\n"
	if code != exitFailed || !strings.HasSuffix(errs.String(), want) {
		t.Errorf("exit %d: %s", code, errs.String())
	}
}
