package migrations_test

import (
	"context"
	"crypto/rand"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/pgtest"
)

// A function with its owner's rights searches pg_temp last: PostgreSQL searches it first unless the
// path names it, and every login may create tables there. The owner alone may use the function in a
// trigger or call it, except where a GRANT says otherwise. This holds in a schema whose name is quoted, too.
func TestFunctionsWithOwnersRightsAreClosed(t *testing.T) {
	t.Parallel()
	for _, schema := range []string{"public", "order"} {
		t.Run(schema, func(t *testing.T) {
			t.Parallel()
			address := pgtest.EmptyURL(t)
			path := pgx.Identifier{schema}.Sanitize()
			mustExec(t, pgtest.Connect(t, address), `CREATE SCHEMA IF NOT EXISTS `+path)
			pool := connect(t, address, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["search_path"] = path })
			mustUp(t, newMigrator(pool))
			const definers = ` FROM pg_proc p WHERE p.prosecdef AND p.pronamespace = current_schema()::regnamespace`
			if len(column(t, pool, `SELECT p.proname::text`+definers)) == 0 {
				t.Fatal("no function has its owner's rights")
			}
			if open := column(t, pool, `SELECT p.proname::text`+definers+`
				AND NOT coalesce('search_path=' || quote_ident(current_schema()) || ', pg_temp' = ANY (p.proconfig), false)`); len(open) > 0 {
				t.Errorf("the search_path does not end in pg_temp: %v", open)
			}
			if open := column(t, pool, `SELECT p.proname::text`+definers+`
				AND EXISTS (SELECT FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a WHERE a.grantee = 0)`); len(open) > 0 {
				t.Errorf("everybody may use %v", open)
			}
		})
	}
}

// A login whose rights are those of docs/sql.md cannot run SQL with the rights of the tables' owner.
func TestClaimsDoNotUseTemporaryTables(t *testing.T) {
	t.Parallel()
	owner := pgtest.Pool(t)
	app := login(t, owner)
	mustExec(t, owner, `GRANT SELECT, INSERT, UPDATE ON river_job TO `+app.Config().ConnConfig.User)
	mustExec(t, owner, `INSERT INTO river_job (kind, args, max_attempts) VALUES ('report', '{}', 1)`)
	for _, sql := range []string{
		`CREATE TEMPORARY TABLE forge_claims (client_id text, ids bigint[])`,
		`CREATE TEMPORARY TABLE seen (name text)`,
		`GRANT ALL ON forge_claims, seen TO PUBLIC`,
		`CREATE FUNCTION pg_temp.see() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO pg_temp.seen VALUES (current_user); RETURN NEW; END'`,
		`CREATE TRIGGER see BEFORE INSERT ON forge_claims FOR EACH ROW EXECUTE FUNCTION pg_temp.see()`,
		`UPDATE public.river_job SET state = 'running', attempted_by = '{n-1}'`,
	} {
		mustExec(t, app, sql)
	}
	if seen := column(t, app, `SELECT name FROM seen`); len(seen) > 0 {
		t.Errorf("a trigger of the login ran as %v", seen)
	}
	if claims := column(t, owner, `SELECT client_id FROM forge_claims`); !slices.Equal(claims, []string{"n-1"}) {
		t.Errorf("claims of %v, want one of n-1", claims)
	}
}

// A login without any right on forge's tables cannot write them through a trigger of its own.
func TestOthersCannotUseTriggerFunctions(t *testing.T) {
	t.Parallel()
	owner := pgtest.Pool(t)
	app := login(t, owner)
	mustExec(t, app, `CREATE TEMPORARY TABLE mine (id bigint, attempted_by text[])`)
	for _, function := range []string{"forge_note_claim", "forge_forget_limit_locks", "forge_refresh_kinds"} {
		_, err := app.Exec(t.Context(), `CREATE TRIGGER `+function+` AFTER INSERT ON mine FOR EACH ROW EXECUTE FUNCTION public.`+function+`()`)
		if err == nil || !strings.Contains(err.Error(), "SQLSTATE 42501") {
			t.Errorf("CREATE TRIGGER with %s = %v, want that permission is denied", function, err)
		}
	}
	mustExec(t, app, `INSERT INTO mine VALUES (1, '{intruder}')`)
	if claims := column(t, owner, `SELECT client_id FROM forge_claims`); len(claims) > 0 {
		t.Errorf("wrote claims of %v", claims)
	}
}

// login connects as a new role, in one session.
func login(t *testing.T, owner *pgxpool.Pool) *pgxpool.Pool {
	t.Helper()
	role := "forge_test_" + strings.ToLower(rand.Text()[:12])
	mustExec(t, owner, `CREATE ROLE `+role+` LOGIN PASSWORD 'x'`)
	t.Cleanup(func() {
		_, _ = owner.Exec(context.Background(), `DROP OWNED BY `+role)
		_, _ = owner.Exec(context.Background(), `DROP ROLE `+role)
	})
	return connect(t, owner.Config().ConnString(), func(c *pgxpool.Config) {
		c.ConnConfig.User, c.ConnConfig.Password, c.MaxConns = role, "x", 1
	})
}
