package e2e

import (
	"context"
	"crypto/rand"
	"net/url"
	"os/exec"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/internal/pgtest"
)

// A login that may not create tables is told by forge migrate up and forge serve which
// statements to run. Its nodes work once the owner has run what forge migrate print prints
// and the statements that forge migrate up prints then.
func TestLoginThatMayNotCreateTables(t *testing.T) {
	t.Parallel()
	owner := pgtest.EmptyURL(t)
	login := "forge_login_" + strings.ToLower(rand.Text()[:12])
	psql := func(script string) {
		t.Helper()
		cmd := exec.CommandContext(context.Background(), pgtest.Program(t, "psql", "apt-get install postgresql-client"), "-X", "-q", "-v", "ON_ERROR_STOP=1", owner) // also after the test
		cmd.Stdin = strings.NewReader(script)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("psql: %v\n%s\n%s", err, out, script)
		}
	}
	psql("REVOKE CREATE ON SCHEMA public FROM PUBLIC; CREATE ROLE " + login + " LOGIN PASSWORD 'x'")
	t.Cleanup(func() { psql("DROP OWNED BY " + login + "; DROP ROLE " + login) })
	address, err := url.Parse(owner)
	if err != nil {
		t.Fatal(err)
	}
	address.User = url.UserPassword(login, "x")
	c := clusterOn(t, address.String(), everySecond)
	refused := func(says, grants string) (statements string) {
		t.Helper()
		for _, command := range []string{"migrate up", "serve --listen 127.0.0.1:0"} {
			_, stderr, code := c.forge(append(strings.Fields(command), "--config", c.config)...)
			_, statements, _ = strings.Cut(stderr, "see forge doctor:\n")
			if code != 1 || !strings.Contains(stderr, says) || !strings.Contains(statements, grants) {
				t.Fatalf("forge %s: exit %d: %s", command, code, stderr)
			}
		}
		return statements
	}

	if statements := refused("permission denied for schema public", "GRANT CREATE ON SCHEMA public TO \""+login+"\";"); !strings.Contains(statements, "forge migrate print") {
		t.Errorf("the other remedy is not named: %s", statements)
	}
	script, stderr, code := forgeWith(t, nil, "migrate", "print")
	if code != 0 {
		t.Fatalf("forge migrate print: exit %d: %s", code, stderr)
	}
	psql(script)
	psql(refused("permission denied for table", "GRANT SELECT, INSERT, UPDATE, DELETE ON TABLE "))
	if out := c.must("migrate", "up", "--config", c.config); out != "the schema is up to date\n" {
		t.Errorf("forge migrate up: %s", out)
	}
	c.start("a")
	_, term := c.leader(0)
	c.awaitTicks(term)
	c.stopAll()
}
