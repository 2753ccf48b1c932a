package access_test

import (
	"testing"

	"github.com/forge-scheduler/forge/internal/access"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

// The audit log uses these names for callers without a token.
func TestReservedNames(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for _, name := range []string{"anonymous", "Anonymous", "ANONYMOUS", "cli", "forge", "system"} {
		if access.CheckName(name) == nil {
			t.Errorf("%s may be a name", name)
		}
		if _, _, err := access.NewTokens(pool).Create(t.Context(), access.NewToken{Name: name, Scope: access.Viewer, By: "ann"}); err == nil {
			t.Errorf("%s was created", name)
		}
	}
	if err := access.CheckName("anonymous-reader"); err != nil {
		t.Error(err)
	}
}

// A token keeps its ID when its name is reused.
func TestEachTokenHasItsID(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	var ids []int64
	for range 2 {
		secret := create(t, pool, access.NewToken{Name: "ci", Scope: access.Viewer, By: "ann"})
		session, opened, err := access.NewTokens(pool).Login(t.Context(), secret)
		if err != nil {
			t.Fatal(err)
		}
		verified, err := access.NewTokens(pool).Verify(t.Context(), secret)
		if err != nil {
			t.Fatal(err)
		}
		inSession, err := access.NewTokens(pool).Session(t.Context(), session)
		if err != nil || inSession != verified || opened != verified || verified.ID == 0 {
			t.Errorf("log in %+v, verify %+v, session %+v, %v", opened, verified, inSession, err)
		}
		ids = append(ids, verified.ID)
		if _, err := access.NewTokens(pool).Revoke(t.Context(), "ci", "ann"); err != nil {
			t.Fatal(err)
		}
	}
	if ids[0] == ids[1] {
		t.Errorf("both have %d", ids[0])
	}
}
