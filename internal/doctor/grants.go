package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// missingSQL lists the privileges that a node needs and the user lacks. A node reads and
// writes every table, and creates tables only when it migrates. Partitions are used
// through their tables, whose privileges count, and triggers fire without any. CASE keeps
// the planner from checking sequence privileges on a table.
const missingSQL = `
WITH objects AS (
    SELECT c.oid, c.relkind, quote_ident($1) || '.' || c.relname AS name
    FROM pg_class c
    WHERE c.relnamespace = to_regnamespace($1)
      AND (c.relname LIKE 'forge\_%' OR c.relname LIKE 'river\_%') AND c.relkind IN ('r', 'p', 'S') AND NOT c.relispartition
)
SELECT privilege, kind, name FROM (
    SELECT 1 AS place, 'CREATE' AS privilege, 'DATABASE' AS kind, quote_ident(current_database()) AS name
    WHERE to_regnamespace($1) IS NULL AND NOT has_database_privilege(current_database(), 'CREATE')
    UNION ALL
    SELECT 2, privilege, 'SCHEMA', quote_ident($1)
    FROM unnest(CASE WHEN EXISTS (SELECT FROM objects) THEN ARRAY ['USAGE'] ELSE ARRAY ['USAGE', 'CREATE'] END) privilege
    WHERE to_regnamespace($1) IS NOT NULL AND NOT has_schema_privilege($1, privilege)
    UNION ALL
    SELECT 3, privilege, 'TABLE', name
    FROM objects, unnest(ARRAY ['SELECT', 'INSERT', 'UPDATE', 'DELETE']) privilege
    WHERE CASE WHEN relkind = 'S' THEN false ELSE NOT has_table_privilege(oid, privilege) END
    UNION ALL
    SELECT 4, 'USAGE', 'SEQUENCE', name
    FROM objects WHERE CASE WHEN relkind = 'S' THEN NOT has_sequence_privilege(oid, 'USAGE') ELSE false END
    UNION ALL
    SELECT 5, 'EXECUTE', 'FUNCTION', pronamespace::regnamespace || '.' || quote_ident(proname) || '(' || oidvectortypes(proargtypes) || ')'
    FROM pg_proc
    WHERE (pronamespace = to_regnamespace($1) AND proname LIKE 'forge\_%'
           OR oid IN ('pg_catalog.pg_walfile_name(pg_lsn)'::regprocedure, 'pg_catalog.pg_current_wal_lsn()'::regprocedure))
      AND prorettype <> 'trigger'::regtype AND NOT has_function_privilege(oid, 'EXECUTE')
) missing
ORDER BY place, name, array_position(ARRAY ['SELECT', 'INSERT', 'UPDATE', 'DELETE'], privilege)`

const ownerSQL = `
SELECT current_user::text, quote_ident($1), coalesce((SELECT pg_get_userbyid(relowner)::text FROM pg_class
    WHERE relnamespace = to_regnamespace($1) AND relname = 'forge_leaders' AND NOT pg_has_role(relowner, 'USAGE')), '')`

// codeInsufficientPrivilege is PostgreSQL's error code insufficient_privilege.
const codeInsufficientPrivilege = "42501"

// withoutCreate is printed as an SQL comment, so that it can be copied together with the
// statements above it.
const withoutCreate = "or, to keep the login from creating tables, run the output of forge migrate print as the owner; forge doctor then prints the rights on the tables"

// Grant is a privilege on an object, with the names that GRANT uses.
type Grant struct {
	Privilege string
	// Kind is DATABASE, SCHEMA, TABLE, SEQUENCE or FUNCTION.
	Kind   string
	Object string
}

// MissingGrants returns the privileges that the current user lacks to run nodes on the schema.
func MissingGrants(ctx context.Context, db postgres.DB, schema string) ([]Grant, error) {
	return postgres.Select(ctx, db, "look at the privileges", pgx.RowToStructByPos[Grant], missingSQL, schema)
}

// GrantLine is one GRANT statement and its reason.
type GrantLine struct {
	// Lacks describes what is missing.
	Lacks string
	// Statement is the GRANT statement.
	Statement string
}

// shownObjects is the number of objects that Lacks names.
const shownObjects = 3

// GrantLines returns the smallest number of statements that grant the missing privileges:
// objects that lack the same privileges share a statement.
func GrantLines(missing []Grant, user string) []GrantLine {
	type object struct{ kind, name string }
	lacks := map[object][]string{}
	var order []object
	for _, grant := range missing {
		key := object{grant.Kind, grant.Object}
		if lacks[key] == nil {
			order = append(order, key)
		}
		lacks[key] = append(lacks[key], grant.Privilege)
	}
	type set struct{ kind, privileges string }
	grouped := map[set][]string{}
	var sets []set
	for _, o := range order {
		key := set{o.kind, strings.Join(lacks[o], ", ")}
		if grouped[key] == nil {
			sets = append(sets, key)
		}
		grouped[key] = append(grouped[key], o.name)
	}
	lines := make([]GrantLine, len(sets))
	for i, s := range sets {
		lines[i] = GrantLine{
			Lacks: fmt.Sprintf("%s lacks %s on %s", user, s.privileges, some(grouped[s])),
			Statement: fmt.Sprintf("GRANT %s ON %s %s TO %s;",
				s.privileges, s.kind, strings.Join(grouped[s], ", "), pgx.Identifier{user}.Sanitize()),
		}
	}
	return lines
}

func some(objects []string) string {
	if len(objects) > shownObjects {
		return fmt.Sprintf("%s and %d more", strings.Join(objects[:shownObjects], ", "), len(objects)-shownObjects)
	}
	return strings.Join(objects, ", ")
}

// ExplainGrants adds to a missing-privilege error the GRANT statements for it and for
// every other privilege that the login lacks on the schema. It returns other errors
// unchanged.
func ExplainGrants(ctx context.Context, db postgres.DB, schema string, err error) error {
	refused, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || refused.Code != codeInsufficientPrivilege {
		return err
	}
	var user, quoted, owner string
	if failed := db.QueryRow(ctx, ownerSQL, schema).Scan(&user, &quoted, &owner); failed != nil {
		return fmt.Errorf("%w; forge doctor says what is missing", err)
	}
	missing, failed := MissingGrants(ctx, db, schema)
	if len(missing) == 0 && owner == "" && strings.HasPrefix(refused.Message, "permission denied for schema") {
		missing = []Grant{{Privilege: "CREATE", Kind: "SCHEMA", Object: quoted}} // only migrations need it
	}
	switch {
	case failed != nil || len(missing) == 0 && owner == "":
		return fmt.Errorf("%w; forge doctor says what is missing", err)
	case len(missing) == 0:
		return fmt.Errorf("%w; only %s may change the tables in schema %s: run forge migrate up as %s; see forge doctor", err, owner, schema, owner)
	}
	var statements strings.Builder
	for _, line := range GrantLines(missing, user) {
		statements.WriteString("\n    " + line.Statement)
	}
	if slices.ContainsFunc(missing, func(g Grant) bool { return g.Privilege == "CREATE" && g.Kind == "SCHEMA" }) {
		statements.WriteString("\n    -- " + withoutCreate)
	}
	return fmt.Errorf("%w; let the owner of the database run this, and see forge doctor:%s", err, statements.String())
}
