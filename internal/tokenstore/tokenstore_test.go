package tokenstore_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/internal/tokenstore"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func create(t *testing.T, pool *pgxpool.Pool, wanted tokenstore.New) string {
	t.Helper()
	secret, token, err := tokenstore.Create(t.Context(), pool, wanted)
	if err != nil {
		t.Fatal(err)
	}
	if token.Name != wanted.Name || token.Scope != wanted.Scope || token.CreatedBy != wanted.By || token.State != "active" {
		t.Errorf("created %+v", token)
	}
	return secret
}

func execute(t *testing.T, pool *pgxpool.Pool, sql string) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

func TestTokenLives(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	secret := create(t, pool, tokenstore.New{Name: "ci", Scope: tokenstore.Operator, Life: time.Hour, By: "ann"})
	got, err := tokenstore.Verify(t.Context(), pool, secret)
	if diff := cmp.Diff(tokenstore.Holder{ID: 1, Name: "ci", Scope: tokenstore.Operator}, got); err != nil || diff != "" {
		t.Fatalf("%v (-want +got):\n%s", err, diff)
	}
	session, _, err := tokenstore.Login(t.Context(), pool, secret)
	if err != nil {
		t.Fatal(err)
	}
	if of, err := tokenstore.Session(t.Context(), pool, session); err != nil || of.Name != "ci" {
		t.Errorf("session of %+v, %v", of, err)
	}
	all, err := tokenstore.List(t.Context(), pool)
	if err != nil || len(all) != 1 || all[0].LastUsedAt.IsZero() || all[0].ExpiresAt.Sub(all[0].CreatedAt).Round(time.Second) != time.Hour {
		t.Errorf("list: %+v, %v", all, err)
	}
	for _, wrong := range []string{"", "forge_", secret + "x", secret[1:], strings.ToUpper(secret), session, "forge_" + strings.Repeat("A", 43)} {
		if _, err := tokenstore.Verify(t.Context(), pool, wrong); !errors.Is(err, tokenstore.ErrInvalid) {
			t.Errorf("%q: %v", wrong, err)
		}
	}
	if _, err := tokenstore.Session(t.Context(), pool, secret); !errors.Is(err, tokenstore.ErrInvalid) {
		t.Errorf("a token as a session: %v", err)
	}
}

// A session is worth what its token is worth, until either ends.
func TestWhatEndsThem(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for name, end := range map[string]struct {
		how   string
		token bool // whether the token ends, too
	}{
		"expired":  {"UPDATE forge_tokens SET expires_at = now() WHERE name = 'expired'", true},
		"revoked":  {"UPDATE forge_tokens SET revoked_at = now() WHERE name = 'revoked'", true},
		"deleted":  {"DELETE FROM forge_tokens WHERE name = 'deleted'", true},
		"slept":    {"UPDATE forge_sessions SET expires_at = now() WHERE token_id = (SELECT id FROM forge_tokens WHERE name = 'slept')", false},
		"narrowed": {"UPDATE forge_tokens SET scope = 'viewer' WHERE name = 'narrowed'", false},
	} {
		secret := create(t, pool, tokenstore.New{Name: name, Scope: tokenstore.Admin, By: "ann"})
		session, _, err := tokenstore.Login(t.Context(), pool, secret)
		if err != nil {
			t.Fatal(err)
		}
		execute(t, pool, end.how)
		_, err = tokenstore.Verify(t.Context(), pool, secret)
		if errors.Is(err, tokenstore.ErrInvalid) != end.token {
			t.Errorf("%s token: %v", name, err)
		}
		if _, _, err := tokenstore.Login(t.Context(), pool, secret); errors.Is(err, tokenstore.ErrInvalid) != end.token {
			t.Errorf("log in with the %s token: %v", name, err)
		}
		of, err := tokenstore.Session(t.Context(), pool, session)
		if name == "narrowed" {
			if err != nil || of.Scope != tokenstore.Viewer {
				t.Errorf("the session of a narrowed token may %s, %v", of.Scope, err)
			}
			continue
		}
		if !errors.Is(err, tokenstore.ErrInvalid) {
			t.Errorf("%s session: %+v, %v", name, of, err)
		}
	}
}

func TestLogout(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	secret := create(t, pool, tokenstore.New{Name: "me", Scope: tokenstore.Viewer, By: "ann"})
	session, _, err := tokenstore.Login(t.Context(), pool, secret)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // twice is no error
		if err := tokenstore.Logout(t.Context(), pool, session); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := tokenstore.Session(t.Context(), pool, session); !errors.Is(err, tokenstore.ErrInvalid) {
		t.Errorf("after the logout: %v", err)
	}
	if _, err := tokenstore.Verify(t.Context(), pool, secret); err != nil {
		t.Errorf("the token went with the session: %v", err)
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	wanted := tokenstore.New{Name: "ci", Scope: tokenstore.Viewer, By: "ann"}
	old := create(t, pool, wanted)
	if _, _, err := tokenstore.Create(t.Context(), pool, wanted); !errors.Is(err, tokenstore.ErrTaken) {
		t.Errorf("a second one: %v", err)
	}
	if token, err := tokenstore.Revoke(t.Context(), pool, "ci", "bob"); err != nil || token.State != "revoked" || token.RevokedBy != "bob" {
		t.Errorf("revoked %+v, %v", token, err)
	}
	if _, err := tokenstore.Revoke(t.Context(), pool, "ci", "bob"); !errors.Is(err, tokenstore.ErrNotFound) {
		t.Errorf("revoked twice: %v", err)
	}
	create(t, pool, wanted) // the name is free
	if _, err := tokenstore.Verify(t.Context(), pool, old); !errors.Is(err, tokenstore.ErrInvalid) {
		t.Errorf("the old one came back: %v", err)
	}
}

// Nothing that is stored is enough to get in.
func TestOnlyHashesAreStored(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	secret := create(t, pool, tokenstore.New{Name: "ci", Scope: tokenstore.Viewer, By: "ann"})
	session, _, err := tokenstore.Login(t.Context(), pool, secret)
	if err != nil {
		t.Fatal(err)
	}
	var stored string
	const all = `SELECT (SELECT string_agg(t::text, ' ') FROM forge_tokens t) || (SELECT string_agg(s::text, ' ') FROM forge_sessions s)`
	if err := pool.QueryRow(t.Context(), all).Scan(&stored); err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{secret, session} {
		_, text, _ := strings.Cut(s, "_")
		random, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil || len(random) != 32 {
			t.Errorf("%s has %d bytes, %v", s, len(random), err)
		}
		hash := sha256.Sum256([]byte(s))
		if strings.Contains(stored, text) || strings.Contains(stored, hex.EncodeToString(random)) || !strings.Contains(stored, hex.EncodeToString(hash[:])) {
			t.Errorf("%s, or no hash of it, stands in %s", s, stored)
		}
	}
}

func TestPrune(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for _, name := range []string{"old", "new"} {
		if _, _, err := tokenstore.Login(t.Context(), pool, create(t, pool, tokenstore.New{Name: name, Scope: tokenstore.Viewer, By: "ann"})); err != nil {
			t.Fatal(err)
		}
	}
	execute(t, pool, `UPDATE forge_tokens SET revoked_at = now() - interval '2 days' WHERE name = 'old'`)
	execute(t, pool, `UPDATE forge_sessions SET expires_at = now() - interval '2 days' WHERE token_id = (SELECT id FROM forge_tokens WHERE name = 'old')`)
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		for _, prune := range []func() (int64, error){
			func() (int64, error) {
				return tokenstore.PruneSessions(t.Context(), tx, time.Now().Add(-24*time.Hour), 10)
			},
			func() (int64, error) {
				return tokenstore.PruneTokens(t.Context(), tx, time.Now().Add(-24*time.Hour), 10)
			},
		} {
			if n, err := prune(); err != nil || n != 1 {
				t.Errorf("pruned %d, %v", n, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if all, err := tokenstore.List(t.Context(), pool); err != nil || len(all) != 1 || all[0].Name != "new" {
		t.Errorf("left: %+v, %v", all, err)
	}
}

func TestScopes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		has, needs tokenstore.Scope
		want       bool
	}{
		{tokenstore.Viewer, tokenstore.Viewer, true},
		{tokenstore.Viewer, tokenstore.Operator, false},
		{tokenstore.Operator, tokenstore.Viewer, true},
		{tokenstore.Operator, tokenstore.Admin, false},
		{tokenstore.Admin, tokenstore.Admin, true},
		{"", tokenstore.Viewer, false},
		{"root", tokenstore.Viewer, false},
		{tokenstore.Admin, "", false},
		{"", "", false},
	} {
		if got := c.has.Covers(c.needs); got != c.want {
			t.Errorf("%q covers %q: %v", c.has, c.needs, got)
		}
	}
	if _, err := tokenstore.ParseScope("root"); err == nil || err.Error() != `unknown scope "root"; want viewer, operator or admin` {
		t.Error(err)
	}
}
