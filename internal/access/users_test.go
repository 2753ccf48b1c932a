package access_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/internal/access"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

// ann is a login of a user.
func ann() access.Login {
	return access.Login{
		User:            access.User{Issuer: "https://login.example.com", Subject: "42", Name: "ann@example.com", Groups: []string{"platform"}},
		ProviderSession: "s1", Valid: time.Hour, RefreshToken: "r3fresh-token", IDToken: "1d-token",
	}
}

func TestUserSessions(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	sessions := access.NewUserSessions(pool)
	secret, err := sessions.Open(t.Context(), ann())
	if err != nil || !access.IsUserSession(secret) {
		t.Fatalf("%q, %v", secret, err)
	}
	got, err := sessions.Session(t.Context(), secret)
	want := ann()
	want.Valid = 0
	if diff := cmp.Diff(want, got.Login); err != nil || diff != "" || got.ValidUntil.Sub(got.Now).Round(time.Minute) != time.Hour || got.ExpiresAt.Sub(got.Now).Round(time.Minute) != access.SessionLife {
		t.Errorf("%+v, %v (-want +got):\n%s", got, err, diff)
	}
	var hash, sealed []byte
	if err := pool.QueryRow(t.Context(), `SELECT hash, sealed FROM forge_user_sessions`).Scan(&hash, &sealed); err != nil {
		t.Fatal(err)
	}
	for _, hidden := range []string{"r3fresh", "1d-token", secret, strings.TrimPrefix(secret, "forgeuser_")} {
		if bytes.Contains(append(hash, sealed...), []byte(hidden)) {
			t.Errorf("%s is in the database", hidden)
		}
	}
	for _, wrong := range []string{"", "forgeuser_", secret + "x", strings.ToUpper(secret), "forgesession_" + strings.TrimPrefix(secret, "forgeuser_")} {
		if _, err := sessions.Session(t.Context(), wrong); !errors.Is(err, access.ErrInvalid) {
			t.Errorf("%q: %v", wrong, err)
		}
		if _, err := access.NewTokens(pool).Session(t.Context(), wrong); !errors.Is(err, access.ErrInvalid) {
			t.Errorf("%q as a token's session: %v", wrong, err)
		}
	}
	execute(t, pool, `UPDATE forge_user_sessions SET expires_at = now() - interval '2 days'`)
	if _, err := sessions.Session(t.Context(), secret); !errors.Is(err, access.ErrInvalid) {
		t.Errorf("after its end: %v", err)
	}
	if n, err := sessions.Prune(t.Context(), time.Now().Add(-24*time.Hour), 10); n != 1 || err != nil {
		t.Errorf("pruned %d, %v", n, err)
	}
}

// Only one node at a time extends a session, and never beyond its end.
func TestUserSessionsAreExtendedOnce(t *testing.T) {
	t.Parallel()
	sessions := access.NewUserSessions(pgtest.Pool(t))
	secret, err := sessions.Open(t.Context(), ann())
	if err != nil {
		t.Fatal(err)
	}
	known, err := sessions.Session(t.Context(), secret)
	if err != nil {
		t.Fatal(err)
	}
	claim := func(want bool) {
		t.Helper()
		if got, err := sessions.Claim(t.Context(), secret, known, time.Minute); got != want || err != nil {
			t.Errorf("claimed %v, %v", got, err)
		}
	}
	claim(true)
	claim(false)
	if err := sessions.Release(t.Context(), secret); err != nil {
		t.Error(err)
	}
	claim(true)
	now := ann()
	now.Groups, now.Valid, now.RefreshToken = []string{}, 100*time.Hour, "next"
	if err := sessions.Extend(t.Context(), secret, now); err != nil {
		t.Error(err)
	}
	claim(false) // it was extended meanwhile
	got, err := sessions.Session(t.Context(), secret)
	if err != nil || !got.ValidUntil.Equal(got.ExpiresAt) || got.RefreshToken != "next" || len(got.Groups) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestProviderClosesSessions(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	sessions := access.NewUserSessions(pool)
	for _, of := range []string{"s1", "s2", "s2"} {
		login := ann()
		login.ProviderSession = of
		if _, err := sessions.Open(t.Context(), login); err != nil {
			t.Fatal(err)
		}
	}
	for _, end := range []struct {
		issuer, subject, session string
		want                     int64
	}{
		{"https://other.example.com", "42", "", 0},
		{"https://login.example.com", "", "", 0},
		{"https://login.example.com", "43", "", 0},
		{"https://login.example.com", "43", "s2", 0},
		{"https://login.example.com", "", "s2", 2},
		{"https://login.example.com", "42", "", 1},
	} {
		if n, err := sessions.CloseAll(t.Context(), end.issuer, end.subject, end.session); n != end.want || err != nil {
			t.Errorf("%+v: ended %d, %v", end, n, err)
		}
	}
}

func TestScopesOfGroups(t *testing.T) {
	t.Parallel()
	scopes := access.GroupScopes{"a": access.Viewer, "b": access.Admin, "c": access.Operator}
	user := access.User{Issuer: "i", Subject: "s", Groups: []string{"c", "x", "b", "c"}}
	want := access.Holder{Name: "user:s", Scope: access.Admin, Issuer: "i", Subject: "s", Groups: "b, c"}
	if diff := cmp.Diff(want, user.Holder(scopes)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	user.Groups, user.Name = nil, "a\x1b[2Jb"
	if got := user.Holder(scopes); got.Scope != "" || strings.Contains(got.Name, "\x1b") {
		t.Errorf("%+v", got)
	}
	for name, user := range map[string]access.User{
		"nobody": {}, "long": {Subject: strings.Repeat("s", 300)}, "long name": {Subject: "s", Name: strings.Repeat("n", 300)}, "control": {Subject: "a\nb"},
	} {
		if user.Check() == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

// Sessions are listed and ended by ids that do not open them.
func TestOpenSessions(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	sessions := access.NewUserSessions(pool)
	bob := ann()
	bob.Subject, bob.Name = "43", "bob@example.com"
	var secrets []string
	for _, login := range []access.Login{ann(), ann(), bob, bob} {
		secret, err := sessions.Open(t.Context(), login)
		if err != nil {
			t.Fatal(err)
		}
		secrets = append(secrets, secret)
	}
	execute(t, pool, `UPDATE forge_user_sessions SET expires_at = now() - interval '1 s' WHERE hash = (SELECT hash FROM forge_user_sessions WHERE subject = '43' ORDER BY created_at LIMIT 1)`)
	all, err := sessions.List(t.Context(), "", "")
	if err != nil || len(all) != 3 || all[0].User != "bob@example.com" || all[2].Subject != "42" || all[2].Groups[0] != "platform" {
		t.Fatalf("%+v, %v", all, err)
	}
	anns, err := sessions.List(t.Context(), ann().Issuer, "42")
	if err != nil || len(anns) != 2 {
		t.Fatalf("of ann: %+v, %v", anns, err)
	}
	if _, err := sessions.Session(t.Context(), anns[0].ID); !errors.Is(err, access.ErrInvalid) {
		t.Errorf("the id opens the session: %v", err)
	}
	if _, err := sessions.End(t.Context(), all[0].ID, ann().Issuer, "42"); !errors.Is(err, access.ErrNotFound) {
		t.Errorf("ann ends the session of bob: %v", err)
	}
	if ended, err := sessions.End(t.Context(), anns[1].ID, ann().Issuer, "42"); err != nil || ended.User != "ann@example.com" {
		t.Errorf("%+v, %v", ended, err)
	}
	for i, want := range []error{access.ErrInvalid, nil, access.ErrInvalid, nil} {
		if _, err := sessions.Session(t.Context(), secrets[i]); !errors.Is(err, want) {
			t.Errorf("session %d: %v, want %v", i, err, want)
		}
	}
	if _, err := sessions.End(t.Context(), all[0].ID, "", ""); err != nil {
		t.Errorf("an admin ends a session: %v", err)
	}
	if ended, err := sessions.EndUser(t.Context(), "ann@example.com"); err != nil || len(ended) != 1 {
		t.Errorf("%+v, %v", ended, err)
	}
	if ended, err := sessions.EndUser(t.Context(), "nobody"); err != nil || len(ended) != 0 {
		t.Errorf("%+v, %v", ended, err)
	}
}
