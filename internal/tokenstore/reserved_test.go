package tokenstore_test

import (
	"testing"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/internal/tokenstore"
)

// The audit log calls those who have no token by these names.
func TestReservedNames(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for _, name := range []string{"anonymous", "Anonymous", "ANONYMOUS", "cli", "forge", "system"} {
		if tokenstore.CheckName(name) == nil {
			t.Errorf("%s may be a name", name)
		}
		if _, _, err := tokenstore.Create(t.Context(), pool, tokenstore.New{Name: name, Scope: tokenstore.Viewer, By: "ann"}); err == nil {
			t.Errorf("%s was created", name)
		}
	}
	if err := tokenstore.CheckName("anonymous-reader"); err != nil {
		t.Error(err)
	}
}

// A token's ID stays its own when its name is given again.
func TestEachTokenHasItsID(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	var ids []int64
	for range 2 {
		secret := create(t, pool, tokenstore.New{Name: "ci", Scope: tokenstore.Viewer, By: "ann"})
		session, opened, err := tokenstore.Login(t.Context(), pool, secret)
		if err != nil {
			t.Fatal(err)
		}
		verified, err := tokenstore.Verify(t.Context(), pool, secret)
		if err != nil {
			t.Fatal(err)
		}
		inSession, err := tokenstore.Session(t.Context(), pool, session)
		if err != nil || inSession != verified || opened != verified || verified.ID == 0 {
			t.Errorf("log in %+v, verify %+v, session %+v, %v", opened, verified, inSession, err)
		}
		ids = append(ids, verified.ID)
		if _, err := tokenstore.Revoke(t.Context(), pool, "ci", "ann"); err != nil {
			t.Fatal(err)
		}
	}
	if ids[0] == ids[1] {
		t.Errorf("both have %d", ids[0])
	}
}
