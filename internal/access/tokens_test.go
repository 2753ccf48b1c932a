package access_test

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

	"github.com/forge-scheduler/forge/internal/access"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func create(t *testing.T, pool *pgxpool.Pool, wanted access.NewToken) string {
	t.Helper()
	secret, token, err := access.NewTokens(pool).Create(t.Context(), wanted)
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
	secret := create(t, pool, access.NewToken{Name: "ci", Scope: access.Operator, Life: time.Hour, By: "ann"})
	got, err := access.NewTokens(pool).Verify(t.Context(), secret)
	if diff := cmp.Diff(access.Holder{ID: 1, Name: "ci", Scope: access.Operator}, got); err != nil || diff != "" {
		t.Fatalf("%v (-want +got):\n%s", err, diff)
	}
	session, _, err := access.NewTokens(pool).Login(t.Context(), secret)
	if err != nil {
		t.Fatal(err)
	}
	if of, err := access.NewTokens(pool).Session(t.Context(), session); err != nil || of.Name != "ci" {
		t.Errorf("session of %+v, %v", of, err)
	}
	all, err := access.NewTokens(pool).List(t.Context())
	if err != nil || len(all) != 1 || all[0].LastUsedAt.IsZero() || all[0].ExpiresAt.Sub(all[0].CreatedAt).Round(time.Second) != time.Hour {
		t.Errorf("list: %+v, %v", all, err)
	}
	for _, wrong := range []string{"", "forge_", secret + "x", secret[1:], strings.ToUpper(secret), session, "forge_" + strings.Repeat("A", 43)} {
		if _, err := access.NewTokens(pool).Verify(t.Context(), wrong); !errors.Is(err, access.ErrInvalid) {
			t.Errorf("%q: %v", wrong, err)
		}
	}
	if _, err := access.NewTokens(pool).Session(t.Context(), secret); !errors.Is(err, access.ErrInvalid) {
		t.Errorf("a token as a session: %v", err)
	}
}

// A session is valid while its token is valid, until either ends.
func TestTokensAndSessionsEnd(t *testing.T) {
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
		secret := create(t, pool, access.NewToken{Name: name, Scope: access.Admin, By: "ann"})
		session, _, err := access.NewTokens(pool).Login(t.Context(), secret)
		if err != nil {
			t.Fatal(err)
		}
		execute(t, pool, end.how)
		_, err = access.NewTokens(pool).Verify(t.Context(), secret)
		if errors.Is(err, access.ErrInvalid) != end.token {
			t.Errorf("%s token: %v", name, err)
		}
		if _, _, err := access.NewTokens(pool).Login(t.Context(), secret); errors.Is(err, access.ErrInvalid) != end.token {
			t.Errorf("log in with the %s token: %v", name, err)
		}
		of, err := access.NewTokens(pool).Session(t.Context(), session)
		if name == "narrowed" {
			if err != nil || of.Scope != access.Viewer {
				t.Errorf("the session of a narrowed token may %s, %v", of.Scope, err)
			}
			continue
		}
		if !errors.Is(err, access.ErrInvalid) {
			t.Errorf("%s session: %+v, %v", name, of, err)
		}
	}
}

func TestLogout(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	secret := create(t, pool, access.NewToken{Name: "me", Scope: access.Viewer, By: "ann"})
	session, _, err := access.NewTokens(pool).Login(t.Context(), secret)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second call is no error
		if err := access.NewTokens(pool).Logout(t.Context(), session); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := access.NewTokens(pool).Session(t.Context(), session); !errors.Is(err, access.ErrInvalid) {
		t.Errorf("after the logout: %v", err)
	}
	if _, err := access.NewTokens(pool).Verify(t.Context(), secret); err != nil {
		t.Errorf("the token went with the session: %v", err)
	}
}

func TestTokenNames(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	wanted := access.NewToken{Name: "ci", Scope: access.Viewer, By: "ann"}
	old := create(t, pool, wanted)
	if _, _, err := access.NewTokens(pool).Create(t.Context(), wanted); !errors.Is(err, access.ErrTaken) {
		t.Errorf("a second one: %v", err)
	}
	if token, err := access.NewTokens(pool).Revoke(t.Context(), "ci", "bob"); err != nil || token.State != "revoked" || token.RevokedBy != "bob" {
		t.Errorf("revoked %+v, %v", token, err)
	}
	if _, err := access.NewTokens(pool).Revoke(t.Context(), "ci", "bob"); !errors.Is(err, access.ErrNotFound) {
		t.Errorf("revoked twice: %v", err)
	}
	create(t, pool, wanted) // the name is free
	if _, err := access.NewTokens(pool).Verify(t.Context(), old); !errors.Is(err, access.ErrInvalid) {
		t.Errorf("the old one came back: %v", err)
	}
}

// Stored values are not enough to log in.
func TestOnlyHashesAreStored(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	secret := create(t, pool, access.NewToken{Name: "ci", Scope: access.Viewer, By: "ann"})
	session, _, err := access.NewTokens(pool).Login(t.Context(), secret)
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
		if _, _, err := access.NewTokens(pool).Login(t.Context(), create(t, pool, access.NewToken{Name: name, Scope: access.Viewer, By: "ann"})); err != nil {
			t.Fatal(err)
		}
	}
	execute(t, pool, `UPDATE forge_tokens SET revoked_at = now() - interval '2 days' WHERE name = 'old'`)
	execute(t, pool, `UPDATE forge_sessions SET expires_at = now() - interval '2 days' WHERE token_id = (SELECT id FROM forge_tokens WHERE name = 'old')`)
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		for _, prune := range []func() (int64, error){
			func() (int64, error) {
				return access.NewTokens(tx).PruneSessions(t.Context(), time.Now().Add(-24*time.Hour), 10)
			},
			func() (int64, error) {
				return access.NewTokens(tx).Prune(t.Context(), time.Now().Add(-24*time.Hour), 10)
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
	if all, err := access.NewTokens(pool).List(t.Context()); err != nil || len(all) != 1 || all[0].Name != "new" {
		t.Errorf("left: %+v, %v", all, err)
	}
}

func TestScopes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		has, needs access.Scope
		want       bool
	}{
		{access.Viewer, access.Viewer, true},
		{access.Viewer, access.Operator, false},
		{access.Operator, access.Viewer, true},
		{access.Operator, access.Admin, false},
		{access.Admin, access.Admin, true},
		{"", access.Viewer, false},
		{"root", access.Viewer, false},
		{access.Admin, "", false},
		{"", "", false},
	} {
		if got := c.has.Covers(c.needs); got != c.want {
			t.Errorf("%q covers %q: %v", c.has, c.needs, got)
		}
	}
	if _, err := access.ParseScope("root"); err == nil || err.Error() != `unknown scope "root"; want viewer, operator or admin` {
		t.Error(err)
	}
}
