package leaderstore_test

import (
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/leaderstore"
)

// Two databases of one server have two ids, as have two schemas; a user without rights gets the id,
// and one whom the server tells nothing gets none.
func TestDatabaseID(t *testing.T) {
	t.Parallel()
	address := pgtest.URL(t)
	id := func(address string) string {
		id, err := leaderstore.New(pgtest.Connect(t, address)).DatabaseID(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	own := id(address)
	if !strings.HasSuffix(own, "/public") || own != id(address) {
		t.Errorf("the id is %q, then %q", own, id(address))
	}
	if other := id(pgtest.URL(t)); other == own {
		t.Errorf("another database has the id %q, too", other)
	}
	pool := pgtest.Connect(t, address)
	for _, sql := range []string{
		`CREATE FUNCTION pg_control_system() RETURNS TABLE (system_identifier bigint) LANGUAGE plpgsql AS $$
			BEGIN RAISE insufficient_privilege; END $$`,
		`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = public, pg_catalog', current_database()); END $$`,
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	if hidden := id(address + "&search_path=public,pg_catalog"); hidden != "" {
		t.Errorf("a server that refuses says %q", hidden)
	}
}
