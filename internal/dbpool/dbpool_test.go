package dbpool_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/internal/dbpool"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

// A standby answers every connection as a server does that is read-only.
func TestPingSaysThatAServerIsReadOnly(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	address, err := url.Parse(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimPrefix(address.Path, "/")
	if _, err := pool.Exec(t.Context(), "ALTER DATABASE "+name+" SET default_transaction_read_only = on"); err != nil {
		t.Fatal(err)
	}
	reader, err := dbpool.New(t.Context(), dbpool.Options{URL: address.String(), Schema: "public"})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	err = dbpool.Ping(t.Context(), reader)
	if !errors.Is(err, dbpool.ErrUnreachable) || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("Ping = %v", err)
	}
}
