package postgres_test

import (
	"fmt"
	"net/url"
	"testing"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// hostile are settings of a role that change what statements mean or how long they may take.
var hostile = map[string]string{
	"client_encoding": "LATIN1", "DateStyle": "SQL, DMY", "standard_conforming_strings": "off",
	"default_transaction_isolation": "repeatable read", "statement_timeout": "1s", "search_path": "nowhere",
	"idle_in_transaction_session_timeout": "1s",
}

func TestPoolOverridesSettingsOfDatabase(t *testing.T) {
	t.Parallel()
	address := pgtest.URL(t)
	owner := pgtest.Connect(t, address)
	for name, value := range hostile {
		exec(t, owner, fmt.Sprintf(`DO $$ BEGIN EXECUTE format('ALTER DATABASE %%I SET %s = %%L', current_database(), '%s'); END $$`, name, value))
	}
	testSettings(t, address)
}

func TestPoolOverridesSettingsOfAddress(t *testing.T) {
	t.Parallel()
	parsed, err := url.Parse(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	query := parsed.Query()
	query.Set("datestyle", "German")
	query.Set("client_encoding", "LATIN1")
	query.Set("statement_timeout", "1s")
	parsed.RawQuery = query.Encode()
	testSettings(t, parsed.String())
}

// testSettings checks the settings of a session of a pool.
func testSettings(t *testing.T, address string) {
	t.Helper()
	pool, err := postgres.NewPool(t.Context(), postgres.PoolOptions{URL: address, Schema: "public"})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for name, want := range map[string]string{
		"client_encoding": "UTF8", "DateStyle": "ISO, MDY", "standard_conforming_strings": "on",
		"default_transaction_isolation": "read committed", "statement_timeout": "0", "search_path": "public",
		"idle_in_transaction_session_timeout": "3s",
	} {
		var got string
		if err := pool.QueryRow(t.Context(), `SELECT current_setting($1)`, name).Scan(&got); err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
	const text = "schön ✓"
	var same bool
	if err := pool.QueryRow(t.Context(), `SELECT $1::text = E'sch\u00f6n \u2713'`, text).Scan(&same); err != nil || !same {
		t.Errorf("%q arrived as another text: %v", text, err)
	}
}
